"""Codes that a quantised model or a table states: kept as they are, where the target
computes with such codes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import frexp

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, GroupedType, QuantType

SHOWN = 3                                 # channels that a note names


def usable(
    stated: Mapping[str, QuantType], constants: Mapping[str, bool], numerics: Numerics,
    caches: Collection[str] = (),
) -> tuple[dict[str, QuantType], dict[str, str]]:
    """The types that the target has, by value id, and why it has not the others.
    `constants`: which values are weights; `caches`: which are those of caches, whatever their scales. Of
    weights in groups with float16 scales each layer says so."""
    kept: dict[str, QuantType] = {}
    refused: dict[str, str] = {}
    for name, quant in stated.items():
        if name in caches:
            kept[name] = quant
            continue
        found = _weight(quant, numerics) if constants.get(name) else _activation(quant, numerics)
        if isinstance(found, str):
            refused[name] = found
        else:
            kept[name] = found
    return kept, refused


def _activation(quant: QuantType, numerics: Numerics) -> QuantType | str:
    if quant.axis is not None:
        return f"{len(quant.scale)} scales for one activation; the target has one per tensor"
    common = _common(quant, numerics, max(numerics.activation_bits, default=0))
    if common:
        return common
    allowed = {True: numerics.signed_activations, False: numerics.unsigned_activations}
    for same in (quant, _turned(quant)):
        if allowed[same.signed] and (numerics.activation_zero_point or not any(same.zero_point)):
            return same
    return f"a zero point of {quant.zero_point[0]}, where the target's is 0"


def _weight(quant: QuantType, numerics: Numerics) -> QuantType | str:
    if isinstance(quant, GroupedType):
        return quant
    if quant.axis is not None and not numerics.per_channel_weights:
        return f"{len(quant.scale)} scales; the target has one per weight tensor"
    common = _common(quant, numerics, max(numerics.weight_bits, default=0))
    if common:
        return common
    for same in (quant, _turned(quant)):
        if not any(same.zero_point) or numerics.weight_zero_point:
            return same
    return f"a zero point of {next(z for z in quant.zero_point if z)}, where the target's is 0"


def _common(quant: QuantType, numerics: Numerics, widest: int) -> str:
    if quant.bits > widest:
        return f"{quant.bits} bits; the target computes with at most {widest}"
    if quant.group is not None:
        return "scales by groups of channels"
    if numerics.power_of_two and any(frexp(s)[0] != 0.5 for s in quant.scale):
        return f"a scale of {quant.scale[0]:.6g}, where the target's are powers of two"
    return ""


def _turned(quant: QuantType) -> QuantType:
    """The same real numbers on codes of the other signedness."""
    half = 1 << (quant.bits - 1)
    move = -half if not quant.signed else half
    return quant.with_(
        signed=not quant.signed, zero_point=tuple(z + move for z in quant.zero_point), narrow=False
    )


def as_narrow(quant: QuantType, real: Array, bits: int) -> QuantType:
    """The stated type of a weight with the recipe's fewer bits, where its codes are codes of these, too: a
    format's containers may be wider than what a model uses."""
    fewer = quant.with_(bits=bits)
    if bits >= quant.bits or quant.group is not None:
        return quant
    found = {*np.unique(encode(real, quant)).tolist(), *quant.zero_point}
    return fewer if fewer.lo <= min(found) and max(found) <= fewer.hi else quant


def moved(stated: Mapping[str, QuantType], graph: Graph) -> Iterator[tuple[str, str]]:
    """(weight, what changed) where the quantiser could not keep the stated scales of a weight: channels with
    next to no weights, whose bias or multiplier would not fit."""
    for name, quant in stated.items():
        value = graph.values.get(f"{name}:q")
        if (
            value is None
            or value.const is None
            or value.quant is None
            or len(value.quant.scale) != len(quant.scale)
        ):
            continue
        pairs = enumerate(zip(quant.scale, value.quant.scale, strict=True))
        raised = [f"channel {i} ({a:.3g}) by {100 * (b / a - 1):.2g} %" for i, (a, b) in pairs if a != b]
        if raised:
            more = f" and {len(raised) - SHOWN} more" if len(raised) > SHOWN else ""
            what = (
                f"{len(raised)} of {len(quant.scale)} stated scales are raised, so that biases and "
                "multipliers fit"
            )
            yield name, f"{what}: {', '.join(raised[:SHOWN])}{more}"
