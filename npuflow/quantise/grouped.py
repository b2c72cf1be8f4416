"""Weights in groups with float16 scales: the type that a layer's weight gets on a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, log2

import numpy as np

from npuflow.hw.grouped import WeightGroups
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode
from npuflow.ir.forms import Arithmetic, has_form
from npuflow.ir.noise import decibels, energy
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType
from npuflow.quantise.config import Weights
from npuflow.quantise.group_ranges import with_minima, with_zeros
from npuflow.quantise.types import weight_type
from npuflow.rounders import halves

INT16 = "int16"                           # activations of more than 8 bits, as a target's products name them


def activations(bits: int) -> str:
    """The type of activations in integers of so many bits, as a target's products name it; empty: none of
    theirs."""
    return INT16 if bits > 8 else ""


def of_node(
    site: OpContext, scheme: Weights, stated: Sequence[QuantType | None], number: str, numerics: Numerics
) -> dict[int, GroupedType]:
    """The types of a float node's weights in groups with float16 scales, by input. `stated`: by input;
    `number`: the type of its activations."""
    found = dict[int, GroupedType]()
    for i, stored in enumerate(site.consts):
        if stored is not None and site.op.role(i) == "weight":
            own = of_layer(site, i, scheme, stated[i], number, numerics)
            found.update({} if own is None else {i: own})
    return found


def of_layer(
    site: OpContext, index: int, scheme: Weights, stated: QuantType | None, number: str, numerics: Numerics
) -> GroupedType | None:
    """The type of the constant weight at an input of a float node: as the model states it, or else as the
    scheme asks for groups. `number`: the type of the activations. None: the target has no such product
    for it."""
    real, axis, inner = site.consts[index], site.op.channel_axis(site, index), site.op.group_axis(site, index)
    if real is None or real.ndim != 2 or axis is None or inner is None:
        return None
    if not has_form(site.op, Arithmetic.GROUPS) or (number != INT16 and site.op.gain() != 1.0):
        return None
    if isinstance(stated, GroupedType):
        return _kept(stated, real.shape, (axis, inner), number, numerics)
    found = None if stated is not None else of_scheme(real, (axis, inner), scheme, number, numerics)
    return None if found is None else loaded(found, real.shape, number, numerics)


def has_codes(site: OpContext, index: int, scheme: Weights, number: str, numerics: Numerics) -> bool:
    """Whether the constant weight at an input of a node becomes codes; `number`: the float type that the
    node computes in (empty: integers), where it may have groups alone."""
    real, axis, inner = site.consts[index], site.op.channel_axis(site, index), site.op.group_axis(site, index)
    if not number:
        return True
    if real is None or real.ndim != 2 or axis is None or inner is None:
        return False
    return has_form(site.op, Arithmetic.GROUPS) and _groups(real, inner, scheme, number, numerics)


def _groups(real: Array, inner: int, scheme: Weights, number: str, numerics: Numerics) -> bool:
    """Whether the scheme asks for groups whose products the target has."""
    plain = scheme.group and not scheme.sub_scale_bits and scheme.per == "channel"
    if not plain or scheme.group >= real.shape[inner]:
        return False
    if number == INT16 and scheme.group in numerics.weight_groups:
        return False                      # sums that are scaled by multipliers of any numbers
    return numerics.group_bits(number, scheme.bits, scheme.group) > 0


def of_scheme(
    real: Array, axes: tuple[int, int], scheme: Weights, number: str, numerics: Numerics,
    importance: Array | None = None,
) -> QuantType | None:
    """Codes in groups of a matrix beside activations of a type, with scales that float16 has; None: the
    scheme asks for none, or the target has none. `axes`: that of the channels, and the other one;
    `importance`: of every term, what its squared errors count: groups have the ranges of least error."""
    if not _groups(real, axes[1], scheme, number, numerics):
        return None
    rows = real if axes[0] == 0 else real.T
    if scheme.offset == "minimum":
        return _with_minima(rows, axes[0], scheme, importance)
    # widths and zero points of codes are those of the product
    own = replace(numerics, weight_bits=(8,), weight_zero_point=True, per_channel_weights=True)
    found = weight_type(real, axes[0], scheme, own, axes[1])
    if importance is None or scheme.method != "minmax":
        return found.with_(scale=tuple(halves(np.array(found.scale)).tolist()))
    return of_least_error(found, rows, importance)


def of_least_error(found: QuantType, rows: Array, importance: Array) -> QuantType:
    """A type of groups with the ranges that cost least, of a matrix [channels, terms]."""
    assert found.group is not None
    symmetric = len(found.zero_point) == 1
    one = with_zeros(rows, importance, found.group, (found.lo, found.hi), symmetric)
    zeros = found.zero_point if symmetric else tuple(one.offsets.astype(int).reshape(-1).tolist())
    return found.with_(scale=tuple(one.scales.astype(float).reshape(-1).tolist()), zero_point=zeros)


def of_integers(real: Array, found: QuantType, axis: int, importance: Array) -> QuantType:
    """The same of a type beside integers, which a product scales by multipliers; groups of zeros keep their
    scale, as multipliers of one layer are not to differ by more than they must."""
    rows = real if axis == 0 else real.T
    made = of_least_error(found, rows, importance)
    silent = np.add.reduceat(rows != 0, range(0, rows.shape[1], found.group or 1), 1).reshape(-1) == 0
    return made.with_(scale=tuple(np.where(silent, found.scale, made.scale).tolist()))


def _with_minima(rows: Array, axis: int, scheme: Weights, importance: Array | None) -> GroupedType:
    """Groups from their least number to their greatest, or of least error."""
    top, size = (1 << scheme.bits) - 1, scheme.group
    if importance is None:
        wide, firsts = rows.astype(np.float64), np.arange(0, rows.shape[1], size)
        least, most = np.minimum.reduceat(wide, firsts, 1), np.maximum.reduceat(wide, firsts, 1)
        groups = WeightGroups(scheme.bits, False, size, halves((most - least) / top), minima=least)
    else:
        scales, minima = with_minima(rows, importance, size, top)
        groups = WeightGroups(scheme.bits, False, size, scales, minima=minima)
    return GroupedType.of(groups.in_halves(), axis)


def loaded(quant: QuantType, shape: tuple[int, ...], number: str, numerics: Numerics) -> GroupedType:
    """A type with scales that float16 has as the array loads it. `number`: the type of the activations."""
    assert quant.axis is not None and quant.group is not None
    bits = numerics.group_bits(number, quant.bits, quant.group)
    if isinstance(quant, GroupedType):
        groups = replace(quant.groups(shape), bits=bits)
    else:
        groups = _of_floats(quant, shape, bits)
    return GroupedType.of(groups, quant.axis, "" if number == INT16 else number)


def _kept(
    stated: GroupedType, shape: tuple[int, ...], axes: tuple[int, int], number: str, numerics: Numerics
) -> GroupedType | None:
    assert stated.group is not None
    bits = numerics.group_bits(number, stated.bits, stated.group)
    if not bits or axes != (stated.axis, stated.group_axis):
        return None
    kept = replace(stated.groups(shape), bits=bits).in_halves()
    return GroupedType.of(kept, axes[0], "" if number == INT16 else number)


def _of_floats(quant: QuantType, shape: tuple[int, ...], bits: int) -> WeightGroups:
    """Scales by groups in float16."""
    assert quant.axis is not None and quant.group is not None
    rows, zero, zeros = shape[quant.axis], quant.zero_point[0], None
    if len(quant.zero_point) > 1:
        zero, zeros = 0, np.array(quant.zero_point).reshape(rows, -1).astype(quant.dtype)
    scales = np.array(quant.scale).reshape(rows, -1)
    return WeightGroups(bits, quant.signed, quant.group, scales, zero, zeros).in_halves()


def without_groups(scheme: Weights, numerics: Numerics) -> Weights:
    """The scheme of a layer in integers: with groups where the target multiplies their sums."""
    return scheme if scheme.group in (0, *numerics.weight_groups) else scheme.with_(group=0)


def by_multipliers(stated: GroupedType, shape: tuple[int, ...], numerics: Numerics) -> QuantType | None:
    """The same codes with scales that the sums of groups are multiplied by; None where the target, or
    integers, have not what they need."""
    groups = stated.groups(shape)
    zeros = np.array([stated.zero_point[0]] if groups.zeros is None else groups.zeros, np.int64).reshape(-1)
    needs = (
        stated.group in numerics.weight_groups
        and stated.bits <= max(numerics.weight_bits, default=0)
        and groups.minima is None
        and not (groups.scales < 0).any()
        and bool((groups.scales > 0).any())
        and (numerics.weight_zero_point or not zeros.any())
        and (numerics.group_zero_points or len(zeros) == 1)
        and not numerics.power_of_two
    )
    if not needs:
        return None
    scales = groups.scales.astype(np.float64)
    scales = np.where(scales > 0, scales, scales[scales > 0].min())      # their codes are zero points
    return QuantType(
        stated.bits, stated.signed, tuple(scales.reshape(-1).tolist()), tuple(zeros.tolist()), stated.axis,
        stated.group, group_axis=stated.group_axis,
    )


def in_integers(
    site: OpContext, index: int, stated: QuantType | None, bits: int, numerics: Numerics
) -> QuantType | None:
    """The type of a weight whose codes are stated, beside activations of so many bits; None: it gets one
    of its own, as codes in groups that the target has not do."""
    if not isinstance(stated, GroupedType):
        return stated
    real = site.consts[index]
    held = of_layer(site, index, Weights(), stated, activations(bits), numerics)
    return held or (None if real is None else by_multipliers(stated, real.shape, numerics))


def lasting(stated: Mapping[str, QuantType], numerics: Numerics) -> dict[str, QuantType]:
    """Without the codes in groups that the target has for no type of activations: such weights are
    rounded anew."""
    return {name: quant for name, quant in stated.items() if _lasts(quant, numerics)}


def _lasts(quant: QuantType, numerics: Numerics) -> bool:
    """Whether the target has such codes for any type of activations."""
    if not isinstance(quant, GroupedType) or quant.group is None:
        return True
    multiplied = quant.group in numerics.weight_groups and not quant.minima
    return multiplied or any(True for _ in _tries(quant, numerics))


def scale_error(site: OpContext, stated: GroupedType) -> float:
    """By how much the multipliers of a quantised node are off the stated scales at most, relatively."""
    assert site.consts[1] is not None
    wanted = stated.groups(site.consts[1].shape).scales.astype(np.float64)
    unit = site.op.gain() * site.quant(0).scale[0] / site.out_quant.scale[0]
    have = np.ldexp(site.array("scales").astype(np.float64).T, -site.param("shift")) / unit
    off = np.abs(have - wanted)[wanted > 0] / wanted[wanted > 0]
    return float(off.max(initial=0.0))


def level(real: Array, codes: Array, quant: QuantType) -> float:
    """The signal of a weight over the noise of its codes, dB."""
    wanted = real.astype(np.float64)
    return decibels(energy(wanted), energy(decode(codes, quant) - wanted))


def kept_groups(
    real: OpContext, made: OpContext, types: Sequence[QuantType | None], numerics: Numerics
) -> Iterator[str]:
    """What notes say of a quantised node whose weight has stated codes in groups, where these, their
    scales or their minima are not quite as they were. `real`: the float node; `types`: those that are
    stated, by input."""
    for i, stated in enumerate(types):
        weight, codes = real.consts[i], made.consts[i]
        if not isinstance(stated, GroupedType) or weight is None or codes is None:
            continue
        kind = made.quant(i)
        if isinstance(kind, GroupedType):
            if not stated.groups(weight.shape).exact:
                near = f"{level(weight, codes, kind):.1f} dB of the stated weights"
                yield f"scales of groups of {stated.group} are rounded to float16, {near}"
        elif "scales" in made.params:
            off = scale_error(made, stated)
            near = "as stated" if off == 0 else f"within 2^{ceil(log2(off))} of the stated ones"
            yield f"weights in groups of {stated.group}: codes as stated, scales {near}"
        else:
            what = kind.element if isinstance(kind, FloatType) else f"{kind.bits} bits with other scales"
            text = f"become {what}, {level(weight, codes, kind):.1f} dB of the stated ones"
            tries = " or ".join(_tries(stated, numerics)) or _ELSEWHERE
            yield f"weights in groups of {stated.group} {text}; try {tries}"


_ELSEWHERE = "a target with products of such groups (target.numerics.group_products)"
_SETTINGS: Mapping[str, str] = {
    INT16: "[quantize] activations = { bits = 16 }",
    "bfloat16": '[quantize] mode = "bf16"',
    "float16": '[quantize] mode = "fp16"',
}


def _tries(stated: GroupedType, numerics: Numerics) -> Iterator[str]:
    """Settings with which the target keeps the codes."""
    assert stated.group is not None
    for number, setting in _SETTINGS.items():
        if numerics.group_bits(number, stated.bits, stated.group):
            yield setting
