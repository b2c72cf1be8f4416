"""Weights whose scales change from block to block (DequantizeLinear with block_size,
MatMulNBits) as floats, with their codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from npuflow.hw.elements import container
from npuflow.hw.grouped import WeightGroups
from npuflow.ir.types import Array, GroupedType, QuantType


@dataclass(frozen=True)
class Weight:
    """Floats [inputs, outputs], and the type of their codes; None: they are no codes of a type there is."""

    real: Array
    quant: QuantType | None


def spread(codes: Array, scale: Array, zero: Array | None, axis: int, block: int) -> Array | None:
    """Blocks of `block` along `axis` as floats; None where the parameters do not fit the codes."""
    rank, axis = codes.ndim, axis % codes.ndim if -codes.ndim <= axis < codes.ndim else -1
    if axis < 0 or block < 1 or scale.ndim != rank:
        return None
    wanted = tuple(-(-size // block) if d == axis else size for d, size in enumerate(codes.shape))
    if scale.shape != wanted or (zero is not None and zero.shape != wanted):
        return None
    at = np.arange(codes.shape[axis]) // block
    whole = codes.astype(np.float32)
    if zero is not None:
        whole -= np.take(zero, at, axis).astype(np.float32)
    whole *= np.take(scale, at, axis).astype(np.float32)
    return whole


def stated(
    codes: Array, scale: Array, zero: Array | None, axis: int, block: int, form: tuple[int, bool]
) -> GroupedType | None:
    """The type of a matrix of codes in blocks along `axis`, whose parameters fit it (see `spread`); None
    where there is none for it."""
    if codes.ndim != 2 or form[0] > 8:
        return None
    group_axis = axis % 2
    turn = (lambda array: array) if group_axis == 1 else np.transpose
    zeros = np.zeros(scale.shape, np.float32) if zero is None else zero.astype(np.float32)
    rows = turn(codes).astype(container(*form))
    return grouped(rows, turn(scale).astype(np.float32), turn(zeros), form, block, 1 - group_axis)


def turned(quant: GroupedType) -> GroupedType:
    """The type of the transposed matrix."""
    assert quant.axis is not None
    return replace(quant, axis=1 - quant.axis, group_axis=quant.axis)


def matmul(node: onnx.NodeProto, consts: Mapping[str, Array]) -> Weight | None:
    """The weight of a MatMulNBits; None where it is computed, or stored in a way of one processor's own."""
    given = {a.name: a.i for a in node.attribute}
    names = [*node.input, "", "", "", "", ""][:6]
    inner, outer, bits, block = (given.get(name, 0) for name in ("K", "N", "bits", "block_size"))
    stored = [consts.get(name) if name else None for name in names[1:5]]
    if any(name and held is None for name, held in zip(names[1:5], stored, strict=True)) or given.get(
        "weight_prepacked"
    ):
        return None
    packed, scale, zero, order = stored
    count = -(-inner // block) if block > 0 else 0
    if packed is None or scale is None or (bits or 4) not in (2, 4, 8) or min(inner, outer, count) < 1:
        return None
    bits = bits or 4
    if (
        packed.dtype != np.uint8
        or packed.size * 8 != outer * count * block * bits
        or scale.size != outer * count
    ):
        return None
    codes = _unpacked(packed.reshape(outer, -1), bits)[:, :inner]
    zeros = _zeros(zero, outer, count, bits)
    # onnxruntime passes over zero points with an order
    if zeros is None or (order is not None and zero is not None):
        return None
    at = np.arange(inner) // block if order is None else order.reshape(-1).astype(np.int64)
    if at.shape != (inner,) or not ((at >= 0) & (at < count)).all():
        return None
    scales = scale.reshape(outer, count).astype(np.float32)
    real = np.ascontiguousarray(((codes.astype(np.float32) - zeros[:, at]) * scales[:, at]).T)
    if count == 1:
        return Weight(real, _stated(scales, zeros, bits))
    return Weight(real, None if order is not None else grouped(codes, scales, zeros, (bits, False), block, 1))


def grouped(
    codes: Array, scales: Array, zeros: Array, form: tuple[int, bool], block: int, axis: int
) -> GroupedType | None:
    """The type of codes [outputs, inputs] with scales and zero points [outputs, blocks], `axis` that of
    the outputs in the matrix. `form`: bits, and whether codes have a sign. None where the floats that
    codes stand for do not give them back: zero points are no codes, scales no numbers of use."""
    bits, signed = form
    if not np.isfinite(scales).all() or (zeros != np.rint(zeros)).any():
        return None
    whole, alone = zeros.astype(np.int64), int(zeros.flat[0])
    held = WeightGroups(
        bits, signed, block, scales.astype(np.float32), alone if (whole == alone).all() else 0,
        None if (whole == alone).all() else whole.astype(container(bits, signed)),
    )
    low, high = held.ends
    if whole.min() < low or whole.max() > high:
        return None
    again = held.nearest(held.numbers(codes).astype(np.float32))
    told = np.repeat(scales != 0, block, 1)[:, : codes.shape[1]]      # the codes of other blocks say nothing
    return GroupedType.of(held, axis) if ((again == codes) | ~told).all() else None


def _unpacked(packed: Array, bits: int) -> Array:
    """Codes from bytes, the lowest bits first."""
    if bits == 8:
        return packed
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(len(packed), -1)


def _zeros(zero: Array | None, outer: int, count: int, bits: int) -> Array | None:
    """[outer, blocks] as floats: half of the range unless given, packed like codes or as numbers."""
    if zero is None:
        return np.full((outer, count), 1 << (bits - 1), np.float32)
    if zero.dtype != np.uint8:
        return zero.reshape(outer, count).astype(np.float32) if zero.size == outer * count else None
    if zero.size != outer * -(-count * bits // 8):
        return None
    return _unpacked(zero.reshape(outer, -1), bits)[:, :count].astype(np.float32)


def _stated(scales: Array, zeros: Array, bits: int) -> QuantType | None:
    """Codes with one scale an output channel; those around the middle of the range
    are signed ones around 0."""
    middle = np.float32(1 << (bits - 1))
    if not (scales > 0).all() or not np.isfinite(scales).all() or (zeros != np.rint(zeros)).any():
        return None
    signed = bool((zeros == middle).all())
    found = tuple(int(z) for z in (zeros - middle if signed else zeros).reshape(-1))
    return QuantType(bits, signed, tuple(scales.reshape(-1).tolist()), found, 1)
