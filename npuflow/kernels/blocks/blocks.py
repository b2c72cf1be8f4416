"""Blocks with a shared exponent in the simulator: bytes of memory as numbers and bfloat16 patterns.
Nothing here comes from hw.blocks, on purpose: conversion goes by exponent fields and shifted integers, not by
quotients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.elements import ELEMENTS

Array = npt.NDArray[Any]
Whole = npt.NDArray[np.int64]


def size_of(name: str) -> int:
    """Elements of a block."""
    shared = ELEMENTS[name].block
    assert shared is not None
    return shared.size


def problems(activations: str) -> Iterator[str]:
    """What is wrong with the type of activations beside weights in blocks."""
    if activations != "bfloat16":
        yield f"activations beside blocks are bfloat16, not {activations}"


def taken(patterns: Array, name: str) -> Array:
    """Patterns of bfloat16 as the array takes them beside weights of a block type, along the last
    dimension."""
    shared = ELEMENTS[name].block
    assert shared is not None
    return converted(patterns, name) if shared.both else patterns


def numbers(raw: Array, name: str) -> npt.NDArray[np.float64]:
    """What the bytes of blocks [.., block_bytes] stand for, element by element."""
    row = ELEMENTS[name]
    shared = row.block
    assert shared is not None
    stream = np.unpackbits(np.ascontiguousarray(raw, np.uint8), axis=-1, bitorder="little")
    exponent = raw[..., :1].astype(np.int32) - 127
    ends = 8 + (shared.size // shared.pair if shared.pair else 0)
    planes = stream[..., ends : ends + shared.size * row.bits].reshape(*raw.shape[:-1], shared.size, row.bits)
    field = planes[..., :-1].astype(np.int64) @ (1 << np.arange(row.bits - 1))
    minus = planes[..., -1].astype(np.int64)
    if shared.pair:
        exponent = exponent - np.repeat(stream[..., 8:ends], shared.pair, -1).astype(np.int32)
    if row.exponent:
        value = _magnitudes(name)[field] * (1 - 2 * minus)
    elif shared.magnitude:
        value = (field * (1 - 2 * minus)).astype(np.float64) / (1 << (row.bits - 2))
    else:
        value = (field - (minus << (row.bits - 1))).astype(np.float64) / (1 << (row.bits - 2))
    with np.errstate(invalid="ignore"):
        found = value * np.exp2(exponent.astype(np.float64))
    return np.where(raw[..., :1] == 255, np.nan, found)


def _magnitudes(name: str) -> npt.NDArray[np.float64]:
    """The float elements from +0 on, by their patterns."""
    row = ELEMENTS[name]
    bias, places = (1 << (row.exponent - 1)) - 1, 1 << row.fraction
    found = []
    for field in range(1 << row.exponent):
        lead, power = (1.0, field - bias) if field else (0.0, 1 - bias)
        found += [(lead + k / places) * 2.0**power for k in range(places)]
    if not row.finite:
        found[-places:] = [np.inf] + [np.nan] * (places - 1)
    elif row.bits == 8:
        found[-1] = np.nan
    return np.array(found)


def converted(patterns: Array, name: str) -> npt.NDArray[np.uint16]:
    """Patterns of bfloat16, in blocks along the last dimension, as those of the numbers that blocks of
    integers hold in their place: all of them are numbers of bfloat16."""
    row = ELEMENTS[name]
    shared = row.block
    assert shared is not None and not row.exponent
    count, size = patterns.shape[-1], shared.size
    rows = np.zeros((*patterns.shape[:-1], -(-count // size) * size), np.int64)
    rows[..., :count] = patterns
    rows = rows.reshape(*rows.shape[:-1], -1, size)
    field = rows >> 7 & 255
    digits = (rows & 127) + np.where(field > 0, 128, 0)
    field = np.maximum(field, 1)                       # subnormal numbers have the least exponent
    top = np.where(digits > 0, field + _lead(digits), -300)
    highest = top.max(-1, keepdims=True)
    least = 127 + shared.least
    exponent = np.maximum(highest, least)
    drop = exponent - field + (8 - row.bits) + 1       # of the digits of every element
    if shared.pair:
        pairs = top.reshape(*top.shape[:-1], -1, shared.pair).max(-1)
        micro = np.repeat((pairs > -300) & (pairs < exponent), shared.pair, -1)
        drop = drop - micro
    kept = np.minimum(_shifted(digits, drop), (1 << (row.bits - 1)) - 1)
    made = _pattern(kept, field + drop)
    made = np.where((rows >> 15 & 1 == 1) & (kept > 0), made | 0x8000, made)
    whole = (rows & 0x7F80 == 0x7F80).any(-1, keepdims=True)
    made = np.where(whole, 0x7FC0, made).reshape(*patterns.shape[:-1], -1)
    return made[..., :count].astype(np.uint16)


def _lead(digits: Whole) -> Whole:
    """The place of the highest digit, 0 for the eighth: negative in subnormal numbers."""
    found = np.full(digits.shape, -8)
    for place in range(8):
        found = np.where(digits >> place > 0, place - 7, found)
    return found


def _shifted(digits: Whole, drop: Whole) -> Whole:
    """digits / 2^drop, rounded to the nearest, ties to even."""
    down = np.minimum(drop, 12)
    half = np.where(down > 0, (np.int64(1) << down) >> 1, 0)
    whole = digits >> down
    rest = digits & ((np.int64(1) << down) - 1)
    up = (rest > half) | ((rest == half) & (half > 0) & (whole & 1 == 1))
    return whole + up


def _pattern(kept: Whole, unit: Whole) -> Whole:
    """The bfloat16 pattern of kept * 2^(unit - 134): at most eight digits."""
    lead = np.zeros_like(kept)
    for place in range(1, 8):
        lead = np.where(kept >> place > 0, place, lead)
    field = unit + lead - 7
    normal = (field << 7) | ((kept << np.clip(7 - lead, 0, 7)) & 127)
    small = kept << np.clip(unit - 1, 0, 8)            # below the least normal number
    return np.where(kept == 0, 0, np.where(field >= 1, normal, small))


def terms(windows: Array, size: int) -> Array:
    """Windows [.., channel, tap, place] as terms [.., k, place]: block of channels, tap, channel in the
    block, the last block filled up with zeros."""
    *lead, channels, taps, places = windows.shape
    short = -channels % size
    whole = np.concatenate([windows, np.zeros((*lead, short, taps, places))], -3)
    parts = whole.reshape(*lead, -1, size, taps, places)
    return np.moveaxis(parts, -3, -2).reshape(*lead, -1, places)


def matrix(held: Array, n: int, columns: bool) -> Array:
    """Blocks [.., block, element] in the order of memory as [.., k, n]."""
    *lead, _, size = held.shape
    if columns:
        return np.swapaxes(held.reshape(*lead, n, -1), -1, -2)
    return np.swapaxes(held.reshape(*lead, -1, n, size), -1, -2).reshape(*lead, -1, n)
