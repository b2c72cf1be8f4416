"""Compiled loops over raw activations: extrema, and counts keyed by the leading bits of each float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

MANTISSA = 9                      # mantissa bits of a key: cells are 2^-9 of an octave wide
SHIFT = 23 - MANTISSA
KEYS = 1 << (32 - SHIFT)          # sign, exponent, leading mantissa bits
SIGN = KEYS >> 1                  # key bit of the sign
SPECIAL = 0x7F800000             # bits of infinity; larger magnitudes are NaN
LINE, GROUP = 64, 8               # keys of a line of encoded cells, and of the groups that it is made of
SMALL = 1 << 15                   # values of a tensor below which one table of counters does
_BLOCK = 4096                     # stays in the first-level cache between the two passes over it

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(function: F) -> F:
    """Machine code, kept on disk, that releases the interpreter lock."""
    return cast(F, njit(cache=True, nogil=True)(function))


@_compiled
def _peaks(bits: Any) -> Any:
    """Of one block: greatest pattern as signed and as unsigned integer, and least of (2 * pattern - 2).

    Only integer reductions, which the compiler turns into vector instructions (over a slice from its
    start: an offset would bring checks of the index into the loop). The greatest signed pattern is the
    greatest value if any is positive, the greatest unsigned one the least value if any is negative; the
    third is the least non-zero magnitude.
    """
    top, bottom, least = np.int32(-0x80000000), np.uint32(0), np.uint32(0xFFFFFFFF)
    for i in range(bits.shape[0]):
        u = bits[i]
        top, bottom = max(top, np.int32(u)), max(bottom, u)
        least = min(least, np.uint32((u << np.uint32(1)) - np.uint32(2)))
    return top, bottom, least


@_compiled
def _survey(bits: Any, pairs: Any, peaks: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """One tensor of float32 patterns (uint32; `pairs`: the same as uint64, without an odd last one). The
    tables gain its cells: four tables [KEYS], since neighbours often share a key and two additions to one
    place would wait for each other; the zeros of a dead channel or of a plain background lie in rows, and are
    counted eight at a time. `peaks` gets the greatest positive, greatest negative and least non-zero
    magnitude as patterns without sign (-1 where there is none).
    """
    size = bits.shape[0]
    one, low = np.uint32(1), np.uint64(0xFFFFFFFF)
    near, far = np.uint64(SHIFT), np.uint64(SHIFT + 32)
    top, bottom, least, zeros = np.int64(-0x80000000), np.int64(0), np.int64(0xFFFFFFFF), 0
    for start in range(0, size, _BLOCK):
        x, y, z = _peaks(bits[start : start + _BLOCK])
        top, bottom, least = max(top, np.int64(x)), max(bottom, np.int64(y)), min(least, np.int64(z))
        part = pairs[start >> 1 : (start + _BLOCK) >> 1]
        whole = part.shape[0] & ~3
        for i in range(0, whole, 4):
            u, v, w, q = part[i], part[i + 1], part[i + 2], part[i + 3]
            if not u | v | w | q:
                zeros += 8
                continue
            a[(u & low) >> near] += one
            b[u >> far] += one
            c[(v & low) >> near] += one
            d[v >> far] += one
            a[(w & low) >> near] += one
            b[w >> far] += one
            c[(q & low) >> near] += one
            d[q >> far] += one
        for i in range(whole, part.shape[0]):
            a[(part[i] & low) >> near] += one
            b[part[i] >> far] += one
    a[0] += np.uint32(zeros)
    if size & 1:
        c[bits[size - 1] >> np.uint32(SHIFT)] += one
    peaks[0] = top if top > 0 else -1
    peaks[1] = bottom - 0x80000000 if bottom > 0x80000000 else -1
    peaks[2] = (least >> 1) + 1 if least < 0xFFFFFFFE else -1


@_compiled
def _survey_few(bits: Any, peaks: Any, a: Any) -> None:
    """The same of a small tensor with one table: to gather four would take longer than
    neighbours wait for each other."""
    top, bottom, least = _peaks(bits)
    for i in range(bits.shape[0]):
        a[bits[i] >> np.uint32(SHIFT)] += np.uint32(1)
    high, low, small = np.int64(top), np.int64(bottom), np.int64(least)
    peaks[0] = high if high > 0 else -1
    peaks[1] = low - 0x80000000 if low > 0x80000000 else -1
    peaks[2] = (small >> 1) + 1 if small < 0xFFFFFFFE else -1


@_compiled
def _gathered(first: int, last: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """Everything of [first, last] in the first table, the others cleared."""
    w, x, y, z = a[first : last + 1], b[first : last + 1], c[first : last + 1], d[first : last + 1]
    for i in range(w.shape[0]):
        w[i] += x[i] + y[i] + z[i]
    x[:] = 0
    y[:] = 0
    z[:] = 0


@_compiled
def _specials(bits: Any, whole: Any, peaks: Any) -> None:
    """NaN, +inf and -inf counted into `whole`, and `peaks` of what is finite: the slow way,
    for tensors that have them."""
    peaks[0], peaks[1], peaks[2] = -1, -1, -1
    for i in range(bits.shape[0]):
        mag = np.int64(bits[i] & np.uint32(0x7FFFFFFF))
        negative = bits[i] > np.uint32(0x7FFFFFFF)
        if mag > SPECIAL:
            whole[0] += 1
        elif mag == SPECIAL:
            whole[2 if negative else 1] += 1
        elif mag > 0:
            peaks[1 if negative else 0] = max(peaks[1 if negative else 0], mag)
            peaks[2] = mag if peaks[2] < 0 else min(peaks[2], mag)


@_compiled
def _descend(counts: Any, first: Any, last: Any, low: Any, limits: Any, out: Any, sign: Any) -> None:
    """Patterns of the values that at most limits[j] (falling) greater ones precede, walking keys down from
    `first` on the side of `sign`, past zero, and up to `last` on the other; none is occupied between zero and
    `low`. Values stand at the greater end of their cell.
    """
    other = SIGN - sign
    held, j, k = np.int64(0), len(limits) - 1, np.int64(first)
    while k >= -last:
        if k > 0:
            n = np.int64(counts[sign + k])
        elif k == 0:
            n = np.int64(counts[0]) + np.int64(counts[SIGN])
        else:
            n = np.int64(counts[other - k])
        held += n
        while j >= 0 and held > limits[j]:
            if k > 0:
                out[j] = (np.int64(sign) << SHIFT) + ((np.int64(k) + 1) << SHIFT) - 1
            else:
                out[j] = (np.int64(other) << SHIFT) + (np.int64(-k) << SHIFT)
            j -= 1
        if j < 0:
            return
        k -= 1
        if 0 < k < low:
            k = np.int64(0)
        elif -low < k < 0:
            k = np.int64(-low)


@_compiled
def _tails(counts: Any, top: int, bottom: int, low: int, limits: Any, out: Any) -> None:
    """out[0]: of the least values, out[1]: of the greatest, those that `limits` others
    lie beyond (see `_descend`)."""
    up = (top >> SHIFT) if top >= 0 else 0
    down = (bottom >> SHIFT) if bottom >= 0 else 0
    _descend(counts, down, up, low, limits, out[0], SIGN)
    _descend(counts, up, down, low, limits, out[1], 0)


@_compiled
def _varint(value: Any, out: Any, at: int) -> int:
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@_compiled
def _emit(counts: Any, first: int, last: int, previous: int, out: Any, at: int) -> tuple[int, int]:
    """Append the occupied lines (LINE keys from a multiple of LINE on) from `first` to `last` and clear them;
    returns the end and the last line.

    A line is a varint of the lines passed over since the one before, a mask of its groups that are not
    all zero, and of each of these GROUP bytes: counts up to 254, or 255 where the rest of the count
    follows the group as a varint. Nothing hangs on what a single key holds but that rest, so that all is
    written and read without branches.
    """
    for line in range(first, last + 1):
        part = counts[line * LINE : (line + 1) * LINE]
        any_of = np.uint32(0)
        for n in part:
            any_of |= n
        if not any_of:
            continue
        at = _varint(line - previous - 1, out, at)
        mask, place = np.uint8(0), at
        at += 1
        for group in range(LINE // GROUP):
            own, into = np.uint64(line * LINE + group * GROUP), np.uint64(at)
            any_of, large = np.uint32(0), np.uint32(0)
            for j in range(GROUP):
                n = counts[own + np.uint64(j)]
                any_of |= n
                large = max(large, n)
                out[into + np.uint64(j)] = min(n, np.uint32(255))
            if any_of:
                mask |= np.uint8(1 << group)
                at += GROUP
                if large >= 255:
                    for j in range(GROUP):
                        n = counts[own + np.uint64(j)]
                        if n >= 255:
                            at = _varint(np.int64(n) - 255, out, at)
        out[place] = mask
        part[:] = 0
        previous = line
    return at, previous


@_compiled
def _encode(
    peaks: Any, limits: Any, ends: Any, out: Any, at: int, single: bool, a: Any, b: Any, c: Any, d: Any
) -> tuple[int, int]:
    """After a survey: tails into `ends`, cells appended to `out`, tables cleared. Returns
    the end and the exact zeros."""
    low = max(peaks[2] >> SHIFT, 1) if peaks[2] >= 0 else 1
    for side in range(2):
        base = SIGN * side
        if not single:
            _gathered(base, base, a, b, c, d)
            if peaks[side] >= 0:
                _gathered(base + low, base + (peaks[side] >> SHIFT), a, b, c, d)
    zeros = np.int64(a[0]) + np.int64(a[SIGN])
    _tails(a, peaks[0], peaks[1], low, limits, ends)
    previous = -1
    for side in range(2):
        line = SIGN * side // LINE
        if zeros or low < LINE:
            at, previous = _emit(a, line, line, previous, out, at)
        if peaks[side] >= 0:
            at, previous = _emit(
                a, line + max(low // LINE, 1), line + (peaks[side] >> SHIFT) // LINE, previous, out, at
            )
    return at, int(zeros)


def _as_pointer(context: Any, address: Any) -> Any:
    """An address as a pointer, for `carray`."""
    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer = cast(Callable[[int], Any], intrinsic(_as_pointer))


@_compiled
def observe(
    addresses: Any,
    sizes: Any,
    first: int,
    shares: Any,
    counts: Any,
    peaks: Any,
    zeros: Any,
    ends: Any,
    offsets: Any,
    out: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
) -> int:
    """All tensors of a sample from `first` on, each `sizes[t]` float32 at `addresses[t]` (a multiple of
    8): one call, since sixty would cost as much as the smaller half of the counting. `shares` [tails, 2]:
    fractions. Into `counts`: elements, NaN, +inf, -inf; the cells of tensor t into
    out[offsets[t]:offsets[t + 1]]. Returns the first tensor for which `out` may have no room (a key takes
    at most 8 bytes), or their number.
    """
    limits = np.empty(shares.shape[0], np.int64)
    for t in range(first, sizes.shape[0]):
        at, size, own = offsets[t], sizes[t], peaks[t]
        offsets[t + 1] = at
        if out.shape[0] - at < 8 * KEYS:
            return t
        counts[t, :] = 0
        counts[t, 0] = size
        own[:] = -1
        if size == 0:
            continue
        bits = carray(_pointer(addresses[t]), (size,), np.uint32)
        single = size < SMALL
        if single:
            _survey_few(bits, own, a)
        else:
            _survey(bits, carray(_pointer(addresses[t]), (size >> 1,), np.uint64), own, a, b, c, d)
        if max(own[0], own[1]) >= SPECIAL:
            _specials(bits, counts[t, 1:], own)
            for side in range(2):
                low, high = SIGN * side + (SPECIAL >> SHIFT), SIGN * side + SIGN
                a[low:high] = 0
                b[low:high] = 0
                c[low:high] = 0
                d[low:high] = 0
        finite = size - counts[t, 1] - counts[t, 2] - counts[t, 3]
        for k in range(limits.shape[0]):
            limits[k] = finite * shares[k, 0] // shares[k, 1]
        at, zeros[t] = _encode(own, limits, ends[t], out, at, single, a, b, c, d)
        offsets[t + 1] = at
    return int(sizes.shape[0])


@_compiled
def _read(blob: Any, at: int) -> tuple[Any, int]:
    value, shift = np.int64(0), 0
    while True:
        byte = np.int64(blob[at])
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


@_compiled
def collect(blob: Any, starts: Any, stops: Any, counts: Any, sign: int, span: Any) -> None:
    """Add the cells of one tensor, encoded in so many parts of `blob`, to dense 64-bit
    counts (sign -1 takes them away).

    `span` [2, 2]: first and last key that may be touched on each side of zero,
    widened. Lines ascend in a part.
    """
    half = np.int64(SIGN // LINE)
    for part in range(starts.shape[0]):
        at, stop, line = starts[part], stops[part], np.int64(-1)
        first, last, least, most = np.int64(-1), np.int64(-1), np.int64(-1), np.int64(-1)
        while at < stop:
            gap, at = _read(blob, at)
            line += gap + 1
            mask = np.int64(blob[at])
            at += 1
            for group in range(LINE // GROUP):
                if mask >> group & 1:
                    # unsigned: no index from behind
                    held, into = np.uint64(at), np.uint64(line * LINE + group * GROUP)
                    at, large = at + GROUP, np.uint8(0)
                    for j in range(GROUP):
                        n = blob[held + np.uint64(j)]
                        counts[into + np.uint64(j)] += sign * np.int64(n)
                        large = max(large, n)
                    if large == 255:
                        for j in range(GROUP):
                            if blob[held + np.uint64(j)] == 255:
                                rest, at = _read(blob, at)
                                counts[into + np.uint64(j)] += sign * rest
            if line < half:
                first, last = line if first < 0 else first, line
            else:
                least, most = line if least < 0 else least, line
        if first >= 0:
            span[0, 0], span[0, 1] = min(span[0, 0], first * LINE), max(span[0, 1], last * LINE + LINE - 1)
        if least >= 0:
            span[1, 0], span[1, 1] = min(span[1, 0], least * LINE), max(span[1, 1], most * LINE + LINE - 1)


@_compiled
def occupied(counts: Any, span: Any, keys: Any, found: Any) -> int:
    """Move the counts of the spans that are not zero into `keys` and `found`, ascending, and clear them."""
    at = 0
    for side in range(2):
        part = counts[span[side, 0] : span[side, 1] + 1]
        for i in range(part.shape[0]):
            n = part[i]
            if n:
                keys[at] = span[side, 0] + i
                found[at] = n
                at += 1
        part[:] = 0
    return at
