"""Quantised graphs from a placement of one's own, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npuflow.hw.target import Memory, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType
from npuflow.place.islands import PlacementTable, Prices
from npuflow.place.place import NodePlacement, Placed, op_name
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.quantise.graph import Quantization, build
from npuflow.quantise.scales import Range


def quantize_graph(
    graph: Graph,
    on_npu: Callable[[int], bool] | NodePlacement,
    ranges: Mapping[str, Range],
    config: Quantize,
    numerics: Numerics,
    stated: Mapping[str, QuantType] | None = None,
    **more: Any,
) -> Quantization:
    """What `build` makes of a candidate; `more`: its other fields. `on_npu`: a placement, or a function that
    says of a node's index whether it is on the NPU; no node is then moved because others went to the host."""
    placed = on_npu if isinstance(on_npu, NodePlacement) else placed_by(graph, on_npu)
    return build(Candidate(graph, placed, config, numerics, ranges, stated or {}, **more))


def local_memory(count: int) -> Prices:
    """Of a target with so many bytes of it; small islands stay on the NPU."""
    return Prices(Target(memory=Memory(local_bytes=count)), PlacementTable(min_macs=0))


def placed_by(graph: Graph, on_npu: Callable[[int], bool]) -> NodePlacement:
    """The nodes that a function chooses on the NPU, the others on the host."""
    reasons = ("" if on_npu(i) else "placed by hand" for i in range(len(graph.nodes)))
    return NodePlacement(
        tuple(Placed(n.name, op_name(n), why, 0) for n, why in zip(graph.nodes, reasons, strict=True))
    )
