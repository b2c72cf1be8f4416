"""A model of any length: its graph of the most steps, and an input that says how many run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.base.step_count import EACH, StepCount
from npuflow.input.data.config import noise
from npuflow.input.data.lengths import filled
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length, length_name
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, TensorType, Value
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.run.floats import FloatRun
from npuflow.stages._step_counts import Sizes, ValueSteps, need_one_border, windowed
from npuflow.stages._step_masks import counts_table, with_zeros_behind

RECURRENT = ("host:lstm", "host:gru", "host:rnn")
LENGTHS = 4                               # the operand of these that has lengths


def need_followed(graph: Graph, steps: Mapping[str, ValueSteps], sizes: Sizes, dim: str) -> None:
    """A ModelError where a recurrent layer or an output has a number of steps that does not follow from that
    of the dimension. `graph`: of the most steps; `steps`: of values that have some."""
    shorter, most = {n: one for n, one in sizes.known.items() if n < sizes.most}, sizes.most
    apart = {v for v in graph.values if v not in steps and not _follows(graph, shorter, v, most)}
    ends = [*graph.outputs, *(n.inputs[0] for n in graph.nodes if _recurrent(n))]
    wanted = {v for v in ends if v in apart}
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
    for node in graph.nodes if wanted else ():
        value = next((o for o in node.outputs if o in apart & wanted), "")
        if not value or apart.intersection(node.inputs):
            continue
        few, other = next((n, one) for n, one in shorter.items() if value in one.values)
        raise ModelError(
            f"{dim} cannot be free: the steps of {node.name} do not follow from the length",
            where=Where(value=value),
            because=f'"{value}" is {list(graph.type(value).shape)} where {dim} is {most}, and '
            f"{list(other.type(value).shape)} where it is {few}",
            hint=f"layers that make a step of each along {dim}, or of each few; "
            f"[model] dims {dim} = {most}: one length; or [model] shapes, a program for each",
            code="NF-MODEL-547",
        )


def _follows(graph: Graph, shorter: Mapping[int, Graph], value: str, most: int) -> bool:
    """Whether each size of a value is the same at all numbers of steps, or is so many times their number."""
    whole = graph.type(value).shape
    sizes = {n: one.type(value).shape for n, one in shorter.items() if value in one.values}
    if any(len(one) != len(whole) for one in sizes.values()):
        return False
    return all(
        all(one[d] == size for one in sizes.values())
        or all(one[d] * most == size * n for n, one in sizes.items())
        for d, size in enumerate(whole)
    )


def of_any_length(
    graph: Graph, at: Callable[[int], Graph], dim: str, least: int, most: int
) -> Graph:
    """A graph of the most steps along a dimension that runs fewer, too. `at`: reads the same of so many. A
    ModelError where it cannot."""
    sizes = Sizes(at, least, most, {most: graph})
    sizes.need_least(dim)
    steps = sizes.steps()
    need_followed(graph, steps, sizes, dim)
    need_ports(graph, steps, sizes, dim)
    shorter = sizes.compared(steps)
    need_one_border(graph, shorter, steps, dim)
    made = whole = with_length(graph, steps, dim, least, most)
    fault = mixing(made, shorter)
    if fault is not None:
        made = with_zeros_behind(whole, steps, shorter)
        fault = mixing(made, shorter)
    if fault is not None and (pooled := from_zero_on(shorter[most - 1], steps)):
        made = with_zeros_behind(whole, steps, shorter, pooled)
        fault = mixing(made, shorter)
    if fault is not None:
        raise fault
    return made


def from_zero_on(graph: Graph, steps: Mapping[str, ValueSteps]) -> set[str]:
    """Values that pooling reads along the steps, and that are 0 or more by what makes them: a border of
    zeros, or none, is the same to the largest of them. `graph`: of one length."""
    read = {node.inputs[0] for node, _ in windowed(graph, steps) if node.op.algebra != "convolution"}
    made = graph.producer()

    def least(value: str) -> float:
        node = made.get(value)
        if node is None:
            return -np.inf
        if node.op.algebra in ("peak", "view"):
            return least(node.inputs[0])
        clamp = cast(Any, node.op).bounds() if node.op.algebra == "clamp" else None
        ends = [end for end in (node.op.clip, node.op.bounded, clamp) if end is not None]
        return max((float(np.min(end[0])) for end in ends), default=-np.inf)

    return {value for value in read if least(value) >= 0}


def mixing(graph: Graph, shorter: Mapping[int, Graph]) -> ModelError | None:
    """The error of a graph of any length that computes something else than the same of some lengths: what
    lies behind the last step must reach nothing before it."""
    (length,) = graph.lengths
    kinds = {i: graph.type(i) for i in graph.inputs if i != length.name}
    whole = FloatRun.of(graph, graph.outputs)
    for count, other in shorter.items():
        one = FloatRun.of(other, other.outputs)
        for seed, size in enumerate((1.0, .05)):
            feed = noise({i: other.type(i) for i in kinds}, seed)
            feed = {i: a * np.asarray(size, a.dtype) if a.dtype.kind == "f" else a for i, a in feed.items()}
            given = {i: filled(feed[i], axis, length.most) for i, axis in length.axes if i in feed}
            said = {length.name: np.full(graph.type(length.name).shape, count, np.int32)}
            full = {**feed, **given, **said}
            if _differing(graph, whole.run(full), one.run(feed)) is not None:
                return _mixing(graph, other, full, feed)
    return None


def _differing(graph: Graph, whole: Mapping[str, Array], one: Mapping[str, Array]) -> str | None:
    """The first value that is another one, up to where the shorter network has it."""
    for name, wanted in one.items():
        found = whole.get(name)
        if found is None or found.ndim != wanted.ndim or wanted.dtype.kind != "f":
            continue
        found = found[tuple(slice(0, size) for size in wanted.shape)]
        if found.shape != wanted.shape or not np.allclose(found, wanted, 1e-3, 1e-4):
            return name
    return None


def _mixing(
    graph: Graph, other: Graph, full: Mapping[str, Array], feed: Mapping[str, Array]
) -> ModelError:
    """The error that names the first layer whose results change with what lies behind the last step."""
    (length,) = graph.lengths
    shown = [o for n in other.nodes for o in n.outputs if o and o in graph.values]
    found = _differing(graph, FloatRun.of(graph, shown).run(full), FloatRun.of(other, shown).run(feed))
    node = other.producer().get(found or "")
    name = node.name if node is not None else f'what makes "{graph.outputs[0]}"'
    return ModelError(
        f"{length.dim} cannot be free: {name} mixes steps", where=Where(value=found or graph.outputs[0]),
        because="what it computes changes with what lies behind the last step of a sequence",
        hint=f"[model] dims {length.dim} = {length.most}: one length; or [model] shapes, a program for each",
        code="NF-MODEL-495",
    )


def with_length(graph: Graph, steps: Mapping[str, ValueSteps], dim: str, least: int, most: int) -> Graph:
    """A graph of the most steps along a free dimension that runs fewer, too: an input says how many, and
    recurrent layers end there, or at as many as there are behind strides. `steps`: where values have them."""
    name = length_name(dim, most)
    ports = {port: steps[port] for port in (*graph.inputs, *graph.outputs) if port in steps}
    layers = {node.outputs: own.count for node in graph.nodes if (own := _steps(graph, steps, node))}
    found = [node for node in graph.nodes if node.outputs in layers]
    batches = {graph.type(node.inputs[0]).shape[1] for node in found} or {1}
    said = next((node for node in found if len(node.inputs) > LENGTHS and node.inputs[LENGTHS]), None)
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
    inner = tuple(dict.fromkeys(count for count in layers.values() if count != EACH))
    length = Length(
        name, least, most, tuple((port, own.axis) for port, own in ports.items()),
        tuple((port, own.count) for port, own in ports.items() if own.count != EACH), inner,
    )
    graph = graph.replaced(
        inputs=(*graph.inputs, name), values=MappingProxyType({**graph.values, name: value}),
        lengths=(*graph.lengths, length),
    )
    net, ends = Builder.over(graph), {EACH: name}
    ends |= {count: _count_behind(net, length, count) for count in inner}
    net.nodes += [
        _ending(node, ends[layers[node.outputs]]) if node.outputs in layers else node for node in graph.nodes
    ]
    return graph.replaced(nodes=tuple(net.nodes), values=net.values, consts=net.consts)


def _count_behind(net: Builder, length: Length, count: StepCount) -> str:
    """How many steps a run has behind strides, as a value: looked up by that of the run."""
    name = f"{length.dim}:{count.stride}:{count.more}"
    table = net.constant(net.free(f"{name}:counts"), counts_table(length.most, count))
    op = OPS["host"](
        op_type="Gather", version=EXPORT_OPSET, attributes=(("axis", 0),),
        types=(net.type(length.name),), reason="the index is not a constant",
    )
    return net.add(op, (table, length.name), (net.free(name),))[0]


def _recurrent(node: Node) -> bool:
    return kind(node) in RECURRENT


def _steps(graph: Graph, steps: Mapping[str, ValueSteps], node: Node) -> ValueSteps | None:
    """The steps of a recurrent layer that follow from the dimension; None where it has others."""
    found = steps.get(node.inputs[0]) if _recurrent(node) else None
    return found if found and not found.axis and len(graph.type(node.inputs[0]).shape) == 3 else None


def _ending(node: Node, name: str) -> Node:
    """A layer whose sequences end at a length."""
    inputs = (*node.inputs, *[""] * (LENGTHS + 1 - len(node.inputs)))
    return replace(node, inputs=(*inputs[:LENGTHS], name, *inputs[LENGTHS + 1 :]))


def need_ports(graph: Graph, steps: Mapping[str, ValueSteps], sizes: Sizes, dim: str) -> None:
    """A ModelError where a port has no dimension that is the steps; of inputs as many as a run has."""
    for port in (*graph.inputs, *graph.outputs):
        own = steps.get(port)
        if own is not None and (own.count == EACH or port not in graph.inputs):
            continue
        mine = graph.type(port).shape
        for count, other in sizes.known.items():
            if port in other.values and (theirs := other.type(port).shape) != mine:
                raise ModelError(
                    f'{dim} cannot be free: "{port}" is {list(mine)} where it is {sizes.most}, and '
                    f"{list(theirs)} where it is {count}",
                    hint=f"[model] dims {dim} = {sizes.most}: one length", code="NF-MODEL-494",
                ).at(value=port)
