"""Makes loops of a WHILE of TFLite whose number of steps is known: the body once, between borders.

States that count are followed and vanish; those that pass unchanged are tensors of the outside, of which
steps may read a part each; lists into which every step writes its row are stacked; the others are carried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends.tflite.network import ROUNDED, quant_of
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.frontends.tflite.while_trace import WhileTrace, followed, is_whole, makers
from npuflow.ir.loops import FEW
from npuflow.ir.types import Array

STEPS = "WHILE_STEPS"                     # the operator that stands for a loop of the graph
SAME_ELEMENTS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
CONTROL = ("WHILE", "IF", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")


@dataclass(frozen=True)
class StepPart:
    """A step's part of a tensor of the outside; `back`: the first step has the last one."""

    whole: int
    part: int
    back: bool


@dataclass(frozen=True)
class StepForm:
    """A loop by tensors of the network. `carried`: before it, at the step, for the next one and behind it;
    `read`: parts that enter; `captured`: of the outside and at the step; `stacked`: rows that leave."""

    steps: int
    operators: tuple[Operator, ...]
    carried: tuple[tuple[int, int, int, int], ...]
    read: tuple[StepPart, ...]
    captured: tuple[tuple[int, int], ...]
    stacked: tuple[StepPart, ...]
    name: str = ""                        # of a loop with a stated maximum of steps
    counts: int = -1                      # of it: what has how many steps counted, at the step
    going: int = -1                       # what says that it would go on, behind it

    @property
    def operator(self) -> Operator:
        inputs = [one[0] for one in (*self.carried, *self.captured)] + [one.whole for one in self.read]
        outputs = [one[3] for one in self.carried] + [one.whole for one in self.stacked]
        return Operator(STEPS, tuple(inputs), tuple(outputs), {"Form": self})


def looped(
    cond: TfliteNetwork, body: TfliteNetwork, inputs: Sequence[int], tensors: list[TfliteTensor],
    new: Callable[[TfliteTensor], int], name: str = "",
) -> tuple[list[Operator], list[int]]:
    """The operators of a loop, and where its results are; a CannotLoopError with the reason. `inputs`: its
    states among `tensors`, to which `new` adds. `name`: of a loop with a stated maximum of steps, whose last
    states are those of `while_bounds`."""
    if any(operator.name in CONTROL for operator in (*cond.operators, *body.operators)):
        raise CannotLoopError("its body has bodies or variables of its own")
    trace = followed(cond, body, [tensors[i] for i in inputs])
    if trace.steps <= FEW:
        raise CannotLoopError(f"{trace.steps} steps")
    return _WhileLoop(body, trace, list(inputs), tensors, new, name).made()


