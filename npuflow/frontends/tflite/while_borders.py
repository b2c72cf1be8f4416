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
    origin = builder.origin
    borders = _Borders(builder, builder.free(f"{origin}:loop"), form.steps, origin)
    for k, (initial, now, _, _) in enumerate(form.carried):
        builder.forms[now] = {PLAIN: borders.carried(k, initial, now)}
    for outer, inner in form.captured:
        builder.forms[inner] = {PLAIN: borders.captured(outer, inner)}
    for one in form.read:
        builder.forms[one.part] = {PLAIN: borders.part(one)}
    reasons = [reason for one in form.operators if (reason := convert(builder, one, set()))]
    if reasons:
        raise TfliteOperatorError("; ".join(dict.fromkeys(reasons)))
    rows = [(one, builder.value(one.part)) for one in form.stacked]
    lasts = [(last, builder.value(following)) for _, _, following, last in form.carried]
    builder.origin = origin
    for k, (last, value) in enumerate(lasts):
        borders.add("last", value, builder.result(last), index=k)
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

    def carried(self, index: int, initial: int, now: int) -> str:
        name = self.add("carry", self.builder.value(initial), self.builder.tensor(now).name, index=index)
        return self.coded(name, now)

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
        name = self.builder.tensor(inner).name
        if self.builder.tensor(inner).dtype != "bool":
            return self.coded(self.add("capture", self.builder.value(outer), name), inner)
        return self.back(self.add("capture", self.real(outer), self.builder.free(f"{name}:real")), inner)

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
        builder.node("Reshape", [made, builder.shape(shape)], builder.result(one.whole))
