"""Planted faults in a board's dumps, located by `npuflow verify`'s engine: layer, tile, cause.

    python benchmarks/verify_faults.py PROGRAM.npu [--faults 200] [--seed 0]

A program runs two random samples on the simulator; each fault changes a copy of the dump of one tensor, and,
as on a board, every later tensor of the dump is noise. A fault counts as located where the first finding
names its tensor's layer and, for faults of one tile, a tile that holds it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.checks.board.golden import Array, Golden, golden_of
from npuflow.checks.board.locate import first_difference
from npuflow.program.container import Program
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.made import Tile, tile_of

Changed = tuple[Array, Tile | None] | None
Rng = np.random.Generator


def _tile(program: Program, name: str, shape: tuple[int, ...], rng: Rng) -> Tile | None:
    return tile_of(program, name, tuple(int(rng.integers(d)) for d in shape))


def _box(tile: Tile) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in tile.box)


def bit_flip(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    array = golden.tensors[name][0].copy()
    index = tuple(int(rng.integers(d)) for d in array.shape)
    bits = array.view(f"u{array.dtype.itemsize}")
    bits[index] ^= 1 << int(rng.integers(8 * array.dtype.itemsize))
    return array, tile_of(program, name, index)


def swapped(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    own = golden.tensors[name][0]
    others = [
        a[0]
        for n, a in golden.tensors.items()
        if n != name and a[0].size == own.size and a.dtype == own.dtype
    ]
    others = [a for a in others if not np.array_equal(a.reshape(-1), own.reshape(-1))]
    if not others:
        return None
    return others[int(rng.integers(len(others)))].reshape(own.shape).copy(), None


def shifted(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    own = golden.tensors[name][0]
    tile = _tile(program, name, own.shape, rng)
    if tile is None or own.size < 64:
        return None
    by = int(rng.choice([1, 2, 4, 16, 32])) * int(rng.choice([-1, 1]))
    array = own.copy()
    array[_box(tile)] = np.roll(own.reshape(-1), -by).reshape(own.shape)[_box(tile)]
    return array, tile


def stale(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    array = golden.tensors[name][0].copy()
    tile = _tile(program, name, array.shape, rng)
    if tile is None:
        return None
    array[_box(tile)] = golden.tensors[name][1][_box(tile)]
    return array, tile


def early(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    """A tile of which only the first elements had arrived."""
    own, old = (golden.tensors[name][k] for k in (0, 1))
    tile = _tile(program, name, own.shape, rng)
    if tile is None:
        return None
    part = own[_box(tile)].copy()
    flat, before = part.reshape(-1), old[_box(tile)].reshape(-1)
    if flat.size < 32:
        return None
    cut = int(rng.integers(flat.size // 4, 3 * flat.size // 4))
    flat[cut:] = before[cut:]
    array = own.copy()
    array[_box(tile)] = flat.reshape(part.shape)
    return array, tile


def layout(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    own = golden.tensors[name][0]
    if sum(d > 1 for d in own.shape) < 2:
        return None
    return np.ascontiguousarray(np.moveaxis(own, 1, -1)).reshape(own.shape), None


def other_range(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    own = golden.tensors[name][0]
    kind = np.iinfo(own.dtype)
    factor = float(rng.choice([0.5, 0.8, 1.25]))
    return np.clip(np.rint(own * factor), kind.min, kind.max).astype(own.dtype), None


def other_order(program: Program, golden: Golden, name: str, rng: Rng) -> Changed:
    """The bytes of every element in the other order."""
    own = golden.tensors[name][0]
    return None if own.dtype.itemsize == 1 else (own.byteswap(), None)


KINDS: dict[str, tuple[Callable[[Program, Golden, str, Rng], Changed], str]] = {
    "bit flip": (bit_flip, "bit flip"),
    "swapped tensors": (swapped, "swapped tensor"),
    "shifted address": (shifted, "shifted address"),
    "stale tile": (stale, "stale memory"),
    "tile read early": (early, "missing wait"),
    "layout": (layout, "layout"),
    "another range": (other_range, "range"),
    "byte order": (other_order, "endianness"),
}


def _input(entry: Mapping[str, Any], rng: Rng) -> Array:
    """Pixels where the program takes them, else real numbers."""
    if entry.get("pixels"):
        return rng.integers(0, 256, entry["shape"]).astype(np.uint8)
    return rng.normal(0, 1.5, entry["shape"]).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    runner, rng = ProgramRunner(chosen.program), np.random.default_rng(chosen.seed)
    entries = runner.program.meta["inputs"]
    samples = [{e["name"]: _input(e, rng) for e in entries} for _ in range(2)]
    golden = golden_of(runner.program, runner.run_many(samples, dump=True))
    names, several = list(golden.tensors), any(a.dtype.itemsize > 1 for a in golden.tensors.values())
    kinds = [kind for kind in KINDS if several or kind != "byte order"]
    table = {kind: Counter[str]() for kind in kinds}
    planted = 0
    while planted < chosen.faults:
        kind = kinds[planted % len(kinds)]
        make, cause = KINDS[kind]
        name = names[int(rng.integers(1, len(names)))]
        made = make(runner.program, golden, name, rng)
        if made is None or np.array_equal(made[0], golden.tensors[name][0]):
            continue
        planted += 1
        array, tile = made
        dump = {n: golden.tensors[n][:1] for n in names[: names.index(name)]}
        dump[name] = array[None]
        for later in names[names.index(name) + 1 :]:
            like = golden.tensors[later][:1]
            dump[later] = rng.integers(0, 100, like.shape).astype(like.dtype)
        found = first_difference(runner.program, golden, dump)
        count = table[kind]
        count["planted"] += 1
        count["layer"] += found is not None and found.tensor == name
        right = found is not None and found.tensor == name and (tile is None or found.tile == tile)
        count["tile"] += right
        count["cause"] += found is not None and found.cause.kind == cause
        if not right or (found is not None and found.cause.kind != cause):
            reported = None if found is None else (found.tensor, found.cause)
            print(f"<!-- {kind} in {name} {golden.tensors[name].shape}: {reported} -->")
    print("| fault | planted | layer | tile | cause |\n| --- | ---: | ---: | ---: | ---: |")
    for kind, count in table.items():
        print(
            f"| {kind} | " + " | ".join(str(count[c]) for c in ("planted", "layer", "tile", "cause")) + " |"
        )
    total = sum(table.values(), Counter[str]())
    print("| all | " + " | ".join(str(total[c]) for c in ("planted", "layer", "tile", "cause")) + " |")


if __name__ == "__main__":
    main()
