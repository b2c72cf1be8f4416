"""Adds a loop that was a WHILE to the graph: borders around the operators of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends._nodes.whole_numbers import WholeRanges, WholeState, fits, settled
from npuflow.frontends.tflite.network import PLAIN, TfliteBuilder, TfliteOperatorError, element, quant_of
from npuflow.frontends.tflite.schema import Operator
from npuflow.frontends.tflite.while_loops import StepForm, StepPart
from npuflow.frontends.tflite.while_trace import is_whole
from npuflow.ir.op import OPS
from npuflow.ir.types import Span
from npuflow.ir.whole import constant_span

Convert = Callable[[TfliteBuilder, Operator, set[int]], str | None]
WhilePlace = tuple[int, int]              # an operator of the network, and the subgraph of a body in it
PLACE = "Place"                           # of a loop, in the operator's options


class WhileStaysError(Exception):
    """Why a WHILE at a place, which carries whole numbers, can be no loop of the graph."""

    def __init__(self, place: WhilePlace, reason: str) -> None:
        super().__init__(reason)
        self.place = place


def steps(builder: TfliteBuilder, operator: Operator, convert: Convert) -> None:
    """`convert`: adds an operator of the step, else says why not."""
    form: StepForm = operator.options["Form"]
    origin = builder.origin = form.name or builder.origin
    borders = _Borders(builder, builder.free(f"{origin}:loop"), form.steps, origin)
    for k, (initial, now, _, _) in enumerate(form.carried):
        whole = (0, form.steps) if now == form.counts else borders.first_span(initial)
        builder.forms[now] = {PLAIN: borders.passed("carry", initial, now, index=k, whole=whole)}
    for outer, inner in form.captured:
        builder.forms[inner] = {PLAIN: borders.captured(outer, inner)}
    for one in form.read:
        builder.forms[one.part] = {PLAIN: borders.part(one)}
    reasons = [reason for one in form.operators if (reason := convert(builder, one, set()))]
    if reasons:
        raise TfliteOperatorError("; ".join(dict.fromkeys(reasons)))
    try:
        borders.settle(form)
    except CannotLoopError as fault:
        raise WhileStaysError(operator.options[PLACE], str(fault)) from None
    rows = [(one, borders.real(one.part)) for one in form.stacked]
    lasts = [(last, borders.real(following)) for _, _, following, last in form.carried]
    builder.origin = origin
    for k, (last, value) in enumerate(lasts):
        going = {"goes_on": True} if last == form.going else {}
        borders.left("last", value, last, index=k, **going)
    for one, value in rows:
        borders.rows(one, value)


@dataclass(frozen=True)
class _Borders:
    """The borders of a loop of this name."""

    builder: TfliteBuilder
    loop: str
    steps: int
    origin: str

    def add(self, kind: str, source: str, out: str, **more: Any) -> str:
        op = OPS[f"loop{kind}"](loop=self.loop, steps=self.steps, **more)
        return self.builder.graph.add(op, (source,), (out,), (self.origin,))[0]

    def coded(self, value: str, index: int) -> str:
        """A value whose codes are those of a tensor: they are stated."""
        codes = self.builder.activation(self.builder.tensor(index))
        quant = None if codes is None else quant_of(codes, self.builder.tensor(index))
        if quant is not None:
            self.builder.state(value, quant)
        return value

    def part(self, one: StepPart) -> str:
        """What a step has of a tensor of the outside, in the shape in which it reads it."""
        builder, wanted = self.builder, self.builder.tensor(one.part)
        _, *row = builder.tensor(one.whole).shape
        size, *rest = row or [1]
        whole = self.real(one.whole)
        if row:
            rows = builder.shape([self.steps * size, *rest])
            whole = self.coded(builder.node("Reshape", [whole, rows]), one.whole)
        if tuple(row) == wanted.shape and not self.is_number(one.part):
            return self.coded(self.add("slice", whole, wanted.name, reverse=one.back), one.part)
        lone = self.add("slice", whole, builder.free(f"{wanted.name}:row"), reverse=one.back)
        self.coded(lone, one.part)
        return self.back(builder.node("Reshape", [lone, builder.shape(wanted.shape)]), one.part)

    def captured(self, outer: int, inner: int) -> str:
        """A value of the outside, in every step."""
        return self.passed("capture", outer, inner)

    def is_number(self, index: int) -> bool:
        """Whether a tensor passes borders as other numbers: truth values as 0 and 1, whole numbers as
        floats."""
        tensor = self.builder.tensor(index)
        return tensor.dtype == "bool" or is_whole(tensor)

    def passed(self, kind: str, outer: int, inner: int, **more: Any) -> str:
        """A value of the outside as the step has it."""
        name = self.builder.tensor(inner).name
        if not self.is_number(inner):
            return self.coded(self.add(kind, self.builder.value(outer), name, **more), inner)
        made = self.crossed(kind, self.real(outer), inner, f"{name}:real", **more)
        return self.back(made, inner)

    def left(self, kind: str, value: str, result: int, **more: Any) -> None:
        """A value of the step as the outside has it."""
        name = self.builder.result(result)
        if not self.is_number(result):
            self.add(kind, value, name, **more)
            return
        made = self.crossed(kind, value, result, f"{name}:real", **more)
        self.builder.node("Cast", [made], name, to=element(self.builder.tensor(result).dtype))

    def crossed(self, kind: str, value: str, like: int, name: str, **more: Any) -> str:
        """A value behind a border. A number without a dimension passes as a tensor of one element."""
        builder = self.builder
        if builder.tensor(like).shape:
            return self.add(kind, value, builder.free(name), **more)
        one = builder.node("Reshape", [value, builder.shape([1])])
        behind = self.add(kind, one, builder.free(name), **more)
        return builder.node("Reshape", [behind, builder.shape([])])

    def real(self, index: int) -> str:
        """A value as numbers, as they pass borders."""
        value = self.builder.value(index)
        return self.builder.node("Cast", [value], to=element("float32")) if self.is_number(index) else value

    def back(self, value: str, index: int) -> str:
        """Numbers as what a tensor of the step is, under its name."""
        tensor = self.builder.tensor(index)
        if not self.is_number(index):
            return self.coded(self.builder.node("Identity", [value], tensor.name), index)
        return self.builder.node("Cast", [value], tensor.name, to=element(tensor.dtype))

    # --- whole numbers
    def first_span(self, initial: int) -> Span | tuple[()]:
        """The range of numbers that are carried and begin so: of truth values, or of the first step's whole
        numbers."""
        if not is_whole(self.builder.tensor(initial)):
            return (0, 1) if self.is_number(initial) else ()
        held = self.builder.data(initial)
        assert held is not None
        return constant_span(held) or (0, 0)

    def settle(self, form: StepForm) -> None:
        """State the ranges of whole numbers that are carried; a CannotLoopError where those of others that
        leave the steps are not known, too."""
        builder, found = self.builder, list[WholeState]()
        for k, (initial, now, following, _) in enumerate(form.carried):
            first = self.first_span(initial)
            if first and is_whole(builder.tensor(now)):
                found.append(WholeState(k, builder.value(now), builder.value(following), first))
        ranges = settled(builder.graph, self.loop, self.steps, found)
        for one in form.stacked:
            if is_whole(builder.tensor(one.part)):
                span = WholeRanges(builder.graph, ranges).of(builder.value(one.part))
                if span is None or not fits(span):
                    raise CannotLoopError("it stacks whole numbers of no known range of 16 bits")

    def rows(self, one: StepPart, value: str) -> None:
        """What all steps made."""
        builder, shape = self.builder, self.builder.tensor(one.whole).shape
        name = builder.free(f"{builder.tensor(one.whole).name}:rows")
        if not builder.tensor(one.part).shape:
            value = builder.node("Reshape", [value, builder.shape([1])])
        made = self.coded(self.add("stack", value, name, reverse=one.back), one.whole)
        if self.is_number(one.whole):
            made = builder.node("Cast", [made], to=element(builder.tensor(one.whole).dtype))
        builder.node("Reshape", [made, builder.shape(shape)], builder.result(one.whole))
