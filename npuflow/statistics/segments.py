"""Cuts the float graph into segments, whose statistics depend only on the segments above."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from npuflow.base.digest import Hasher, digest
from npuflow.ir.graph import Graph, prune
from npuflow.ir.loops import before
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node
from npuflow.ir.types import TensorType
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import FedModel, SessionModel
from npuflow.statistics import tuned


@dataclass(frozen=True)
class ModelSegment:
    """A run of nodes as a model of its own.

    `fed`: the values that it reads, inputs of the network or made by other segments. `made`: its outputs,
    which are what is counted and what later segments read. `names`: what is counted, made here or an input of
    the network. `above`: the segments that it depends on, and `cone` a digest of all of them and itself.
    `weights` and `activations`: bytes that running it takes, roughly.
    """

    model: SessionModel
    inputs: Mapping[str, TensorType]
    fed: tuple[str, ...]
    made: tuple[str, ...]
    names: tuple[str, ...]
    above: tuple[str, ...]
    cone: str
    weights: int = 0
    activations: int = 0


def segments(graph: Graph, names: Sequence[str]) -> dict[str, ModelSegment]:
    """The segments of a graph in order; `names`: the values to count.

    Where the graph is cut is decided from its inputs on, by what comes before the cut and by which values are
    still read after it, never by what happens to them there: an edit further down moves no cut above it. A
    cut passes only through values that are counted (and so are outputs in any case), inputs, and values that
    many nodes read; so it keeps onnxruntime from no fusion that it would otherwise make.
    """
    counted = set(names)
    part = prune(graph.replaced(outputs=tuple(n for n in names if n not in graph.inputs)))
    inputs = {name: graph.type(name) for name in graph.inputs}
    # counted inputs that no segment has listed yet
    left = [name for name in names if name in inputs]
    maker: dict[str, str] = {}
    found: dict[str, ModelSegment] = {}
    runs = list(_runs(part, counted)) or [()]
    for index, nodes in enumerate(runs):
        own = {v for node in nodes for v in node.outputs if v}
        fed = tuple(dict.fromkeys(v for v in _read(part, nodes) if v not in own))
        later = {v for other in runs[index + 1 :] for v in _read(part, other)}
        made = tuple(v for node in nodes for v in node.outputs if v and (v in counted or v in later))
        mine = [v for v in left if v in fed or index == len(runs) - 1]
        left = [v for v in left if v not in mine]
        name = f"{index:02}"
        feeding = dict.fromkeys(maker[v] for v in fed if v in maker)
        above = tuple(k for k in found if k in feeding or any(k in found[f].above for f in feeding))
        model = session_model(part, made, nodes, fed) if made else b""
        reported = (*mine, *(v for v in made if v in counted))
        kinds = {k: asdict(v) for k, v in inputs.items()}
        weights = Hasher("model")
        weights.update(model if isinstance(model, bytes) else model.proto)
        fed_too = [sorted(model.digests.items())] if isinstance(model, FedModel) else []
        cone = digest(
            [
                weights.hexdigest(),
                *fed_too,
                kinds,
                list(fed),
                list(made),
                list(reported),
                [found[k].cone for k in above],
            ]
        )
        found[name] = ModelSegment(
            model, inputs, fed, made, reported, above, cone, copied(model), _working(part, nodes, fed, made)
        )
        maker.update(dict.fromkeys(made, name))
    return found


def copied(model: SessionModel) -> int:
    """Bytes of a model that a session copies."""
    return len(model if isinstance(model, bytes) else model.proto)


def _read(graph: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    return (v for node in nodes for v in node.inputs if v and graph.const(v) is None)


def _runs(graph: Graph, counted: Collection[str]) -> Iterator[tuple[Node, ...]]:
    """The nodes in consecutive runs."""
    last: dict[str, int] = {}
    readers: dict[str, int] = {}
    for i, node in enumerate(graph.nodes):
        for v in dict.fromkeys(_read(graph, [node])):
            last[v], readers[v] = i, readers.get(v, 0) + 1
    fit = {
        v
        for v in last
        if v in counted or v in graph.inputs
        or (readers[v] >= tuned.SEGMENT_READERS and _plain(graph.type(v)))
    }
    start, number, size, work = 0, 0, 0, 0
    # values that a cut here may not pass through
    crossing: set[str] = set()
    for i, node in enumerate(graph.nodes):
        crossing = {v for v in (*crossing, *node.outputs) if v and v not in fit and last.get(v, -1) > i}
        reported = [v for v in node.outputs if v in counted]
        own = sum(_bytes(graph.type(v)) for v in reported)
        number, size, work = (
            number + len(reported),
            size + own,
            work + node_macs(graph, node) + tuned.SEGMENT_VALUE * own // 4,
        )
        worth = number >= tuned.SEGMENT_LEAST and work >= tuned.SEGMENT_WORK
        enough = worth or size >= tuned.SEGMENT_MOST
        if not crossing and enough and i + 1 < len(graph.nodes) and before(graph, i + 1) == i + 1:
            yield graph.nodes[start : i + 1]
            start, number, size, work = i + 1, 0, 0, 0
    if graph.nodes:
        yield graph.nodes[start:]


def _plain(kind: TensorType) -> bool:
    return kind.is_static and kind.dtype in ("float32", "float64", "int64", "int32", "bool")


def _bytes(kind: TensorType) -> int:
    if not kind.is_static:
        return 0
    return kind.size * (np.dtype(kind.dtype).itemsize if _plain(kind) else 8)


def _working(graph: Graph, nodes: Sequence[Node], fed: Sequence[str], made: Sequence[str]) -> int:
    """What is in memory while a segment runs: what it reads and gives, and the largest
    node's own values beside it."""
    held = sum(_bytes(graph.type(v)) for v in (*fed, *made))
    own = (
        sum(_bytes(graph.type(v)) for v in (*_read(graph, [node]), *filter(None, node.outputs)))
        for node in nodes
    )
    return held + max(own, default=0)
