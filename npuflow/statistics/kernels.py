"""Compiled loops over raw activations: extrema, and counts keyed by the leading bits of each float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from npuflow.base.compiled import compiled

MANTISSA = 9                      # mantissa bits of a key: cells are 2^-9 of an octave wide
SHIFT = 23 - MANTISSA
KEYS = 1 << (32 - SHIFT)          # sign, exponent, leading mantissa bits
SIGN = KEYS >> 1                  # key bit of the sign
SPECIAL = 0x7F800000             # bits of infinity; larger magnitudes are NaN
GROUP, LINE = 8, 64               # keys whose counts are kept together, and that are looked at together
LARGE = 255                       # the least count that has no room of its own in a byte
SMALL = 1 << 15                   # values of a tensor below which one table of counters does
_BLOCK = 4096                     # stays in the first-level cache between the two passes over it


@compiled
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


@compiled
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


@compiled
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


@compiled
def _gathered(first: int, last: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """Everything of [first, last] in the first table, the others cleared."""
    w, x, y, z = a[first : last + 1], b[first : last + 1], c[first : last + 1], d[first : last + 1]
    for i in range(w.shape[0]):
        w[i] += x[i] + y[i] + z[i]
    x[:] = 0
    y[:] = 0
    z[:] = 0


@compiled
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


@compiled
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


@compiled
def _tails(counts: Any, top: int, bottom: int, low: int, limits: Any, out: Any) -> None:
    """out[0]: of the least values, out[1]: of the greatest, those that `limits` others
    lie beyond (see `_descend`)."""
    up = (top >> SHIFT) if top >= 0 else 0
    down = (bottom >> SHIFT) if bottom >= 0 else 0
    _descend(counts, down, up, low, limits, out[0], SIGN)
    _descend(counts, up, down, low, limits, out[1], 0)


@compiled
def _emit(counts: Any, first: int, last: int, groups: Any, cells: Any, large: Any, at: int, end: int) -> Any:
    """Append the groups of keys of the occupied lines from `first` to `last` that are not all zero, and clear
    them; returns the new ends of groups and of large counts (see `Observation`)."""
    for line in range(first, last + 1):
        part = counts[line * LINE : (line + 1) * LINE]
        any_of = np.uint32(0)
        for n in part:
            any_of |= n
        if not any_of:
            continue
        for group in range(line * (LINE // GROUP), (line + 1) * (LINE // GROUP)):
            own, into = np.uint64(group * GROUP), np.uint64(at * GROUP)
            any_of, most = np.uint32(0), np.uint32(0)
            for j in range(GROUP):
                n = counts[own + np.uint64(j)]
                any_of |= n
                most = max(most, n)
                cells[into + np.uint64(j)] = min(n, np.uint32(LARGE))
            if any_of:
                groups[at] = group
                at += 1
                if most >= LARGE:
                    for j in range(GROUP):
                        n = counts[own + np.uint64(j)]
                        if n >= LARGE:
                            large[end, 0], large[end, 1] = into + np.uint64(j), n
                            end += 1
        part[:] = 0
    return at, end


@compiled
def _encode(
    peaks: Any,
    limits: Any,
    ends: Any,
    groups: Any,
    cells: Any,
    large: Any,
    at: int,
    end: int,
    single: bool,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
) -> tuple[int, int, int]:
    """After a survey: tails into `ends`, counts appended to `groups`, `cells` and `large`, tables cleared.
    Returns the new ends of groups and of large counts, and the exact zeros."""
    low = max(peaks[2] >> SHIFT, 1) if peaks[2] >= 0 else 1
    for side in range(2):
        base = SIGN * side
        if not single:
            _gathered(base, base, a, b, c, d)
            if peaks[side] >= 0:
                _gathered(base + low, base + (peaks[side] >> SHIFT), a, b, c, d)
    zeros = np.int64(a[0]) + np.int64(a[SIGN])
    _tails(a, peaks[0], peaks[1], low, limits, ends)
    for side in range(2):
        line = SIGN * side // LINE
        if zeros or low < LINE:
            at, end = _emit(a, line, line, groups, cells, large, at, end)
        if peaks[side] >= 0:
            first, last = line + max(low // LINE, 1), line + (peaks[side] >> SHIFT) // LINE
            at, end = _emit(a, first, last, groups, cells, large, at, end)
    return at, end, int(zeros)


def _as_pointer(context: Any, address: Any) -> Any:
    """An address as a pointer, for `carray`."""
    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_as_pointer)


@compiled
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
    groups: Any,
    cells: Any,
    large: Any,
    end: int,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
) -> tuple[int, int]:
    """All tensors of a sample from `first` on, each `sizes[t]` float32 at `addresses[t]` (a multiple of
    8): one call, since sixty would cost as much as the smaller half of the counting. `shares` [tails, 2]:
    fractions. Into `counts`: elements, NaN, +inf, -inf; the groups of tensor t into
    groups[offsets[t]:offsets[t + 1]] and `cells` (flat), large counts into `large` from `end` on. Returns
    the first tensor for which `groups` may have no room, or their number, and the end of large counts.
    """
    limits = np.empty(shares.shape[0], np.int64)
    for t in range(first, sizes.shape[0]):
        at, size, own = offsets[t], sizes[t], peaks[t]
        offsets[t + 1] = at
        if groups.shape[0] - at < KEYS // GROUP:
            return t, end
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
        at, end, zeros[t] = _encode(
            own, limits, ends[t], groups, cells, large, at, end, single, a, b, c, d
        )
        offsets[t + 1] = at
    return int(sizes.shape[0]), end


@compiled
def collect(
    groups: Any, cells: Any, large: Any, starts: Any, stops: Any, counts: Any, sign: int, span: Any
) -> None:
    """Add the cells of one tensor in several observations, groups[starts[p]:stops[p]] each, to dense 64-bit
    counts (sign -1 takes them away). `large` [n, 2]: keys with counts that have no room in a byte of `cells`.
    `span` [2, 2]: first and last key that may be touched on each side of zero, widened. Groups ascend."""
    half = SIGN // GROUP
    for part in range(starts.shape[0]):
        start, stop = starts[part], stops[part]
        for at in range(start, stop):
            into, held = np.uint64(groups[at]) * np.uint64(GROUP), np.uint64(at) * np.uint64(GROUP)
            for j in range(GROUP):
                counts[into + np.uint64(j)] += sign * np.int64(cells[held + np.uint64(j)])
        middle = start + np.searchsorted(groups[start:stop], half)
        for side in range(2):
            low, high = (start, middle) if side == 0 else (middle, stop)
            if low < high:
                span[side, 0] = min(span[side, 0], np.int64(groups[low]) * GROUP)
                span[side, 1] = max(span[side, 1], np.int64(groups[high - 1]) * GROUP + GROUP - 1)
    for at in range(large.shape[0]):
        counts[large[at, 0]] += sign * (large[at, 1] - LARGE)


@compiled
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
