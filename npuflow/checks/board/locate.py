"""The first tensor of a dump that differs, the tile and command that made its first wrong element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np

from npuflow.checks.board.cause import Cause, cause_of
from npuflow.checks.board.compared import Compared, compared
from npuflow.checks.board.golden import Array, Golden, quants_of
from npuflow.compare.difference import first
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.region import dense
from npuflow.program.container import Program
from npuflow.program.loop_steps import LoopStep, LoopSteps
from npuflow.sim.made import Tile, tile_of

AROUND = 4  # elements before and behind the wrong one


@dataclass(frozen=True)
class Finding:
    """Where a dump leaves the golden tensors. `expected`, `found`: codes around the element, in C order; real
    numbers (`real`) of a dump that holds those, None for NaN and infinity."""

    tensor: str
    layer: str
    sample: int
    index: tuple[int, ...]
    different: int
    elements: int
    memory: str
    address: int | None
    tile: Tile | None
    expected: tuple[float | None, ...]
    found: tuple[float | None, ...]
    at: int  # of the wrong element in these
    cause: Cause
    real: bool = False
    loops: tuple[LoopStep, ...] = ()  # the steps that the tile's command ran for


def first_difference(program: Program, golden: Golden, dump: Mapping[str, Array]) -> Finding | None:
    """In the network's order; None where all that was dumped agrees. Codes agree where they are equal, real
    numbers within half a code."""
    quants = quants_of(program)
    for name, whole in golden.tensors.items():
        if name not in dump:
            continue
        for sample, (expected, found) in enumerate(zip(whole, dump[name], strict=False)):
            seen = compared(expected, found, quants.get(name))
            if seen.wrong.any():
                return _finding(program, golden, name, sample, seen)
    return None


def _finding(program: Program, golden: Golden, name: str, sample: int, seen: Compared) -> Finding:
    wrong, reals = seen.wrong, seen.reals
    flat, index = int(np.argmax(wrong)), first(wrong) or ()
    tile = tile_of(program, name, index)
    low, high = max(0, flat - AROUND), min(wrong.size, flat + AROUND + 1)
    sides = (seen.expected, seen.found) if reals is None else (reals.expected, reals.found)
    around = [tuple(_number(v) for v in a.reshape(-1)[low:high].tolist()) for a in sides]
    memory, address = _address(program, name, index, tile)
    return Finding(
        name,
        golden.layers[name],
        sample,
        index,
        int(np.count_nonzero(wrong)),
        int(wrong.size),
        memory,
        address,
        tile,
        around[0],
        around[1],
        flat - low,
        cause_of(program, golden, name, sample, seen, tile),
        reals is not None,
        () if tile is None else LoopSteps(program).of(tile.core, tile.command),
    )


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _address(
    program: Program, name: str, index: tuple[int, ...], tile: Tile | None
) -> tuple[str, int | None]:
    """Of an element: in external memory, or in the local memory of the core that made it."""
    if name in program.taps.values and tile is not None:
        for tap in program.taps.cores[tile.core]:
            if tap.value == name and tap.command == tile.command and tap.box == tile.box:
                steps = zip(index, tap.box, tap.strides, strict=True)
                return f"local memory of core {tile.core}", tap.address + sum(
                    (i - lo) * s for i, (lo, _), s in steps
                )
    entry = program.meta["values"].get(name)
    if entry is None:
        return "", None
    strides = dense(tuple(entry["shape"]), ELEMENTS[entry["dtype"]].bytes)
    return "external memory", entry["address"] + sum(i * s for i, s in zip(index, strides, strict=True))
