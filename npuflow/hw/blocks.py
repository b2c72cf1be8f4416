"""Block floating point: numbers with a shared exponent, as codes and as bytes in memory.
The simulator has arithmetic of its own, on purpose.

The code of an element holds all that it is: its own bits, above them its micro-exponent, above that the
exponent of its block. So codes are decoded one by one. In memory a block is its exponent, its
micro-exponents, its elements: bit by bit, the first in the lowest bits of the first byte; a block at the end
of the axis is padded with zeros.

A block has the exponent of its largest number, less the largest one of an element type that has exponents
of its own. Rounding is to the nearest, ties to even; what rounds beyond the largest element becomes it. The
least integer of two's complement is read but never made, so that numbers which a block holds stay as they
are. A block with an infinity or NaN is NaN as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.elements import ELEMENTS, Block, Element
from npuflow.hw.floats import least_exponent

Codes = npt.NDArray[Any]
Real = npt.NDArray[np.float64]

BIAS, NAN = 127, 255  # of exponents; the exponent of a block that is no number


def block_of(row: Element) -> Block:
    """How the elements of a block type share exponents."""
    assert row.block is not None, f"{row.name} is no block type"
    return row.block


def largest(name: str) -> int:
    """The pattern of the largest finite float element."""
    row = ELEMENTS[name]
    if row.finite:
        return (1 << (row.bits - 1)) - 1 - int(row.bits == 8)
    return (((1 << row.exponent) - 1) << row.fraction) - 1


def _top(name: str) -> int:
    """The exponent of the largest element."""
    row = ELEMENTS[name]
    return (largest(name) >> row.fraction) - 1 + least_exponent(name) if row.exponent else 0


def _order(size: Real, least: int) -> npt.NDArray[np.int64]:
    """floor(log2) of magnitudes, at least `least`."""
    return np.where(size > 0, np.maximum(np.frexp(size)[1] - 1, least), least).astype(np.int64)


def _grouped(array: npt.NDArray[Any], size: int, axis: int) -> npt.NDArray[Any]:
    """[.., block, element]: the axis last, padded with zeros."""
    rows = np.moveaxis(array, axis, -1)
    short = -rows.shape[-1] % size
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, short)])
    return padded.reshape(*rows.shape[:-1], -1, size)


def encoded(real: npt.ArrayLike, name: str, axis: int) -> Codes:
    """The codes of numbers in blocks along an axis, in an array of the same shape."""
    array, row = np.asarray(real, np.float64), ELEMENTS[name]
    shared = block_of(row)
    value = _grouped(array, shared.size, axis)
    known = np.isfinite(value).all(-1, keepdims=True)
    value = np.where(known, value, 0.0)
    order = _order(np.abs(value).max(-1, keepdims=True), -(1 << 20))
    exponent = np.clip(order - _top(name), shared.least, BIAS)
    micro = np.zeros(value.shape, np.int64)
    if shared.pair:
        pairs = np.abs(value).reshape(*value.shape[:-1], -1, shared.pair).max(-1)
        finer = (pairs > 0) & (_order(pairs, -(1 << 20)) < exponent)
        micro = np.repeat(finer, shared.pair, axis=-1).astype(np.int64)
    element = _floats(value, exponent, name) if row.exponent else _integers(value, exponent - micro, row)
    above = row.bits + int(bool(shared.pair))
    code = (exponent + BIAS) << above | micro << row.bits | element
    code = np.where(known, code, NAN << above)
    flat = code.reshape(*code.shape[:-2], -1)[..., : array.shape[axis]]
    return np.asarray(np.moveaxis(flat, -1, axis).astype(row.numpy))


def _integers(value: Real, exponent: npt.NDArray[np.int64], row: Element) -> npt.NDArray[np.int64]:
    """The bits of integers whose highest one counts 2^exponent."""
    high = row.range[1]
    whole = np.rint(np.ldexp(value, row.bits - 2 - exponent)).astype(np.int64)
    if block_of(row).magnitude:
        made: Codes = np.minimum(np.abs(whole), high) | np.where(whole < 0, high + 1, 0)
    else:
        made = np.clip(whole, -high, high) & ((1 << row.bits) - 1)
    return np.asarray(made, np.int64)


def _floats(value: Real, exponent: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    """The patterns of float elements beside an exponent."""
    row, lowest = ELEMENTS[name], least_exponent(name)
    size = np.ldexp(np.abs(value), -exponent)
    order = _order(size, lowest)
    significand = np.rint(np.ldexp(size, row.fraction - order)).astype(np.int64)
    pattern = np.minimum(((order - lowest) << row.fraction) + significand, largest(name))
    return np.asarray(pattern | np.where(np.signbit(value), 1 << (row.bits - 1), 0), np.int64)


def decoded(codes: npt.ArrayLike, name: str) -> Real:
    """What codes stand for, one by one."""
    code, row = np.asarray(codes).astype(np.int64), ELEMENTS[name]
    shared, sign = block_of(row), 1 << (row.bits - 1)
    element, rest = code & ((1 << row.bits) - 1), code >> row.bits
    micro, exponent = (rest & 1, rest >> 1) if shared.pair else (np.zeros_like(rest), rest)
    size = element & (sign - 1)
    if row.exponent:
        field, fraction = size >> row.fraction, size & ((1 << row.fraction) - 1)
        significand = fraction + np.where(field > 0, 1 << row.fraction, 0)
        shift = np.maximum(field, 1) - 1 + least_exponent(name) - row.fraction
        value = np.ldexp(significand.astype(np.float64), shift.astype(np.int32))
        value = _special(value, size, name) * np.where(element & sign, -1.0, 1.0)
    else:
        whole = np.where(element & sign, -size if shared.magnitude else size - sign, size)
        value = np.ldexp(whole.astype(np.float64), 2 - row.bits - micro.astype(np.int32))
    found = np.ldexp(value, (exponent - BIAS).astype(np.int32))
    return np.asarray(np.where(exponent == NAN, np.nan, found), np.float64)


def _special(value: Real, size: npt.NDArray[np.int64], name: str) -> Real:
    """Patterns of float elements beyond the largest: NaN, or infinity and NaN."""
    first, row = largest(name) + 1, ELEMENTS[name]
    beyond = np.where(size > first, np.nan, np.nan if row.finite else np.inf)
    return np.asarray(np.where(size >= first, beyond, value))


def rounded(real: npt.ArrayLike, name: str, axis: int) -> Real:
    """The numbers that blocks along an axis hold in the place of others."""
    return decoded(encoded(real, name, axis), name)


def packed(codes: Codes, name: str, axis: int) -> npt.NDArray[np.uint8]:
    """The bytes of every block: the axis counts blocks, and behind all axes comes one of bytes."""
    row = ELEMENTS[name]
    shared = block_of(row)
    groups = _grouped(codes.astype(np.int64), shared.size, axis)
    exponent = groups[..., :1] >> (row.bits + int(bool(shared.pair)))
    parts = [_bits(exponent, shared.exponent_bits)]
    if shared.pair:
        parts.append(groups[..., :: shared.pair] >> row.bits & 1)
    parts.append(_bits(groups & ((1 << row.bits) - 1), row.bits))
    stream = np.concatenate(parts, -1).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(np.packbits(stream, axis=-1, bitorder="little"), -2, axis))


def _bits(fields: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """[.., field] as [.., bit], the lowest bits first."""
    planes = fields[..., None] >> np.arange(width) & 1
    return planes.reshape(*fields.shape[:-1], -1)
