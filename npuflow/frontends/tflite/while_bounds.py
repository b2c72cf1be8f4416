"""A WHILE of TFLite whose end depends on data as one of a stated number of steps, under a mask.

Its condition becomes a carried truth value. States that count go on behind the end, where no step uses them;
what they are behind the loop follows from how many steps have counted, which is carried, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends._nodes.masked import GUARDED, StepMask
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.frontends.tflite.while_trace import WhileTrace, conditions, counting, is_whole, makers
from npuflow.ir.types import Array

ONE = (1,)
# states behind those of the source: the number of the step, and how many have counted
NUMBER, COUNT = range(2)


@dataclass(frozen=True)
class BoundedWhile:
    """`initial`: of the states behind those of the source, without the mask. `lone`: states without a
    dimension, which are carried as one element; `tables`: what counters are behind so many steps;
    `firsts`: states whose initial values are states, too, behind those of the source."""

    cond: TfliteNetwork
    body: TfliteNetwork
    steps: int
    initial: tuple[TfliteTensor, ...]
    mask: TfliteTensor
    lone: frozenset[int]
    tables: Mapping[int, Array]
    firsts: tuple[int, ...]


def bounded(
    cond: TfliteNetwork, body: TfliteNetwork, states: Sequence[TfliteTensor], most: int
) -> BoundedWhile:
    """The loop of at most so many steps; a CannotLoopError where it cannot be one."""
    trace = counting(cond, body, states, most)
    return _Bounded(cond, body, list(states), trace).made()


@dataclass
class _Bounded:
    cond: TfliteNetwork
    body: TfliteNetwork
    states: list[TfliteTensor]
    trace: WhileTrace
    begins: list[Operator] = field(default_factory=list)
    ends: list[Operator] = field(default_factory=list)
    lone: set[int] = field(default_factory=set)
    tables: dict[int, Array] = field(default_factory=dict)
    firsts: dict[int, int] = field(default_factory=dict)        # what steps behind the end compute with

    def made(self) -> BoundedWhile:
        self.guarded = not GUARDED.isdisjoint(o.name for o in (*self.body.operators, *self.cond.operators))
        self.tensors = list(self.body.tensors)
        self.operators = list(self.body.operators)
        number, count, runs = (self.new(name, *kind) for name, kind in (
            ("step", ((), "int32")), ("count", (ONE, "float32")), ("runs", (ONE, "bool"))
        ))
        self.into = self.begins
        mask = StepMask[int](self, runs)
        self.into = self.ends
        goes_on = mask.goes_on([self.shaped(leaf, ONE) for leaf in self.conditions()])
        inputs, outputs = list(self.body.inputs), list(self.body.outputs)
        for k in range(len(self.states)):
            inputs[k], outputs[k] = self.state(k, inputs[k], outputs[k], mask)
        counted = self.op("ADD", (count, mask.flags[False]), ONE, "float32", FusedActivationFunction=0)
        following = self.op("ADD", (number, self.fixed(1, "int32")), (), "int32", FusedActivationFunction=0)
        kept = tuple(self.firsts.values())
        body = TfliteNetwork(
            tuple(self.tensors), (*self.begins, *self.operators, *self.ends),
            (*inputs, *kept, number, count, runs), (*outputs, *kept, following, counted, goes_on),
        )
        first = TfliteTensor("step", (), "int32", np.array(0, np.int32), None)
        none = TfliteTensor("count", ONE, "float32", np.zeros(1, np.float32), None)
        return BoundedWhile(
            self.lasts(body), body, self.trace.steps, (first, none), self.tensors[runs],
            frozenset(self.lone), self.tables, tuple(self.firsts),
        )

    def lasts(self, body: TfliteNetwork) -> TfliteNetwork:
        """The condition: that steps are left."""
        tensors = [replace(body.tensors[i], data=None) for i in body.inputs]
        steps = TfliteTensor("steps", (), "int32", np.array(self.trace.steps, np.int32), None)
        less = TfliteTensor("left", (), "bool", None, None)
        at, count = len(self.states) + len(self.firsts) + NUMBER, len(tensors)
        operator = Operator("LESS", (at, count), (count + 1,), {})
        return TfliteNetwork((*tensors, steps, less), (operator,), tuple(range(count)), (count + 1,))

    def conditions(self) -> list[int]:
        """What has to hold for another step, each by itself, from what a step gives."""
        places = dict(zip(self.cond.inputs, self.body.outputs, strict=True))

        def place(index: int) -> int:
            if index >= 0 and index not in places:
                places[index] = len(self.tensors)
                self.tensors.append(self.cond.tensors[index])
            return places.get(index, -1)

        for operator in self.cond.operators:
            read, made = (tuple(place(i) for i in some) for some in (operator.inputs, operator.outputs))
            self.ends.append(replace(operator, inputs=read, outputs=made))
        return [place(leaf) for leaf in conditions(self.cond)]

    def state(self, k: int, own: int, out: int, mask: StepMask[int]) -> tuple[int, int]:
        """Where a state is at the step and for the next one."""
        state, last = self.states[k], self.trace.last[k]
        if own == out:
            return own, out
        if last is not None and own in self.trace.values:
            rows = [*self.trace.values[own], last]
            if len({row.shape for row in rows}) > 1:
                raise CannotLoopError(f'the shape of "{state.name}" changes from step to step')
            self.tables[k] = np.stack(rows)
            return own, out
        whole = is_whole(state)
        if state.dtype not in ("float32", "bool") and (not whole or state.data is None):
            raise CannotLoopError(f'"{state.name}" of {state.dtype} is carried and depends on data')
        tensors = self.body.tensors[own], self.body.tensors[out]
        if any(one.shape != state.shape for one in tensors):
            raise CannotLoopError(f'the shape of "{state.name}" changes from step to step')
        if any(one.dtype != state.dtype for one in tensors):
            raise CannotLoopError(f'the type of "{state.name}" changes from step to step')
        if self.listed(k, own, out, mask):
            return own, out
        truth, now, shape = state.dtype == "bool", own, state.shape or ONE
        guarded = self.guarded and state.dtype == "float32"
        if guarded or not state.shape:
            now = self.new(f"{state.name}:state", shape, state.dtype)
            self.into, fed = self.begins, now
            if guarded:
                self.firsts[k] = self.new(f"{state.name}:first", shape, state.dtype)
                fed = mask.fed(now, self.firsts[k])
            self.shaped(fed, state.shape, own)
            self.into = self.ends
        if not state.shape:
            self.lone.add(k)
            out = self.shaped(out, ONE)
        return now, self.chosen(mask.runs, out, now) if whole else mask.held(out, now, truth)

    def listed(self, k: int, own: int, out: int, mask: StepMask[int]) -> bool:
        """Whether a state is a list of zeros into which each step writes a row of its own: then the row is 0
        behind the end."""
        maker, held = makers(self.body).get(out), self.states[k].data
        whole = is_whole(self.states[k])
        if maker is None or held is None or held.any() or not (whole or self.states[k].dtype == "float32"):
            return False
        if maker.name == "DYNAMIC_UPDATE_SLICE" and maker.inputs[0] == own:
            places = self.trace.values.get(maker.inputs[2], [])
        elif maker.name == "CONCATENATION" and len(maker.inputs) == 3 and not maker.options.get("Axis"):
            head = makers(self.body).get(maker.inputs[0])
            known = head is not None and head.name == "SLICE" and head.inputs[0] == own
            places = self.trace.values.get(head.inputs[2], []) if known and head is not None else []
        else:
            return False
        rows = [int(row.reshape(-1)[0]) for row in places]
        if len(set(rows)) < self.trace.steps:
            return False
        item = maker.inputs[1]
        if whole:
            item = self.chosen(mask.runs, item, self.fixed(0, self.states[k].dtype))
        else:
            item = mask.row(item, mask.flags[False], False)
        read = (maker.inputs[0], item, *maker.inputs[2:])
        self.operators.remove(maker)
        self.ends.append(replace(maker, inputs=read))
        return True

    # --- operators
    def new(self, name: str, shape: Sequence[int], dtype: str, data: Array | None = None) -> int:
        self.tensors.append(TfliteTensor(name, tuple(shape), dtype, data, None))
        return len(self.tensors) - 1

    def fixed(self, value: Any, dtype: str) -> int:
        held = np.asarray(value, dtype)
        return self.new("constant", held.shape, dtype, held)

    def op(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], dtype: str, out: int = -1,
        **options: Any,
    ) -> int:
        out = self.new(kind.lower(), shape, dtype) if out < 0 else out
        self.into.append(Operator(kind, tuple(inputs), (out,), options))
        return out

    def shaped(self, value: int, shape: tuple[int, ...], out: int = -1) -> int:
        read = (value, self.fixed(shape, "int32"))
        return self.op("RESHAPE", read, shape, self.tensors[value].dtype, out)

    # --- how a step is written
    def both(self, kinds: tuple[str, str], a: int, b: int, truth: bool) -> int:
        shape = np.broadcast_shapes(self.tensors[a].shape, self.tensors[b].shape)
        options = {} if truth else {"FusedActivationFunction": 0}
        return self.op(kinds[truth], (a, b), shape, "bool" if truth else "float32", **options)

    def product(self, a: int, b: int, truth: bool) -> int:
        return self.both(("MUL", "LOGICAL_AND"), a, b, truth)

    def sum(self, a: int, b: int, truth: bool) -> int:
        return self.both(("ADD", "LOGICAL_OR"), a, b, truth)

    def opposite(self, a: int, truth: bool) -> int:
        if truth:
            return self.op("LOGICAL_NOT", (a,), self.tensors[a].shape, "bool")
        return self.both(("SUB", ""), self.fixed([1.0], "float32"), a, False)

    def chosen(self, flag: int, a: int, b: int) -> int:
        """Of whole numbers, which no product may round."""
        return self.op("SELECT_V2", (flag, a, b), self.tensors[a].shape, self.tensors[a].dtype)

    def number(self, a: int) -> int:
        return self.op("CAST", (a,), self.tensors[a].shape, "float32")
