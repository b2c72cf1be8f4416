"""A model of any length: its graph of the most steps, and an input that says how many run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.input.data.config import noise
from npuflow.input.data.lengths import filled
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length, length_name
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, TensorType, Value
from npuflow.run.floats import FloatRun
from npuflow.stages._step_masks import with_zeros_behind

RECURRENT = ("host:lstm", "host:gru", "host:rnn")
LENGTHS = 4                               # the operand of these that has lengths


def need_followed(graph: Graph, shorter: Mapping[int, Graph], dim: str, most: int) -> None:
    """A ModelError where a recurrent layer or an output has another number of steps than the dimension, as
    behind windows that go on by several steps. `graph`: of the most steps; `shorter`: of fewer."""
    apart = {v for v in graph.values if not _follows(graph, shorter, v, most)}
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
            f"{dim} cannot be free: {node.name} makes another number of steps than it reads",
            where=Where(value=value),
            because=f'"{value}" is {list(graph.type(value).shape)} where {dim} is {most}, and '
            f"{list(other.type(value).shape)} where it is {few}",
            hint=f"windows that go on by one step along {dim}, with as many steps of border as they need; "
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


def of_any_length(graph: Graph, shorter: Mapping[int, Graph], dim: str, least: int, most: int) -> Graph:
    """A graph of the most steps along a dimension that runs fewer, too. `shorter`: the same of some lengths,
    of one step less among them. A ModelError where it cannot."""
    need_followed(graph, shorter, dim, most)
    whole = with_length(graph, shorter[most - 1], dim, least, most)
    fault = mixing(whole, shorter)
    if fault is not None:
        whole = with_zeros_behind(whole, shorter[most - 1])
        fault = mixing(whole, shorter)
    if fault is not None:
        raise fault
    return whole


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
