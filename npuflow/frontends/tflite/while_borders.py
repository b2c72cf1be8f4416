"""Adds a loop that was a WHILE to the graph: borders around the operators of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuflow.frontends.tflite.network import PLAIN, TfliteBuilder, TfliteOperatorError, element, quant_of
from npuflow.frontends.tflite.schema import Operator
from npuflow.frontends.tflite.while_loops import StepForm, StepPart
from npuflow.ir.op import OPS

Convert = Callable[[TfliteBuilder, Operator, set[int]], str | None]


def steps(builder: TfliteBuilder, operator: Operator, convert: Convert) -> None:
    """`convert`: adds an operator of the step, else says why not."""
    form: StepForm = operator.options["Form"]
    origin = builder.origin = form.name or builder.origin
    borders = _Borders(builder, builder.free(f"{origin}:loop"), form.steps, origin)
    for k, (initial, now, _, _) in enumerate(form.carried):
        whole = (0, form.steps) if now == form.counts else (0, 1) if borders.truth(now) else ()
        builder.forms[now] = {PLAIN: borders.passed("carry", initial, now, index=k, whole=whole)}
    for outer, inner in form.captured:
        builder.forms[inner] = {PLAIN: borders.captured(outer, inner)}
    for one in form.read:
        builder.forms[one.part] = {PLAIN: borders.part(one)}
    reasons = [reason for one in form.operators if (reason := convert(builder, one, set()))]
    if reasons:
        raise TfliteOperatorError("; ".join(dict.fromkeys(reasons)))
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
        if tuple(row) == wanted.shape and wanted.dtype != "bool":
            return self.coded(self.add("slice", whole, wanted.name, reverse=one.back), one.part)
        lone = self.add("slice", whole, builder.free(f"{wanted.name}:row"), reverse=one.back)
        self.coded(lone, one.part)
        return self.back(builder.node("Reshape", [lone, builder.shape(wanted.shape)]), one.part)

    def captured(self, outer: int, inner: int) -> str:
        """A value of the outside, in every step."""
        return self.passed("capture", outer, inner)

    def truth(self, index: int) -> bool:
        return self.builder.tensor(index).dtype == "bool"

    def passed(self, kind: str, outer: int, inner: int, **more: Any) -> str:
        """A value of the outside as the step has it."""
        name = self.builder.tensor(inner).name
        if not self.truth(inner):
            return self.coded(self.add(kind, self.builder.value(outer), name, **more), inner)
        return self.back(self.add(kind, self.real(outer), self.builder.free(f"{name}:real"), **more), inner)

    def left(self, kind: str, value: str, result: int, **more: Any) -> None:
        """A value of the step as the outside has it."""
        name = self.builder.result(result)
        if not self.truth(result):
            self.add(kind, value, name, **more)
            return
        made = self.add(kind, value, self.builder.free(f"{name}:real"), **more)
        self.builder.node("Cast", [made], name, to=element("bool"))

    def real(self, index: int) -> str:
        """A value as numbers, as they pass borders."""
        value = self.builder.value(index)
        if self.builder.tensor(index).dtype != "bool":
            return value
        return self.builder.node("Cast", [value], to=element("float32"))

    def back(self, value: str, index: int) -> str:
        """Numbers as what a tensor of the step is, under its name."""
        tensor = self.builder.tensor(index)
        if tensor.dtype != "bool":
            return self.coded(self.builder.node("Identity", [value], tensor.name), index)
        return self.builder.node("Cast", [value], tensor.name, to=element("bool"))

    def rows(self, one: StepPart, value: str) -> None:
        """What all steps made."""
        builder, shape = self.builder, self.builder.tensor(one.whole).shape
        name = builder.free(f"{builder.tensor(one.whole).name}:rows")
        made = self.coded(self.add("stack", value, name, reverse=one.back), one.whole)
        if self.truth(one.whole):
            made = builder.node("Cast", [made], to=element("bool"))
        builder.node("Reshape", [made, builder.shape(shape)], builder.result(one.whole))
