"""Weights whose codes were chosen before: what a layer is quantised with in place of
its own weight and bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from npuflow.hw.numerics import dequantize
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array, GroupedType, QuantType
from npuflow.quantise.config import Weights
from npuflow.quantise.grouped import loaded
from npuflow.rounders import RoundedWeight


def suits(one: RoundedWeight | None, scheme: Weights, numerics: Numerics) -> bool:
    """Whether codes are of the width and granularity that the layer has in the end."""
    if one is None or one.quant.bits != scheme.bits:
        return False
    groups = one.quant.group, one.quant.sub_bits or 0
    if one.quant.group is not None and groups != (scheme.group, scheme.sub_scale_bits):
        return False
    return (one.quant.axis is None) == (scheme.per == "tensor" or not numerics.per_channel_weights)


def chosen(
    known: Mapping[str, RoundedWeight], value_id: str, scheme: Weights, numerics: Numerics
) -> RoundedWeight | None:
    """The codes of a weight, where there are such for its scheme."""
    found = (known.get(value_id), known.get(at_width(value_id, scheme.bits)))
    return next((one for one in found if suits(one, scheme, numerics)), None)


def all_chosen(
    known: Mapping[str, RoundedWeight], weights: Mapping[int, str], scheme: Weights, numerics: Numerics
) -> dict[int, RoundedWeight]:
    """The same of some of a node's weights, by input."""
    found = {i: chosen(known, name, scheme, numerics) for i, name in weights.items()}
    return {i: one for i, one in found.items() if one is not None}


def of_codes(one: RoundedWeight, number: str, numerics: Numerics) -> GroupedType:
    """The type of chosen codes in groups beside activations of a float type."""
    return loaded(one.quant, one.codes.shape, number, numerics)


def at_width(value_id: str, bits: int) -> str:
    """The name of a weight's codes of another width than the recipe's, beside the weights' own names."""
    return f"{value_id}@{bits}"


def real_weight(one: RoundedWeight) -> Array:
    """The numbers that the codes stand for."""
    if isinstance(one.quant, GroupedType):
        return decode(one.codes, one.quant)
    return np.asarray(dequantize(one.codes, *one.quant.spread(one.codes.shape)))


def real_bias(one: RoundedWeight, bias: Array) -> Array:
    """The bias with what it takes up."""
    return (
        bias
        if one.shift is None
        else (bias.astype(np.float64) + one.shift.reshape(bias.shape)).astype(bias.dtype)
    )


def replaced(site: OpContext, weight: int, one: RoundedWeight) -> OpContext:
    """The float node with the weight that its codes stand for, and the bias that goes with it."""
    consts = list(site.consts)
    consts[weight] = real_weight(one)
    bias = consts[weight + 1] if len(consts) > weight + 1 else None
    if one.bias and bias is not None:
        consts[weight + 1] = real_bias(one, bias)
    return replace(site, consts=tuple(consts))


def recoded(real: Array, one: RoundedWeight, quant: QuantType) -> Array:
    """The codes for the type that the layer got: those chosen, but of channels whose
    scale had to be raised."""
    same = np.equal(one.quant.spread(real.shape)[0], quant.spread(real.shape)[0])
    return np.where(same, one.codes, encode(real, quant)).astype(one.codes.dtype)
