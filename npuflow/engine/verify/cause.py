"""What a wrong tensor of a dump looks like: flipped bits, byte order, layout, another tensor, a shifted
address, memory that was not written or read too early, another range, another rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import numpy as np

from npuflow.engine.program.container import Program
from npuflow.engine.sim.made import Tile
from npuflow.engine.verify.golden import Array, Golden

Kind = Literal[
    "bit flip",
    "endianness",
    "layout",
    "swapped tensor",
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
    program: Program, golden: Golden, name: str, sample: int, wrong: Array, found: Array, tile: Tile | None
) -> Cause:
    """The first explanation that holds, from the most specific to the most general."""
    expected = golden.tensors[name][sample]
    part = (
        tuple(slice(a, b) for a, b in tile.box)
        if tile is not None and len(tile.box) == expected.ndim and not _outside(wrong, tile)
        else (slice(None),) * expected.ndim
    )
    for explain in (
        _flipped(expected, found, wrong),
        _byte_order(expected, found),
        _layout(expected, found),
        _swapped(golden, name, sample, found),
        _stale(program, golden, name, sample, expected, found, part),
        _shifted(expected, found, part),
        _range(expected, found),
    ):
        if explain is not None:
            return explain
    return Cause("computation", "the layer itself computes other values: its constants, or its command")


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


def _stale(
    program: Program,
    golden: Golden,
    name: str,
    sample: int,
    expected: Array,
    found: Array,
    part: tuple[slice, ...],
) -> Cause | None:
    """What lay there before: an earlier run, a value that had these addresses, one number all over."""
    here, right = found[part].reshape(-1), expected[part].reshape(-1)
    wrong = here != right
    for what, old in _before(program, golden, name, sample, expected, part):
        if np.array_equal(here[wrong], old[wrong]):
            if np.array_equal(here, old):
                return Cause("stale memory", f"the tile still holds {what}: its transfer did not run")
            first = int(np.argmax(wrong))
            if np.array_equal(here[first:], old[first:]) or np.array_equal(
                here[: first + 1], right[: first + 1]
            ):
                text = (
                    f"from an element on the tile still holds {what}: it was read before its transfer ended"
                )
                return Cause("missing wait", text)
    return None


def _before(
    program: Program, golden: Golden, name: str, sample: int, expected: Array, part: tuple[slice, ...]
) -> Iterator[tuple[str, Array]]:
    for other in range(golden.samples):
        if other != sample:
            yield f"sample {other}'s values", golden.tensors[name][other][part].reshape(-1)
    values = program.meta["values"]
    if name in values:
        item, start = expected.dtype.itemsize, values[name]["address"]
        places = (np.arange(expected.size) * item + start).reshape(expected.shape)[part].reshape(-1)
        for other, entry in values.items():
            if other == name or other not in golden.tensors:
                continue
            held = np.ascontiguousarray(golden.tensors[other][sample]).view(np.uint8).reshape(-1)
            at = places - entry["address"]
            if at.size and at.min() >= 0 and at.max() + item <= held.size:
                body = held[at[:, None] + np.arange(item)]
                yield f'"{other}"', np.ascontiguousarray(body).view(expected.dtype).reshape(-1)
    for number in (0, -1, 1 << (8 * expected.dtype.itemsize - 1)):
        filled = np.full(expected[part].size, number, np.int64).astype(expected.dtype)
        yield f"the number {int(filled[0]) if filled.size else 0} all over", filled


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


def _range(expected: Array, found: Array) -> Cause | None:
    """Codes that follow the right ones on a line: another scale or zero point; or one code off."""
    a, b = expected.reshape(-1).astype(np.float64), found.reshape(-1).astype(np.float64)
    if np.abs(a - b).max() <= 1:
        same = np.unique(b - a)
        if len(same) > 1:
            return Cause("rounding", "codes are at most one off: another rounding, or another bias")
    kind = np.iinfo(expected.dtype)
    free = (b > kind.min) & (b < kind.max) & (b > b.min()) & (b < b.max())
    if np.count_nonzero(free) < 8 or np.ptp(a[free]) == 0:
        return None
    slope, start = np.polyfit(a[free], b[free], 1)
    if np.abs(slope * a[free] + start - b[free]).max() <= 1.0 + 0.5 * abs(slope):
        return Cause(
            "range", f"codes are about {slope:.4g} times the right ones plus {start:.4g}: another range"
        )
    return None
