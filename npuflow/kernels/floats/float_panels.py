"""Compiled products with a matrix that is known beforehand: its columns lie in panels, one behind the other.

What the proofs of `float_sums` need of the matrix is known too: norms of columns by chunk, and how far
exponents are apart. A single row is multiplied with the patterns as they lie; for more rows a panel is made
numbers of, once for all of them. Equal matrices are laid out once a process: programs of one file, and
several bindings of one, share them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import borrowing
from npuflow.kernels.floats.float_lanes import (
    NOTHING,
    VECTORS,
    WIDE,
    copied,
    one,
    reached,
    settled,
    squared,
    to_brains,
    to_halves,
)
from npuflow.kernels.floats.float_products import packed, started
from npuflow.kernels.floats.float_sums import (
    LIMBS,
    PLACES,
    UNIT,
    extent,
    logarithm,
    settle,
    tile,
    widen,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Panels:
    """A matrix [k, n]. `table`: first column, width (a whole number of tiles) and start of every panel, whose
    rows lie one behind the other; `norms` [chunk, column]; `widest` [chunk, panel]: the range of exponents of
    the column with the largest one."""

    patterns: Array
    table: Array
    norms: Array
    widest: Array
    halves: bool

    @property
    def parts(self) -> tuple[Array, Array, Array, Array, bool]:
        """As kernels take it."""
        return self.patterns, self.table, self.norms, self.widest, self.halves


_LIVE: WeakValueDictionary[Hashable, Panels] = WeakValueDictionary()


def shared(raw: Array, about: tuple[Hashable, ...], made: Callable[[], Panels]) -> Panels:
    """The panels of a matrix by its bytes and what they stand for; those of another binding, if there are."""
    key = hashlib.blake2b(np.ascontiguousarray(raw).data).digest(), about
    found = _LIVE.get(key)
    if found is None:
        found = _LIVE[key] = made()
    return found


def table_of(k: int, n: int) -> Array:
    """See `Panels`."""
    firsts = range(0, n, PLACES)
    return np.array([(at, min(PLACES, -(-(n - at) // WIDE) * WIDE), at * k) for at in firsts], np.int64)


def empty(k: int, n: int) -> tuple[Array, Array]:
    """Patterns of zeros, and the table."""
    table = table_of(k, n)
    return np.zeros(int(table[-1, 2] + table[-1, 1] * k), np.uint16), table


def measured(patterns: Array, table: Array, k: int, chunk: int, halves: bool) -> Panels:
    """Patterns that lie in panels, with what is to be known of their columns."""
    chunks = -(-k // chunk)
    norms = np.zeros((chunks, int(table[-1, 0] + table[-1, 1])))
    widest = np.zeros((chunks, len(table)), np.int64)
    room = np.empty(PLACES), np.empty(PLACES, np.int64), np.empty(PLACES, np.int64)
    _measured(patterns, table, k, chunk, halves, room, norms, widest)
    return Panels(patterns, table, norms, widest, halves)


def of_matrix(matrix: Array, chunk: int, halves: bool) -> Panels:
    """Of patterns [k, n]."""
    k, n = matrix.shape
    patterns, table = empty(k, n)
    for first, wide, at in table.tolist():
        some = matrix[:, first : first + wide]
        patterns[at : at + k * wide].reshape(k, wide)[:, : some.shape[1]] = some
    return measured(patterns, table, k, chunk, halves)


def of_groups(
    raw: Array, k: int, chunk: int, halves: bool, codes: tuple[int, bool], offset: int, zero: int
) -> Panels:
    """Of columns of groups [n, group, byte]: a float16 scale, `offset` more bytes (0: none, 1: a zero point,
    2: a float16 minimum), and codes of (bits, whether they are signed)."""
    size = (raw.shape[2] - 2 - offset) * 8 // codes[0]
    patterns, table = empty(k, len(raw))
    room = np.empty(size), np.empty(size, np.uint16)
    _of_groups(raw, k, (*codes, offset, zero), halves, room, table, patterns)
    return measured(patterns, table, k, chunk, halves)


def product(panels: Panels, lefts: tuple[Array, Array, int, bool], *more: Any) -> None:
    """`panelled`, by panels that live as long as what is bound to them."""
    panelled(lefts, panels.parts, *more)


@borrowing
def _half(bits):  # type: ignore[no-untyped-def]
    exponent, fraction = bits >> 10 & 31, np.float64(bits & 1023)
    if exponent == 31:
        size = np.nan if fraction > 0.0 else np.inf
    elif exponent == 0:
        size = math.ldexp(fraction, -24)
    else:
        size = math.ldexp(1024.0 + fraction, exponent - 25)
    return -size if bits >> 15 else size


@borrowing
def _of_groups(raw, k, about, halves, room, table, out):  # type: ignore[no-untyped-def]
    (bits, signed, offset, zero), (numbers, patterns) = about, room
    size, top = numbers.shape[0], 1 << (bits - 1)
    low, high = (np.uint16(0xFC00), np.uint16(0x7C00)) if halves else (np.uint16(0xFF80), np.uint16(0x7F80))
    for p in range(table.shape[0]):
        for q in range(min(table[p, 1], raw.shape[0] - table[p, 0])):
            for g in range(raw.shape[1]):
                group = raw[table[p, 0] + q, g]
                scale, least, middle = _half(np.int64(group[0]) | np.int64(group[1]) << 8), 0.0, zero
                if offset == 1:
                    middle = np.int64(group[2])
                    middle -= 256 if signed and middle > 127 else 0
                elif offset == 2:
                    least, middle = _half(np.int64(group[2]) | np.int64(group[3]) << 8), 0
                for t in range(size):
                    at = t * bits
                    code = np.int64(group[2 + offset + (at >> 3)]) >> (at & 7) & (2 * top - 1)
                    code -= 2 * top if signed and code >= top else 0
                    numbers[t] = scale * np.float64(code - middle) + least
                if halves:
                    to_halves(numbers, 0, patterns, 0, size, low, high)
                else:
                    to_brains(numbers, 0, patterns, 0, size, low, high)
                for t in range(min(size, k - g * size)):
                    out[table[p, 2] + (g * size + t) * table[p, 1] + q] = patterns[t]


@borrowing
def _measured(b, table, count, chunk, halves, room, norms, widest):  # type: ignore[no-untyped-def]
    line, high, low = room
    for p in range(table.shape[0]):
        first, wide, at = table[p, 0], table[p, 1], table[p, 2]
        for c in range(norms.shape[0]):
            for q in range(wide):
                high[q], low[q] = 0, NOTHING
            for k in range(c * chunk, min(count, (c + 1) * chunk)):
                widen(b, at + k * wide, 1, wide, halves, line, 0)
                reached(high, 0, low, 0, line, 0, wide)
                squared(norms, c * norms.shape[1] + first, line, 0, wide)
            for q in range(wide):
                norms[c, first + q] = math.sqrt(norms[c, first + q])
                widest[c, p] = max(widest[c, p], extent(high[q], low[q]))


@borrowing
def panelled(  # type: ignore[no-untyped-def]
    lefts, rights, size, chunk, digits, row, weights, spreads, left, space, acc, offsets, start
):
    """acc = start + a @ b, as `float_products.matrices` has it, by the parts of `Panels`."""
    (m, count, n), (table, total) = size, (rights[1], space[5])
    bias, keep = start
    packed(lefts, 0, count, chunk, weights, spreads, left, row)
    for p in range(table.shape[0]):
        first, used = table[p, 0], min(table[p, 1], n - table[p, 0])
        for r in range(m):
            if keep or bias.shape[0] == 0:
                started(start, 0, acc, offsets[0, r] + first, used, total, r * PLACES)
            else:
                copied(total, r * PLACES, bias, first, used)
        for k in range(space[1].shape[0]):
            space[1][k] = k * table[p, 1]
        for c in range(spreads.shape[0]):
            terms = min(chunk, count - c * chunk)
            free = 53 - 2 * digits - logarithm(terms)
            if m == 1 and not rights[4]:
                thin_sums(weights[0], rights, p, c, chunk, terms, spreads[c], left[c], free, space)
            else:
                wide_sums(weights, rights, p, c, chunk, terms, spreads[c], left[c], free, space)
        for r in range(m):
            settled(acc, offsets[0, r] + first, total, r * PLACES, used)


@borrowing
def thin_sums(a, rights, p, c, chunk, terms, spreads, left, free, space):  # type: ignore[no-untyped-def]
    """One row and one chunk of a panel, whose patterns are multiplied as they lie."""
    b, table, norms, widest, _ = rights
    panel, base, high, low, _, total, raw, limbs = space
    wide, at, k, known = table[p, 1], table[p, 2] + c * chunk * table[p, 1], c * chunk, False
    scale = 4.0 * terms * UNIT if spreads[0] + widest[c, p] > free else 0.0
    for q in range(0, wide, WIDE):
        right = c * norms.shape[1] + table[p, 0] + q
        more = (left, 0, scale, norms.reshape(-1), right, total, q, 0, raw, 0, limbs, LIMBS)
        if one(a, k, b, at + q, base, 0, terms, *more):
            if not known:
                known = True
                widen(b, at, 1, terms * wide, False, panel, 0)
                ranged(panel, wide, terms, high, low)
            sure = (spreads, 0, high, low, q, free)
            settle(a, k, 1, panel, q, base, terms, total, q, 0, raw, VECTORS, limbs, sure)


@borrowing
def wide_sums(  # type: ignore[no-untyped-def]
    weights, rights, p, c, chunk, terms, spreads, left, free, space
):
    """Rows by tiles and one chunk of a panel, of whose patterns numbers are made first."""
    (a, tiles), (b, table, norms, widest, halves) = weights, rights
    panel, base, high, low, _, total, raw, limbs = space
    wide, known, right = table[p, 1], False, norms[c, table[p, 0] :]
    widen(b, table[p, 2] + c * chunk * wide, 1, terms * wide, halves, panel, 0)
    for t in range(tiles.shape[0]):
        row, rows, at = tiles[t, 0], tiles[t, 1], tiles[t, 2] + c * chunk * tiles[t, 1]
        scale = 0.0
        for r in range(row, row + rows):
            if spreads[r] + widest[c, p] > free:
                scale = 4.0 * terms * UNIT
        for q in range(0, wide, WIDE):
            to = row * PLACES + q
            if tile(a, at, rows, panel, q, base, terms, left, row, scale, right, total, to, raw, limbs):
                if not known:
                    known = True
                    ranged(panel, wide, terms, high, low)
                sure = (spreads, row, high, low, q, free)
                settle(a, at, rows, panel, q, base, terms, total, to, PLACES, raw, VECTORS, limbs, sure)


@borrowing
def ranged(panel, wide, terms, high, low):  # type: ignore[no-untyped-def]
    """The largest and the smallest exponents of columns."""
    for q in range(wide):
        high[q], low[q] = 0, NOTHING
    for k in range(terms):
        reached(high, 0, low, 0, panel, k * wide, wide)