@dataclass
class _WhileLoop:
    """`places`: tensors of the body in the network."""

    body: TfliteNetwork
    trace: WhileTrace
    inputs: list[int]
    tensors: list[TfliteTensor]
    new: Callable[[TfliteTensor], int]
    name: str = ""
    before: list[Operator] = field(default_factory=list)
    after: list[Operator] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    read: list[StepPart] = field(default_factory=list)
    captured: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.makers = makers(self.body)
        self.state = {own: k for k, own in enumerate(self.body.inputs)}

    def made(self) -> tuple[list[Operator], list[int]]:
        results, wanted = list(self.inputs), list[int]()
        carried, stacked = list[tuple[int, int, int, int]](), list[tuple[int, int, bool]]()
        for k, (own, out) in enumerate(zip(self.body.inputs, self.body.outputs, strict=True)):
            last = self.trace.last[k]
            self._keeps_codes(self.tensors[self.inputs[k]], self.body.tensors[own])
            if own == out:
                continue
            if last is not None and own in self.trace.values:
                results[k] = self.new(replace(self.body.tensors[out], data=last, shape=last.shape))
                continue
            item, back = self._written(own, out)
            if item >= 0:
                self._keeps_codes(self.tensors[self.inputs[k]], self.body.tensors[item])
                wanted.append(item)
                results[k] = self.new(replace(self.tensors[self.inputs[k]], data=None))
                stacked.append((item, results[k], back))
                continue
            self._carries(own, out, self.tensors[self.inputs[k]])
            self.places[own] = self.new(self.body.tensors[own])
            wanted.append(out)
            results[k] = self.new(replace(self.tensors[self.inputs[k]], data=None))
            carried.append((self.inputs[k], self.places[own], out, results[k]))
        operators = self._step(wanted)
        read = {i for one in operators for i in one.inputs} | {self.places[i] for i in wanted}
        kept = [one for one in carried if one[1] in read]
        rows = [StepPart(result, self.places[item], back) for item, result, back in stacked]
        for _, _, out, result in (one for one in carried if one not in kept):
            rows += self._behind(out, result, {own: behind for _, _, own, behind in kept})
        form = StepForm(
            self.trace.steps, tuple(operators),
            tuple((initial, now, self.places[out], behind) for initial, now, out, behind in kept),
            tuple(self.read), tuple(self.captured.items()), tuple(rows),
        )
        if self.name:
            counts, going = self.places.get(self.body.inputs[-2], -1), results[-1]
            form = replace(form, name=self.name, counts=counts, going=going)
        if not form.carried and not form.read:
            raise CannotLoopError("nothing of it depends on data")
        return [*self.before, form.operator, *self.after], results

    def _behind(self, out: int, last: int, carried: Mapping[int, int]) -> list[StepPart]:
        """What no step reads of the one before, behind the loop: the elements of a carried value, else the
        last of the rows of all steps, which leave it."""
        own = out
        while own not in carried and (made := self.makers.get(own)) and made.name in SAME_ELEMENTS:
            own = made.inputs[0]
        if own in carried:
            self.after.append(Operator("RESHAPE", (carried[own],), (last,), {}))
            return []
        tensor, steps = self.body.tensors[out], self.trace.steps
        whole = self.new(replace(tensor, shape=(steps, *tensor.shape)))
        at = TfliteTensor(f"{tensor.name}:last", (), "int32", np.array(steps - 1, np.int32), None)
        self.after.append(Operator("GATHER", (whole, self.new(at)), (last,), {"Axis": 0, "BatchDims": 0}))
        return [StepPart(whole, self.places[out], False)]

    # --- what a step computes
    def _step(self, wanted: Sequence[int]) -> list[Operator]:
        """The operators that results need, in order, in tensors of the network."""
        needed, waiting = set[int](), list(wanted)
        while waiting:
            index = waiting.pop()
            if index in needed or index < 0 or self._given(index):
                continue
            needed.add(index)
            operator = self.makers.get(index)
            if operator is None:
                raise CannotLoopError(f'nothing produces "{self.body.tensors[index].name}"')
            if not self._part(operator):
                waiting += operator.inputs
        found = []
        for operator in self.body.operators:
            made = [o for o in operator.outputs if o in needed and o not in self.places]
            if made:
                for o in operator.outputs:
                    self.places[o] = self.new(self.body.tensors[o])
                inputs = tuple(self.places[i] if i >= 0 else -1 for i in operator.inputs)
                outputs = tuple(self.places[o] for o in operator.outputs)
                found.append(replace(operator, inputs=inputs, outputs=outputs))
        for index in wanted:
            tensor = self.body.tensors[index]
            if not (is_real(tensor) or is_whole(tensor) or tensor.dtype == "bool"):
                raise CannotLoopError(f'"{tensor.name}" is handed on as {tensor.dtype}')
        return found

    def _given(self, index: int) -> bool:
        """Whether a tensor of the body is no result of its operators: a constant, or of the outside."""
        if index in self.places:
            return True
        tensor, held = self.body.tensors[index], self.trace.same(index)
        if index in self.state and self._passes(index):
            self.places[index] = self._capture(self.inputs[self.state[index]])
        elif tensor.data is not None:
            self.places[index] = self.new(tensor)
        elif held is not None:
            self.places[index] = self.new(replace(tensor, data=held, shape=held.shape))
        elif index in self.trace.values:
            self.places[index] = self._number(index)
        return index in self.places

    def _has_numbers(self) -> bool:
        """Whether it carries or stacks whole numbers that depend on data."""
        states = zip(self.body.inputs, self.body.outputs, strict=True)
        return any(
            own != out and own not in self.trace.values and is_whole(self.body.tensors[own])
            for own, out in states
        )

    def _passes(self, index: int) -> bool:
        return self.body.outputs[self.state[index]] == index

    def _capture(self, outer: int) -> int:
        """A tensor of the outside in the loop; constants need no border."""
        if self.tensors[outer].data is not None:
            return outer
        if outer not in self.captured:
            self._crosses(self.tensors[outer])
            self.captured[outer] = self.new(self.tensors[outer])
        return self.captured[outer]

    def _number(self, index: int) -> int:
        """What is known of a tensor and differs from step to step, as a part of a constant."""
        tensor, rows = self.body.tensors[index], self.trace.values[index]
        # its condition may count, too, and truth values may choose among whole numbers
        kinds = ("float32", "bool") if self.name or self._has_numbers() else ("float32",)
        if tensor.dtype not in kinds or len({row.shape for row in rows}) > 1:
            raise CannotLoopError("its body asks for the number of its step")
        whole = self.new(replace(tensor, data=np.stack(rows), shape=(len(rows), *rows[0].shape)))
        return self._enters(whole, replace(tensor, shape=rows[0].shape), range(self.trace.steps))

    # --- rows that steps read
    def _part(self, operator: Operator) -> bool:
        """Whether an operator gives a step its part of a tensor of the outside, which is then its place."""
        if operator.name not in ("GATHER", "SLICE", "STRIDED_SLICE") or len(operator.outputs) != 1:
            return False
        source, at = operator.inputs[:2]
        outer = self._outside(source)
        rows = self.trace.values.get(at)
        if outer < 0 or rows is None or self.trace.same(at) is not None:
            return False
        places = _gathered(operator, rows) if operator.name == "GATHER" else self._cut(operator, rows)
        if places is None:
            return False
        (out,) = operator.outputs
        self.places[out] = self._enters(outer, self.body.tensors[out], places)
        return True

    def _outside(self, index: int) -> int:
        """A tensor of the body that no step changes, in the network; -1: it is none."""
        if index in self.state and self._passes(index):
            return self.inputs[self.state[index]]
        return self.new(self.body.tensors[index]) if self.body.tensors[index].data is not None else -1

    def _cut(self, operator: Operator, rows: Sequence[Array]) -> list[int] | None:
        """The rows that a SLICE or STRIDED_SLICE of one row takes, step by step."""
        begins = [row.reshape(-1) for row in rows]
        shape = self.body.tensors[operator.inputs[0]].shape
        result = self.body.tensors[operator.outputs[0]]
        options = operator.options
        if operator.name == "STRIDED_SLICE":
            masks = options["EllipsisMask"] or options["NewAxisMask"] or options["BeginMask"] & 1
            if masks or not options["ShrinkAxisMask"] & 1 or options["ShrinkAxisMask"] > 1:
                return None
        if any(begin[1:].any() for begin in begins):
            return None
        # what is left is one whole row
        one = int(np.prod(shape[1:])) == int(np.prod(result.shape)) and len(begins[0]) >= 1
        return [int(begin[0]) % shape[0] for begin in begins] if one else None

    def _enters(self, outer: int, like: TfliteTensor, places: Sequence[int]) -> int:
        """A step's row of a tensor; rows in another order than they lie are gathered first."""
        tensor, steps = self.tensors[outer], self.trace.steps
        self._crosses(tensor)
        order = list(places)
        back = order == list(range(steps))[::-1] and steps > 1
        if tensor.shape[0] != steps or not (back or order == list(range(steps))):
            if not 0 <= min(order) <= max(order) < tensor.shape[0]:
                raise CannotLoopError(f'a step reads row {max(order)} of "{tensor.name}"')
            index = TfliteTensor(f"{tensor.name}:rows", (steps,), "int32", np.array(order, np.int32), None)
            taken = self.new(replace(tensor, shape=(steps, *tensor.shape[1:]), data=None))
            self.before.append(
                Operator("GATHER", (outer, self.new(index)), (taken,), {"Axis": 0, "BatchDims": 0})
            )
            outer, back = taken, False
        part = self.new(replace(like, data=None))
        self.read.append(StepPart(outer, part, back))
        return part

    # --- rows that steps write
    def _written(self, own: int, out: int) -> tuple[int, bool]:
        """What every step writes into a list as its row, and whether the first step writes the last one;
        (-1, False): the state is no such list."""
        operator = self.makers.get(out)
        if operator is None or not self.body.tensors[own].shape:
            return -1, False
        if operator.name == "DYNAMIC_UPDATE_SLICE" and operator.inputs[0] == own:
            item, at = operator.inputs[1], self.trace.values.get(operator.inputs[2])
            readers = {out}
            places = [int(row.reshape(-1)[0]) for row in at] if at is not None else []
            if at is None or any(row.reshape(-1)[1:].any() for row in at):
                return -1, False
        else:
            item, readers, places = self._joined(own, operator)
        others = [o for o in self.body.operators if own in o.inputs and o.outputs[0] not in readers]
        length, rows = self.tensors[self.inputs[self.state[own]]].shape[0], range(self.trace.steps)
        if item < 0 or others or length != len(rows) or not self.body.tensors[item].shape:
            return -1, False
        if places not in (list(rows), list(rows)[::-1]):
            return -1, False
        return item, places != list(rows)

    def _joined(self, own: int, operator: Operator) -> tuple[int, set[int], list[int]]:
        """A row between what lies before and behind it in a list: the row, what reads the list, and where it
        is, step by step."""
        none = (-1, set[int](), list[int]())
        if operator.name != "CONCATENATION" or operator.options.get("Axis") or len(operator.inputs) != 3:
            return none
        first, item, last = operator.inputs
        ends = [self.makers.get(i) for i in (first, last)]
        if any(one is None or one.name != "SLICE" or one.inputs[0] != own for one in ends):
            return none
        head, tail = (one for one in ends if one is not None)
        known = [self.trace.values.get(i) for i in (head.inputs[2], tail.inputs[1])]
        if self._constant(head.inputs[1]) is None or any(rows is None for rows in known):
            return none
        before, behind = ([int(row.reshape(-1)[0]) for row in rows or ()] for rows in known)
        start = self._constant(head.inputs[1])
        if (start is not None and start.any()) or [n + 1 for n in before] != behind:
            return none
        return item, {first, last}, before

    def _constant(self, index: int) -> Array | None:
        held = self.body.tensors[index].data
        return held if held is not None else self.trace.same(index)

    # --- what a loop of the graph cannot hold
    def _carries(self, own: int, out: int, initial: TfliteTensor) -> None:
        tensors = initial, self.body.tensors[own], self.body.tensors[out]
        if not is_whole(initial):
            self._crosses(initial)
        elif initial.data is None:
            raise CannotLoopError(f'"{initial.name}" of {initial.dtype} goes through its steps')
        if len({tensor.shape for tensor in tensors}) > 1 or tensors[2].data is not None:
            raise CannotLoopError(f'the type of "{initial.name}" changes from step to step')
        self._keeps_codes(initial, tensors[2])

    def _keeps_codes(self, first: TfliteTensor, *others: TfliteTensor) -> None:
        """Values that are one in a loop have one type."""
        if any((one.dtype, one.codes) != (first.dtype, first.codes) for one in others):
            raise CannotLoopError(f'"{first.name}" has other codes from step to step')

    def _crosses(self, tensor: TfliteTensor) -> None:
        if not (is_real(tensor) or tensor.dtype == "bool") or not tensor.shape:
            raise CannotLoopError(f'"{tensor.name}" of {tensor.dtype} goes through its steps')


def is_real(tensor: TfliteTensor) -> bool:
    """Whether a tensor holds real numbers, as floats or as codes that networks compute with."""
    if tensor.dtype == "float32":
        return True
    return tensor.dtype in ROUNDED and tensor.codes is not None and quant_of(tensor.codes, tensor) is not None


def _gathered(operator: Operator, rows: Sequence[Array]) -> list[int] | None:
    """The rows that a GATHER takes, step by step."""
    options = operator.options
    if options.get("Axis", 0) or options.get("BatchDims") or any(row.size != 1 for row in rows):
        return None
    return [int(row.reshape(-1)[0]) for row in rows]
