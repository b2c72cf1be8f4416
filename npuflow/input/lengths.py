"""Sequences of any length in a range: the input that says how many steps there are, and filling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, ModelError
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length, filled, length_name, one_length
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, TensorType, Value

RECURRENT = ("host:lstm", "host:gru", "host:rnn")
LENGTHS = 4                               # the operand of these that has lengths
Entry = Mapping[str, Any]


def with_length(graph: Graph, shorter: Graph, dim: str, least: int, most: int) -> Graph:
    """A graph of the most steps along a free dimension that runs fewer, too: an input says how many, and
    recurrent layers end there. `shorter`: the same of one step less, which tells where steps lie."""
    name = length_name(dim, most)
    axes = tuple(_axes(graph, shorter, dim, most))
    layers = [node for node in graph.nodes if _recurrent(node) and _steps(graph, shorter, node) == most]
    batches = {graph.type(node.inputs[0]).shape[1] for node in layers} or {1}
    said = next((node for node in layers if len(node.inputs) > LENGTHS and node.inputs[LENGTHS]), None)
    if said is not None or len(batches) > 1:
        because = (
            f"{said.name} has lengths of its own" if said is not None
            else f"recurrent layers have batches of {sorted(batches)}"
        )
        raise ModelError(
            f"{dim} cannot be free in its recurrent layers", because=because,
            hint=f"[model] dims {dim} = {most}: one length", code="NF-MODEL-493",
        )
    value = Value(name, TensorType((batches.pop(),), "int32"))
    nodes = tuple(_ending(node, name) if node in layers else node for node in graph.nodes)
    return graph.replaced(
        inputs=(*graph.inputs, name), nodes=nodes, values=MappingProxyType({**graph.values, name: value}),
        lengths=(*graph.lengths, Length(name, least, most, axes)),
    )


def _recurrent(node: Node) -> bool:
    return kind(node) in RECURRENT


def _steps(graph: Graph, shorter: Graph, node: Node) -> int:
    """The steps of a recurrent layer that are those of the dimension; 0 where they are others."""
    x = node.inputs[0]
    mine, other = (one.type(x).shape if x in one.values else () for one in (graph, shorter))
    return mine[0] if len(mine) == 3 and other[:1] == (mine[0] - 1,) else 0


def _ending(node: Node, name: str) -> Node:
    """A layer whose sequences end at a length."""
    inputs = (*node.inputs, *[""] * (LENGTHS + 1 - len(node.inputs)))
    return replace(node, inputs=(*inputs[:LENGTHS], name, *inputs[LENGTHS + 1 :]))


def _axes(graph: Graph, shorter: Graph, dim: str, most: int) -> Iterator[tuple[str, int]]:
    """Where ports have steps."""
    for port in (*graph.inputs, *graph.outputs):
        if port not in shorter.values:
            continue
        mine, other = graph.type(port).shape, shorter.type(port).shape
        apart = [d for d, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b]
        if not apart:
            continue
        if len(apart) > 1 or (mine[apart[0]], other[apart[0]]) != (most, most - 1):
            raise ModelError(
                f'{dim} cannot be free: "{port}" is {list(mine)} where it is {most}, and {list(other)} where '
                f"it is {most - 1}", hint=f"[model] dims {dim} = {most}: one length", code="NF-MODEL-494",
            ).at(value=port)
        yield port, apart[0]


def whole_sample(entries: Sequence[Entry], lengths: Sequence[Entry], sample: Mapping[str, Any]) -> Any:
    """A sample of a program with filling behind its last step, and with the numbers of steps, which it need
    not have. `lengths`: of the program's metadata."""
    found, ports = dict(sample), {entry["name"]: entry for entry in entries}
    for one in lengths:
        counts: dict[str, int] = {}
        for name, axis in one["axes"].items():
            if name not in ports or name not in sample:
                continue
            entry, array = ports[name], np.asarray(sample[name])
            if array.ndim == len(entry["shape"]):
                counts[name] = array.shape[axis]
                found[name] = filled(array, axis, one["most"], _nothing(entry, array))
        if one["input"] in sample or not counts:
            continue
        count = one_length(counts.items(), one["input"])
        need_steps(one, count)
        port = ports[one["input"]]
        found[one["input"]] = np.full(port["shape"], count, port["dtype"])
    return found


def _nothing(entry: Entry, array: Array) -> float:
    """What stands for 0 in an input: a code or a pixel where it is given these."""
    if array.dtype.kind not in "iu":
        return 0.0
    if entry.get("pixels"):
        return float(entry["pixels"]["zero"])
    return float(np.ravel(entry["quant"]["zero_point"])[0]) if entry.get("quant") else 0.0


def steps_of_sample(lengths: Sequence[Entry], sample: Mapping[str, Any]) -> dict[str, int]:
    """How many steps a whole sample has, by the inputs that say so; the most where sequences differ."""
    return {one["input"]: int(np.max(sample[one["input"]])) for one in lengths}


def cut(lengths: Sequence[Entry], sample: Mapping[str, Any], made: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a whole sample without what lies behind its last step. `made`: by the program's names."""
    found, steps = dict(made), steps_of_sample(lengths, sample)
    for one in lengths:
        for name, axis in one["axes"].items():
            if name in found:
                found[name] = found[name][(slice(None),) * axis + (slice(0, steps[one["input"]]),)]
    return found


def need_steps(one: Entry, count: int) -> None:
    """A DataError where a run has too few steps, or too many. `one`: of a program's metadata."""
    if not one["least"] <= count <= one["most"]:
        dim = one["input"].rpartition("<=")[0]
        raise DataError(
            f'{dim} = {count}: the program runs {one["least"]} to {one["most"]} steps',
            hint=f'cut the sample, or build with [model] dims {dim} = "{one["least"]}..{count}"'
            if count > one["most"] else "leave the sample out",
            code="NF-DATA-270",
        )
