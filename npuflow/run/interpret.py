"""The reference interpreter: every integer node by its specification, every float node by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, borders, loops, side_of, stack, units
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.session import opened
from npuflow.place.partition import HostStep, Segment, host_model
from npuflow.run.driver import RunPart, driven
from npuflow.run.parts import constant_outputs, parts_of


class Interpreter:
    """A quantised graph ready to run sample after sample; sessions of its host parts are made once."""

    def __init__(self, graph: Graph, numerics: Numerics) -> None:
        self.graph, self.numerics = graph, numerics
        self._loops = loops(graph)
        self._sessions: dict[tuple[str, ...], Any] = {}
        self._parts = [RunPart(part.inputs, partial(self._run, part)) for part in parts_of(graph)]

    def run(
        self, inputs: Mapping[str, Array], keep: Iterable[str] | Callable[[str], bool] | None = None
    ) -> dict[str, Array]:
        """Values by id: the graph's outputs, and those that `keep` names (True for
        all: `lambda id: True`)."""
        also = keep if callable(keep) else set(keep or ()).__contains__
        outputs = self.graph.outputs
        given = {value_id: self.fed(value_id, inputs) for value_id in self.graph.inputs}
        kept = driven(self._parts, given, lambda value_id: value_id in outputs or also(value_id))
        return kept | constant_outputs(self.graph)

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The outputs of every sample."""
        return [self.run(sample) for sample in samples]

    def fed(self, value_id: str, inputs: Mapping[str, Array]) -> Array:
        """An input as the graph stores it, checked."""
        if value_id not in inputs:
            raise DataError(
                f'no data for the input "{value_id}"',
                because=f"given: {', '.join(inputs) or 'nothing'}", code="NF-DATA-012",
            )
        array, value = np.asarray(inputs[value_id]), self.graph.values[value_id]
        fits = len(array.shape) == len(value.type.shape) and all(
            have == want or want < 0 for have, want in zip(array.shape, value.type.shape, strict=True)
        )
        if not fits:
            raise DataError(
                f'the input "{value_id}" has shape {array.shape}; the model expects {value.type.shape}',
                code="NF-DATA-014",
            )
        quant = value.quant
        # real numbers for an input that takes codes
        if quant is not None and array.dtype.kind == "f":
            return encode(array, quant)
        if (
            quant is not None
            and array.size
            and not quant.lo <= int(array.min()) <= int(array.max()) <= quant.hi
        ):
            raise DataError(
                f'the input "{value_id}" has codes {array.min()}..{array.max()}, its type has '
                f'{quant.lo}..{quant.hi}',
                code="NF-DATA-060",
            )
        return array.astype(value.dtype, copy=False) if value.dtype != "string" else array

    def _run(self, part: Segment | HostStep, values: Mapping[str, Array]) -> Mapping[str, Array]:
        if isinstance(part, Segment):
            return self._npu(part, values)
        return self.model(part, values) if part.kind == "model" else self._boundary(part, values)

    def _npu(self, part: Segment, outer: Mapping[str, Array]) -> dict[str, Array]:
        values = {v: outer[v] for v in part.inputs}
        self._each(part.numbers, self._loops, values)
        made = {o for n in part.nodes for o in n.outputs}
        return {v: a for v, a in values.items() if v in made}

    def _each(self, numbers: Sequence[int], within: Sequence[Loop], values: dict[str, Array]) -> None:
        """Nodes one after the other, `within`: the loops that some of them are, as a whole."""
        for one in units(numbers, within):
            if isinstance(one, Loop):
                values.update(self._looped(one, values))
            else:
                values.update(self._made(self.graph.nodes[one], values))

    def _made(self, node: Node, values: Mapping[str, Array]) -> dict[str, Array]:
        """A node's results."""
        site = self.graph.site(node)
        given = [None if not v else values[v] if v in values else self.graph.const(v) for v in node.inputs]
        results = forms.computed(site, given, self.numerics)
        # numpy's scalars become arrays
        return {o: np.asarray(a) for o, a in zip(node.outputs, results, strict=False) if o}

    def _looped(self, loop: Loop, outer: Mapping[str, Array]) -> dict[str, Array]:
        """What the borders of a loop give, and the values of its body, stacked."""
        held = {one.now: self._value(one.initial, outer) for one in loop.carried}
        rows: dict[str, list[Array]] = {}
        ends = list(borders(self.graph, loop))
        body = [i for i in loop.nodes if not side_of(self.graph.nodes[i], loop)]
        parts = {
            n.outputs[0]: np.split(self._value(n.inputs[0], outer), loop.steps)
            for side, _, n in ends if side == "slice"
        }
        for step in range(loop.steps):
            values = dict(held)
            for side, own, node in ends:
                if side == "slice":
                    at = loop.steps - 1 - step if own.reverse else step
                    values[node.outputs[0]] = parts[node.outputs[0]][at]
                elif side == "capture":
                    values[node.outputs[0]] = self._value(node.inputs[0], outer)
            self._each(body, loop.inner, values)
            for name, array in values.items():
                rows.setdefault(name, []).append(array)
            held = {one.now: self._value(one.following, values) for one in loop.carried}
        made = {name: stack(some) for name, some in rows.items()}
        made.update((one.last, held[one.now]) for one in loop.carried)
        for side, own, node in ends:
            if side == "stack":
                some = rows.get(node.inputs[0]) or [self._value(node.inputs[0], {})] * loop.steps
                made[node.outputs[0]] = stack(some[::-1] if own.reverse else some)
        return made

    def _value(self, value_id: str, values: Mapping[str, Array]) -> Array:
        """A value that was made, or a constant."""
        if value_id in values:
            return values[value_id]
        held = self.graph.const(value_id)
        assert held is not None, value_id
        return held

    def _boundary(self, step: HostStep, values: Mapping[str, Array]) -> dict[str, Array]:
        (node,) = step.nodes
        (result,) = node.op.integer(self.graph.site(node), [values[node.inputs[0]]], self.numerics)
        return {node.outputs[0]: np.asarray(result)}

    def model(self, step: HostStep, values: Mapping[str, Array]) -> dict[str, Array]:
        """A part of the host's on onnxruntime."""
        session = self._sessions.get(step.outputs)
        if session is None:
            session = self._sessions[step.outputs] = host_session(host_model(self.graph, step))
        results = session.run(list(step.outputs), {v: values[v] for v in step.inputs})
        return dict(zip(step.outputs, results, strict=True))


def host_session(model: SessionModel) -> Any:
    """onnxruntime on one thread: the same bytes on every run of one machine."""
    return opened(model)


def interpret(
    graph: Graph,
    inputs: Mapping[str, Array],
    numerics: Numerics,
    keep: Iterable[str] | Callable[[str], bool] | None = None,
) -> dict[str, Array]:
    """One sample through the quantised graph."""
    return Interpreter(graph, numerics).run(inputs, keep)
