"""Forms: how an operator computes in an arithmetic. In integers by its own methods, else by a form."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from npuflow.base.registry import Registry
from npuflow.hw.elements import ELEMENTS, container
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Op, OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array, GroupedType

FORMS = Registry("forms", "npuflow.forms")
WIDE_SUM = 64                             # bits of a sum over weights in groups with float16 scales


class Arithmetic(StrEnum):
    """What the numbers of a node are. Its value is the key of an operator's `forms`."""

    INTEGERS = "integer"
    FLOATS = "float"
    BLOCKS = "block"                      # products of floats that share exponents
    GROUPS = "group"                      # products of integers with weights in groups of float16 scales
    FLOAT_GROUPS = "float_group"          # products of floats with such weights


class OperatorForm:
    """How nodes of some operators compute in an arithmetic: the counterparts of the operator's own methods in
    integers. Arrays are patterns of bits. A form that asks for more than the contract casts to the operator's
    class by its name in quotes: keys then hold the methods that it calls, and not the whole class."""

    def table(self, op: Any, number: str) -> int:
        """Bytes of a table that every tile needs whole in local memory, in a float type of the table of
        element types."""
        return 0

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        """Constants of a node, fixed when it is quantised: bounds, tables."""
        return {}

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        """THE specification: exact to the bit, plain numpy, slow and clear. `npuflow.hw.floats` is the
        arithmetic."""
        raise NotImplementedError

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        """Iteration space; None for operators that only move data. The default is in a class of its own
        (`OperatorSpace`): this one is in the key of every stage that asks any form for anything."""
        raise NotImplementedError(f"{type(self).__name__}.space")

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile."""
        raise NotImplementedError(f"{type(self).__name__}.lower")


class OperatorSpace(OperatorForm):
    """A form whose tiles are cut as those of the operator in integers."""

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        return site.op.space(site, numerics)


def has_form(op: Op, arithmetic: Arithmetic) -> bool:
    """Whether nodes of the operator can compute in an arithmetic beside integers."""
    return arithmetic in op.forms()


def form_in(op: Op, arithmetic: Arithmetic) -> OperatorForm:
    """The operator's form in an arithmetic that it has one in."""
    found: OperatorForm = op.forms()[arithmetic]()
    return found


def float_table(op: Op, number: str) -> int:
    """Bytes of the table that every tile needs whole in local memory, in a float type; 0 without a form."""
    return form_in(op, Arithmetic.FLOATS).table(op, number) if has_form(op, Arithmetic.FLOATS) else 0


def block_type(site: OpContext) -> str:
    """The type of a weight whose elements share exponents, or the one that the array converts both operands
    to; empty: there is neither."""
    value = site.inputs[1] if len(site.inputs) > 1 else None
    held = value.number if value is not None and value.number and ELEMENTS[value.number].block else ""
    return held or site.op.pair_type()


def groups_type(site: OpContext) -> GroupedType | None:
    """The type of a weight in groups with float16 scales, if the node has one."""
    value = site.inputs[1] if len(site.inputs) > 1 else None
    return value.quant if value is not None and isinstance(value.quant, GroupedType) else None


def arithmetic(site: OpContext) -> Arithmetic:
    """What a quantised node computes in."""
    if groups_type(site) is not None:
        return Arithmetic.FLOAT_GROUPS if site.number else Arithmetic.GROUPS
    if not site.number:
        return Arithmetic.INTEGERS
    return Arithmetic.BLOCKS if block_type(site) else Arithmetic.FLOATS


def _form(site: OpContext) -> OperatorForm | None:
    """The form that a quantised node computes by; None: the operator's own methods in integers."""
    kind = arithmetic(site)
    return None if kind == Arithmetic.INTEGERS else form_in(site.op, kind)


def prepared(site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
    """Constants of the node, fixed when it is quantised."""
    form = _form(site)
    return site.op.prepare(site, numerics) if form is None else form.prepare(site, numerics)


def computed(site: OpContext, inputs: Sequence[Array | None], numerics: Numerics) -> tuple[Array, ...]:
    """The results of the node on codes, or patterns, by its specification."""
    form = _form(site)
    return (
        site.op.integer(site, inputs, numerics) if form is None else form.compute(site, inputs, numerics)
    )


def space(site: OpContext, numerics: Numerics) -> IterationDomain | None:
    """The node's iteration space; None for operators that only move data."""
    form = _form(site)
    return site.op.space(site, numerics) if form is None else form.space(site, numerics)


def lower(site: OpContext, tile: TileView, em: Emitter) -> None:
    """Commands of the compute queues for one tile."""
    form = _form(site)
    if form is None:
        site.op.lower(site, tile, em)
    else:
        form.lower(site, tile, em)


def sum_type(site: OpContext, numerics: Numerics) -> str:
    """The type of the node's sums."""
    if site.number:
        return "float32"
    wide = WIDE_SUM if groups_type(site) is not None else max(32, site.accumulator_bits(numerics))
    return container(wide, signed=True)
