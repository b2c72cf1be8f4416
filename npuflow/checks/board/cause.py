"""Names what a wrong tensor of a dump looks like.
Flipped bits, byte order, layout, another tensor, exchanged signs, a shifted address, memory that was not
written or read too early, another range, another rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np

from npuflow.checks.board.compared import Compared
from npuflow.checks.board.golden import Array, Golden
from npuflow.program.container import Program
from npuflow.sim.made import Tile

LEAST = 8  # elements in a row that one number may fill before it counts as a pattern
PERIODS = (1, 2, 4, 8)  # bytes after which a pattern that fills memory repeats
Found = tuple[Literal["stale memory", "missing wait"], str]  # kind and text of a cause


def unwritten(
    program: Program,
    golden: Golden,
    name: str,
    sample: int,
    seen: Compared,
    part: tuple[slice, ...],
    *,
    one_tile: bool,
) -> Found | None:
    """An earlier run's values, those of a value that had these addresses, or a pattern. `part`: the tile
    where it alone is wrong, else the whole tensor."""
    here, wrong = seen.found[part], seen.wrong[part]
    for what, old in _before(program, golden, name, sample, seen.expected, part):
        if not np.array_equal(here[wrong], old[wrong]):
            continue
        if np.array_equal(here, old):
            return "stale memory", f"the {_whole(one_tile)} still holds {what}: its transfer did not run"
        first = int(np.argmax(wrong))
        if one_tile and np.array_equal(here.reshape(-1)[first:], old.reshape(-1)[first:]):
            text = f"from an element on the tile still holds {what}: it was read before its transfer ended"
            return "missing wait", text
        region = _region(wrong, here == old)
        if region is not None:
            return "stale memory", f"{region} still hold {what}: that part was not written"
    return _filled(here, wrong, one_tile)


def _whole(one_tile: bool) -> str:
    return "tile" if one_tile else "tensor"


def _before(
    program: Program, golden: Golden, name: str, sample: int, expected: Array, part: tuple[slice, ...]
) -> Iterator[tuple[str, Array]]:
    """What it is, and its elements at the places of the part."""
    for other in range(golden.samples):
        if other != sample:
            yield f"sample {other}'s values", golden.tensors[name][other][part]
    values = program.meta["values"]
    if name not in values:
        return
    item, start = expected.dtype.itemsize, values[name]["address"]
    places = (np.arange(expected.size) * item + start).reshape(expected.shape)[part]
    for other_name, entry in values.items():
        if other_name == name or other_name not in golden.tensors:
            continue
        held = np.ascontiguousarray(golden.tensors[other_name][sample]).view(np.uint8).reshape(-1)
        at = places.reshape(-1) - entry["address"]
        if at.size and at.min() >= 0 and at.max() + item <= held.size:
            body = held[at[:, None] + np.arange(item)]
            old = np.ascontiguousarray(body).view(expected.dtype)
            yield f'"{other_name}"', old.reshape(places.shape)


def _region(wrong: Array, old: Array) -> str | None:
    """The elements that were not written, where all wrong ones lie in a run, a box or rows of old ones."""
    flat, same = wrong.reshape(-1), old.reshape(-1)
    first, last = _ends(flat)
    if last - first + 1 >= LEAST and same[first : last + 1].all():
        return f"elements {first} to {last}"
    rank = wrong.ndim
    ends = [_ends(wrong.any(axis=tuple(d for d in range(rank) if d != axis))) for axis in range(rank)]
    box = tuple(slice(a, b + 1) for a, b in ends)
    if old[box].size >= LEAST and old[box].all():
        return f"the elements [{', '.join(f'{a}:{b + 1}' for a, b in ends)}]"
    if wrong.ndim < 2 or np.count_nonzero(wrong) < LEAST:
        return None
    rows = wrong.any(axis=-1)
    return f"{np.count_nonzero(rows)} rows" if old[rows].all() else None


def _ends(flags: Any) -> tuple[int, int]:
    """The first and last that is set."""
    flat = flags.reshape(-1)
    return int(np.argmax(flat)), flat.size - 1 - int(np.argmax(flat[::-1]))


def _filled(here: Array, wrong: Array, one_tile: bool) -> Found | None:
    """One number, or a pattern of a few bytes, where nothing was written since the memory was filled."""
    first, last = _ends(wrong)
    number = here.reshape(-1)[first]
    if np.all(here[wrong] == number):
        if here.size >= LEAST and np.all(here == number):
            text = f"the {_whole(one_tile)} holds the number {int(number)} all over"
            return "stale memory", f"{text}: this memory was not written"
        region = _region(wrong, here == number)
        if region is not None:
            text = f"{region} hold the number {int(number)}"
            return "stale memory", f"{text}: that part of the memory was not written"
    run = np.ascontiguousarray(here.reshape(-1)[first : last + 1]).view(np.uint8)
    for period in PERIODS:
        if run.size >= max(4 * period, LEAST) and np.array_equal(run[period:], run[:-period]):
            text = f"elements {first} to {last} hold the bytes {run[:period].tobytes().hex(' ')} all over"
            return "stale memory", f"{text}: that part of the memory was not written"
    return None


Kind = Literal[
    "bit flip",
    "endianness",
    "layout",
    "swapped tensor",
    "signedness",
    "not a number",
    "codes as real numbers",
    "shifted address",
    "stale memory",
    "missing wait",
    "range",
    "rounding",
    "computation",
]
FLIPS = 8  # wrong elements that may be flipped bits
SHIFTS = 256  # elements that an address may be off by
ALIKE = 0.98  # of what is compared


@dataclass(frozen=True)
class Cause:
    kind: Kind
    text: str


def cause_of(
    program: Program, golden: Golden, name: str, sample: int, seen: Compared, tile: Tile | None
) -> Cause:
    """The first explanation that holds, from the most specific to the most general."""
    expected, found, wrong = seen.expected, seen.found, seen.wrong
    inside = tile is not None and len(tile.box) == expected.ndim and not _outside(wrong, tile)
    part = (slice(None),) * expected.ndim
    if inside and tile is not None:
        part = tuple(slice(a, b) for a, b in tile.box)
    return (
        _real(seen)
        or _flipped(expected, found, wrong)
        or _byte_order(expected, found)
        or _layout(expected, found)
        or _swapped(golden, name, sample, found)
        or _signs(expected[part], found[part])
        or _left(unwritten(program, golden, name, sample, seen, part, one_tile=inside))
        or _shifted(expected, found, part)
        or _range(seen)
        or Cause("computation", "the layer itself computes other values: its constants, or its command")
    )


def _left(found: Found | None) -> Cause | None:
    return None if found is None else Cause(*found)


def _real(seen: Compared) -> Cause | None:
    """Of a dump of real numbers: some are none, or all are the codes themselves."""
    if seen.reals is None:
        return None
    real = seen.reals.found
    unknown, infinite = int(np.count_nonzero(np.isnan(real))), int(np.count_nonzero(np.isinf(real)))
    if unknown or infinite:
        told = [f"{n} {what}" for n, what in ((unknown, "NaN"), (infinite, "infinite")) if n]
        text = f"{' and '.join(told)} of {real.size} numbers: memory that was not written, or a division by 0"
        return Cause("not a number", text)
    apart = np.abs(real.astype(np.float64) - seen.expected)
    if apart.max() <= 1:
        near = "the right codes" if not apart.any() else "near the right codes, not whole ones"
        text = f"the numbers are {near}: dump {seen.expected.dtype}, or scale * (code - zero point)"
        return Cause("codes as real numbers", text)
    return None


def _signs(expected: Array, found: Array) -> Cause | None:
    """Codes that lie half the range off, or that were widened or clamped as if they had a sign, or none."""
    width = 8 * expected.dtype.itemsize
    right, here = expected.astype(np.int64), found.astype(np.int64)
    wrong, told = right != here, "signed and unsigned codes are exchanged: "
    if wrong.sum() < 2:
        return None
    apart = (here - right) % (1 << width)
    if np.all(apart == 1 << (width - 1)):
        text = f"every code lies {1 << (width - 1)} off, its highest bit is inverted"
        return Cause("signedness", told + text)
    for bits in (b for b in (4, 8, 16) if b < width):
        negative = (right >> (bits - 1)) & 1 == 1
        steps = {int(step) for step in np.unique(apart[wrong])}
        one_way = steps in ({1 << bits}, {(1 << width) - (1 << bits)})
        if one_way and np.array_equal(wrong, negative):
            text = f"codes of {bits} bits were widened as if they had {_other(expected)}"
            return Cause("signedness", told + text)
    most = (1 << (width - 1)) - 1
    if expected.dtype.kind == "u" and np.array_equal(here, np.minimum(right, most)):
        return Cause("signedness", f"{told}codes above {most} were clamped to it")
    return None


def _other(expected: Array) -> str:
    return "no sign" if expected.dtype.kind == "i" else "a sign"


def _outside(wrong: Array, tile: Tile) -> bool:
    """Whether elements beyond a tile are wrong."""
    inside = wrong[tuple(slice(a, b) for a, b in tile.box)]
    return int(np.count_nonzero(inside)) != int(np.count_nonzero(wrong))


def _flipped(expected: Array, found: Array, wrong: Array) -> Cause | None:
    count = int(np.count_nonzero(wrong))
    if count > FLIPS or expected.dtype.kind not in "iu":
        return None
    mask = (1 << 8 * expected.dtype.itemsize) - 1
    bits = [(int(a) ^ int(b)) & mask for a, b in zip(expected[wrong], found[wrong], strict=True)]
    if all(b.bit_count() == 1 for b in bits):
        which = ", ".join(f"bit {b.bit_length() - 1}" for b in bits[:4])
        return Cause("bit flip", f"{which} of {count} element{'s' if count > 1 else ''}: memory or transfer")
    return None


def _byte_order(expected: Array, found: Array) -> Cause | None:
    if expected.dtype.itemsize > 1 and np.array_equal(found.byteswap(), expected):
        return Cause("endianness", "the bytes of every element are in the other order")
    return None


def _layout(expected: Array, found: Array) -> Cause | None:
    """The same elements in the order of other dimensions."""
    flat, rank = found.reshape(-1), expected.ndim
    if 1 < rank <= 5 and np.array_equal(np.sort(flat), np.sort(expected.reshape(-1))):
        for order in permutations(range(rank)):
            if order != tuple(range(rank)) and np.array_equal(expected.transpose(order).reshape(-1), flat):
                return Cause("layout", f"the dimensions lie in the order {list(order)}")
    return None


def _swapped(golden: Golden, name: str, sample: int, found: Array) -> Cause | None:
    for other, array in golden.tensors.items():
        same = other != name and array.dtype == found.dtype and array[sample].size == found.size
        if same and np.array_equal(array[sample].reshape(-1), found.reshape(-1)):
            return Cause("swapped tensor", f'it holds "{other}" ({golden.layers[other]})')
    return None


def _shifted(expected: Array, found: Array, part: tuple[slice, ...]) -> Cause | None:
    """Elements that stand a few places further on, in the tile's rows or in the whole tensor."""
    whole = expected.reshape(-1)
    places = np.arange(expected.size).reshape(expected.shape)[part].reshape(-1)
    here = found.reshape(-1)[places]
    best, most = 0, 0.0
    for shift in (s for k in range(1, min(SHIFTS, expected.size)) for s in (k, -k)):
        moved = places + shift
        inside = (moved >= 0) & (moved < whole.size)
        if np.count_nonzero(inside) < 0.5 * places.size:
            continue
        alike = float(np.mean(here[inside] == whole[moved[inside]]))
        if alike > most:
            best, most = shift, alike
    if most >= ALIKE:
        return Cause(
            "shifted address",
            f"elements are those {abs(best)} places {'further on' if best > 0 else 'before'}: an address is "
            f"{abs(best) * expected.dtype.itemsize} bytes off",
        )
    return None


def _range(seen: Compared) -> Cause | None:
    """Codes that follow the right ones on a line: another scale or zero point; or one code off."""
    reals = seen.reals
    a = seen.expected.reshape(-1).astype(np.float64)
    b = (seen.found if reals is None else reals.codes).reshape(-1).astype(np.float64)
    if np.abs(a - b).max() <= 1:
        same = np.unique(b - a)
        if len(same) > 1:
            return Cause("rounding", "codes are at most one off: another rounding, or another bias")
    kind = np.iinfo(seen.expected.dtype)
    free = (b > b.min()) & (b < b.max())
    if reals is None:
        free &= (b > kind.min) & (b < kind.max)
    if np.count_nonzero(free) < 8 or np.ptp(a[free]) == 0:
        return None
    slope, start = np.polyfit(a[free], b[free], 1)
    if np.abs(slope * a[free] + start - b[free]).max() <= 1.0 + 0.5 * abs(slope):
        return Cause(
            "range", f"codes are about {slope:.4g} times the right ones plus {start:.4g}: another range"
        )
    return None
