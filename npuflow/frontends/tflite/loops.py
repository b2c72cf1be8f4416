"""Writes out WHILE and IF of TFLite where what decides them is known.
Each step is a copy of the body. A WHILE may become a loop of the graph instead (see `while_loops.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends._nodes.masked import BOUND, END, StepBounds
from npuflow.frontends.tflite.known import known
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.frontends.tflite.while_borders import PLACE, WhilePlace
from npuflow.frontends.tflite.while_bounds import COUNT, bounded
from npuflow.frontends.tflite.while_loops import STEPS, looped
from npuflow.frontends.tflite.while_trace import is_whole
from npuflow.ir.types import Array

BY_DATA = f"its condition {END}"
MOST = 8192  # operators that loops may become
LONGEST = 65_536  # operators that may be written out while recurrent layers are looked for
CONTROL = ("WHILE", "IF")
# of which a recurrent layer's results and inputs are made, once it is one operator
MOVES = (
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CONCATENATION", "PACK", "GATHER", "SLICE", "STRIDED_SLICE", "CAST",
)


class _LoopStaysError(Exception):
    """Why a loop or branch cannot be written out."""


def written(
    network: TfliteNetwork, most: int = MOST, looped: Collection[int] = (), bounds: StepBounds | None = None,
    stays: Mapping[WhilePlace, str] = MappingProxyType({}),
) -> tuple[TfliteNetwork, dict[int, int]]:
    """The network without loops and branches. Those that depend on data, and loops of more than `most`
    operators, stay, with the reason in their options. `looped`: operators by place that become loops of the
    graph, where they can. `bounds`: steps of loops whose end depends on data. `stays`: WHILEs that carry
    whole numbers and can be no loop of the graph, with the reason. Beside it: for each tensor that a WHILE
    was written out to, its place."""
    owner: dict[int, int] = {}
    if not any(operator.name in CONTROL for operator in network.operators):
        return network, owner
    writer = _LoopWriter(list(network.bodies), list(network.tensors), bounds or StepBounds(), stays, most)
    places = {i: i for i in range(len(network.tensors))}
    for at, operator in enumerate(network.operators):
        before = len(writer.operators)
        writer.at, writer.loops = at, at in looped
        writer.add([operator], places, network)
        if operator.name == "WHILE":
            owner.update((o, at) for one in writer.operators[before:] for o in one.outputs)
    for index in network.outputs:
        if places[index] != index:
            writer.operators.append(Operator("RESHAPE", (writer.whole(places[index]),), (index,), {}))
    made = TfliteNetwork(tuple(writer.tensors), tuple(writer.operators), network.inputs, network.outputs)
    return made, owner


def left(network: TfliteNetwork, owner: Mapping[int, int]) -> frozenset[int]:
    """The WHILEs of which more is left than moves: no operator stands for all of their steps."""
    rest = (o for o in network.operators if o.outputs and o.name not in MOVES)
    return frozenset(owner[o.outputs[0]] for o in rest if o.outputs[0] in owner)


@dataclass
class _LoopWriter:
    """`rows`: tensors that are others in a row along the first axis. They are joined where they are read;
    `joint`: those that were."""

    bodies: list[TfliteNetwork]
    tensors: list[TfliteTensor]
    bounds: StepBounds
    stays: Mapping[WhilePlace, str]
    most: int = MOST
    at: int = 0                               # the operator of the network that is being written
    operators: list[Operator] = field(default_factory=list)
    rows: dict[int, list[int]] = field(default_factory=dict)
    joint: set[int] = field(default_factory=set)
    loops: bool = False                       # a WHILE becomes a loop, if it can

    def add(self, operators: Sequence[Operator], places: dict[int, int], graph: TfliteNetwork) -> None:
        """Adds operators of a subgraph. `places`: where its tensors are; absent ones are new."""
        for operator in operators:
            inputs = tuple(self.place(i, places, graph) for i in operator.inputs)
            if operator.name in CONTROL:
                try:
                    found = self.control(operator, inputs, graph)
                except _LoopStaysError as fault:
                    outputs = tuple(self.place(i, places, graph) for i in operator.outputs)
                    said = {**operator.options, "Reason": str(fault)}
                    self.operators.append(replace(operator, inputs=inputs, outputs=outputs, options=said))
                else:
                    places.update(zip(operator.outputs, found, strict=True))
                continue
            made = self.shortened(operator, inputs, graph)
            if made is not None:
                places[operator.outputs[0]] = made
                continue
            outputs = tuple(self.place(i, places, graph) for i in operator.outputs)
            read = tuple(self.whole(i) for i in inputs)
            self.operators.append(replace(operator, inputs=read, outputs=outputs))

    def place(self, index: int, places: dict[int, int], graph: TfliteNetwork) -> int:
        if index >= 0 and index not in places:
            places[index] = self.new(graph.tensors[index])
        return places[index] if index >= 0 else -1

    def new(self, tensor: TfliteTensor) -> int:
        number = len(self.tensors)
        self.tensors.append(replace(tensor, name=f"{tensor.name}#{number}"))
        return number

    def control(self, operator: Operator, inputs: tuple[int, ...], graph: TfliteNetwork) -> list[int]:
        """Adds what a loop or branch does; where its results are."""
        mark, joint = len(self.operators), set(self.joint)
        try:
            if operator.name == "IF":
                branch = "Then" if self.decided(inputs[0]) else "Else"
                return self.call(operator.options[f"{branch}SubgraphIndex"], inputs[1:])
            cond, body = (operator.options[f"{part}SubgraphIndex"] for part in ("Cond", "Body"))
            return self.repeated(cond, body, list(inputs), (self.at, body))
        except _LoopStaysError as fault:
            del self.operators[mark:]
            if operator.name == "IF" or str(fault) != BY_DATA:
                raise
            self.joint = joint
            name = graph.tensors[operator.outputs[0]].name
            steps = self.bounds.of(name)
            if steps is None:
                raise _LoopStaysError(f"{fault}; {BOUND}") from None
            return self.bounded(cond, body, list(inputs), steps, name)

    def repeated(
        self, cond: int, body: int, states: list[int], place: WhilePlace, name: str = ""
    ) -> list[int]:
        """Adds a loop, or its steps one after the other. `name`: of a loop with a stated maximum."""
        mark, steps = len(self.operators), 0
        if self.loops and place not in self.stays:
            found = self.looped(self.bodies[cond], self.bodies[body], states, place, name)
            if found is not None:
                return found
        while self.decided(self.call(cond, states)[0]):
            states, steps = self.call(body, states), steps + 1
            if max(len(self.operators) - mark, steps) > self.most:
                raise _LoopStaysError(f"written out it has more than {self.most} operators")
        return states

    def bounded(self, cond: int, body: int, states: list[int], most: int, name: str) -> list[int]:
        """Adds a loop whose end depends on data, with a stated maximum of steps."""
        mark, place = len(self.operators), (self.at, body)
        if place in self.stays:               # written out it would be the host's in each step
            raise _LoopStaysError(self.stays[place])
        try:
            one = bounded(self.bodies[cond], self.bodies[body], [self.tensors[i] for i in states], most)
        except CannotLoopError as fault:
            raise _LoopStaysError(str(fault)) from None
        runs = self.made("RESHAPE", one.mask, self.call(cond, states)[0])
        given = [self.element(i) if k in one.lone else i for k, i in enumerate(states)]
        given += [*(given[k] for k in one.firsts), *(self.new(tensor) for tensor in one.initial), runs]
        self.bodies += [one.cond, one.body]
        try:
            found = self.repeated(len(self.bodies) - 2, len(self.bodies) - 1, given, place, name)
        except _LoopStaysError:
            del self.operators[mark:]
            raise
        results = found[: len(states)]
        for k in one.lone:
            results[k] = self.made("RESHAPE", replace(self.tensors[states[k]], data=None), found[k])
        if one.tables:
            like = TfliteTensor("count", (), "float32", None, None)
            lone = self.made("RESHAPE", like, found[len(states) + len(one.firsts) + COUNT])
            places = self.made("CAST", replace(like, dtype="int32"), lone)
        for k, table in one.tables.items():
            kind = replace(self.tensors[states[k]], data=None)
            rows = self.constant(kind, table)
            results[k] = self.made("GATHER", kind, rows, places, Axis=0, BatchDims=0)
        return results

    def element(self, index: int) -> int:
        """A number as a tensor of one element; of whole numbers a loop has to know the first one."""
        tensor = self.tensors[index]
        if is_whole(tensor) and tensor.data is not None:
            return self.constant(tensor, tensor.data.reshape(1))
        return self.made("RESHAPE", replace(tensor, shape=(1,), data=None), index)

    def made(self, kind: str, like: TfliteTensor, *inputs: int, **options: Any) -> int:
        """Adds an operator; where its result is."""
        result = self.new(like)
        self.operators.append(Operator(kind, tuple(self.whole(i) for i in inputs), (result,), options))
        return result

    def looped(
        self, cond: TfliteNetwork, body: TfliteNetwork, states: list[int], place: WhilePlace, name: str
    ) -> list[int] | None:
        """Adds a loop of the graph; where its results are. None where it can be none."""
        count = len(self.tensors)
        try:
            made, found = looped(cond, body, states, self.tensors, self.new, name)
        except CannotLoopError:
            del self.tensors[count:]
            return None
        for one in made:
            said = {**one.options, PLACE: place} if one.name == STEPS else one.options
            self.operators.append(
                replace(one, inputs=tuple(self.whole(i) for i in one.inputs), options=said)
            )
        return found

    def call(self, number: int, inputs: Sequence[int]) -> list[int]:
        graph = self.bodies[number]
        places = dict(zip(graph.inputs, inputs, strict=True))
        self.add(graph.operators, places, graph)
        return [self.place(i, places, graph) for i in graph.outputs]

    def decided(self, index: int) -> bool:
        held = self.tensors[index].data
        if held is None:
            raise _LoopStaysError(BY_DATA)
        return bool(held.reshape(-1)[0])

    def shortened(self, operator: Operator, inputs: tuple[int, ...], graph: TfliteNetwork) -> int | None:
        """The tensor that an operator gives, where it is a constant, or rows of others."""
        if not operator.outputs:
            return None
        result = graph.tensors[operator.outputs[0]]
        held = [self.tensors[i].data if i >= 0 else None for i in inputs]
        if all(one is not None for one in held):
            value = known(operator, [one for one in held if one is not None], result)
            if value is not None:
                return self.constant(result, value)
        if operator.name == "SLICE" and held[1] is not None and held[2] is not None:
            return self.cut(inputs[0], held[1].reshape(-1).tolist(), held[2].reshape(-1).tolist(), result)
        if (
            operator.name == "CONCATENATION"
            and not operator.options.get("Axis")
            and any(i in self.rows or 0 in self.tensors[i].shape for i in inputs)
        ):
            parts = [part for i in inputs for part in self.rows.get(i, [i]) if self.length(part)]
            return self.joined(result, parts)
        if operator.name == "GATHER" and inputs[0] in self.rows and held[1] is not None:
            return self.picked(self.rows[inputs[0]], held[1], result)
        return None

    def constant(self, like: TfliteTensor, value: Array) -> int:
        return self.new(replace(like, data=value, shape=value.shape))

    def length(self, index: int) -> int:
        shape = self.tensors[index].shape
        return shape[0] if shape else 0

    def cut(self, source: int, begin: list[int], size: list[int], result: TfliteTensor) -> int | None:
        """Some rows of a tensor that is made of rows; those of its constant parts are cut."""
        shape = self.tensors[source].shape
        if (
            source not in self.rows
            or any(begin[1:])
            or any(s not in (-1, n) for s, n in zip(size[1:], shape[1:], strict=True))
        ):
            return None
        first, last = begin[0], shape[0] if size[0] < 0 else begin[0] + size[0]
        parts, at = [], 0
        for part in self.rows[source]:
            low, high = max(first - at, 0), min(last - at, self.length(part))
            at += self.length(part)
            held = self.tensors[part].data
            if low == 0 and high == self.length(part):
                parts.append(part)
            elif low < high:
                if held is None:
                    return None
                parts.append(self.constant(self.tensors[part], held[low:high]))
        return self.joined(result, parts, shape[1:])

    def joined(self, like: TfliteTensor, parts: list[int], rest: tuple[int, ...] = ()) -> int:
        rest = self.tensors[parts[0]].shape[1:] if parts else rest
        shape = (sum(self.length(part) for part in parts), *rest)
        made = self.new(replace(like, shape=shape))
        self.rows[made] = parts
        return made

    def picked(self, parts: list[int], places: Array, result: TfliteTensor) -> int | None:
        """One row of a tensor that is made of single rows."""
        if places.size != 1 or any(self.length(part) != 1 for part in parts):
            return None
        made = self.new(result)
        self.operators.append(Operator("RESHAPE", (parts[int(places.reshape(-1)[0])],), (made,), {}))
        return made

    def whole(self, index: int) -> int:
        """The tensor itself; one made of rows is joined, once."""
        if index in self.rows and index not in self.joint:
            self.joint.add(index)
            parts = tuple(self.whole(part) for part in self.rows[index])
            self.operators.append(
                Operator("CONCATENATION", parts, (index,), {"Axis": 0, "FusedActivationFunction": 0})
            )
        return index
