"""Memory that was not written, or was read before its transfer ended: what lay there before shows through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from npuflow.checks.board.compared import Compared
from npuflow.checks.board.golden import Array, Golden
from npuflow.program.container import Program

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
