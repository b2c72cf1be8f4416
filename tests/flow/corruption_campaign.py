"""Every way to damage every kind of cache file, and what a build and a verification make of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import toys

from npuflow.flow.events import Event, Warned
from npuflow.flow.refs import ItemsRef
from npuflow.flow.store import Store
from npuflow.flow.store_gc import gc
from npuflow.flow.store_manifest import Damaged
from npuflow.flow.store_verify import verify

KINDS = {
    "manifest": "objects/*/*/manifest.json",
    "json": "objects/*/*/*.json",
    "text": "objects/*/*/notes.txt",
    "bytes": "objects/*/*/table.bin",
    "npz": "objects/*/*/small.npz",
    "zarr metadata": "objects/*/*/large.zarr/zarr.json",
    "zarr chunk": "objects/*/*/large.zarr/c/*/*",
    "record": "records/*/*.json",
    "root": "roots/*.json",
    "store": "store.json",
    "object folder": "objects/*/*",
}
WAYS = ("truncate", "flip", "delete", "swap", "edit", "empty", "grow")


def candidates(cache: Path, kind: str) -> list[Path]:
    found = sorted(cache.glob(KINDS[kind]))
    return [path for path in found if not (kind == "json" and path.name == "manifest.json")]


def damage(rnd: random.Random, cache: Path, kind: str, way: str) -> Path | None:
    """Do it; None where this way means nothing for this kind of file."""
    paths = candidates(cache, kind)
    path = rnd.choice(paths)
    if way == "swap":
        others = [one for one in paths if one != path and content(one) != content(path)]
        if not others:
            return None
        other, spare = rnd.choice(others), cache / "spare"
        path.rename(spare)
        other.rename(path)
        spare.rename(other)
    elif path.is_dir():
        if way != "delete":
            return None
        shutil.rmtree(path)
    elif way == "delete":
        path.unlink()
    else:
        path.write_bytes(altered(rnd, path.read_bytes(), way))
    return path


def content(path: Path) -> Any:
    return path.read_bytes() if path.is_file() else path.name


def altered(rnd: random.Random, data: bytes, way: str) -> bytes:
    if way == "truncate":
        return data[: rnd.randrange(len(data))]
    if way == "empty":
        return b""
    if way == "grow":
        return data + b"\n"
    changed = bytearray(data)
    at = rnd.randrange(len(data))
    changed[at] ^= 1 << rnd.randrange(8) if way == "flip" else (changed[at] ^ ord("7")) or 1
    return bytes(changed)


def values(result: Any, store: Store) -> dict[str, Any]:
    """Every product, read whole."""
    found: dict[str, Any] = {}
    for stage, ref in result.refs.items():
        cls = {"numbers": "Number", "scaled": "Scaled", "table": "Table", "total": "Total"}[stage]
        if isinstance(ref, ItemsRef):
            found[stage] = {name: store.load(one, toys.kind(cls)) for name, one in ref.items.items()}
        else:
            found[stage] = store.load(ref, toys.kind(cls))
    return found


def ways(seed: int) -> dict[str, Iterator[str]]:
    """For each kind, the ways to damage it in turn, in an order of its own."""
    rnd = random.Random(seed)
    return {kind: cycle(rnd.sample(WAYS, len(WAYS))) for kind in KINDS}


def campaign(seed: int, number: int, base: Path) -> dict[str, int]:
    """Damage so many copies of a cache, each kind of file as often as any other; how often each was."""
    start, out = base / "start", base / "out"
    clean = toys.run(start, jobs=1, out_dir=out)
    store = Store(start)
    store.open(clean.outputs["total"])
    # so that there are two of everything
    toys.run(start, {"scale": {"by": 4}}, jobs=1, out_dir=base / "out2")
    wanted, product = values(clean, store), (out / "table.bin").read_bytes()
    rnd, done = random.Random(seed), dict.fromkeys(KINDS, 0)
    turns = ways(seed)
    while sum(done.values()) < number:
        # a way that means nothing for a kind gives it another turn
        kind = min(done, key=lambda one: done[one])
        way = next(turns[kind])
        cache = base / "damaged"
        shutil.copytree(start, cache)
        path = damage(rnd, cache, kind, way)
        if path is not None:
            done[kind] += 1
            reported = f"seed {seed}: {way} {kind} {path.relative_to(cache)}"
            shutil.copytree(cache, base / "second")
            try:
                used(cache, out, wanted, product, reported)
                if (
                    not (kind in ("record", "store", "root", "object folder") and way == "delete")
                    and kind != "store"
                ):
                    assert verify(Store(base / "second")).damaged, f"{reported}: verification saw nothing"
                    assert not verify(Store(base / "second")).damaged, f"{reported}: it was not set aside"
            finally:
                shutil.rmtree(base / "second")
        shutil.rmtree(cache)
    return done


def used(cache: Path, out: Path, wanted: dict[str, Any], product: bytes, reported: str) -> None:
    """Build, and build with every stage forced, so that every input is read: the
    values must be the clean ones."""
    events: list[Event] = []
    result = toys.run(cache, jobs=1, out_dir=out, on_event=events.append)
    assert result.ok, f"{reported}: {result.errors}"
    for _ in range(30):
        try:
            found = values(result, Store(cache))
            break
        except Damaged as fault:
            # what no step needed is found by whoever reads it first
            assert fault.digest is not None
            Store(cache).quarantine(fault.digest, fault.reason)
            result = toys.run(cache, jobs=1, out_dir=out, on_event=events.append)
    else:
        raise AssertionError(f"{reported}: it was never repaired")
    assert found == wanted, reported
    assert (out / "table.bin").read_bytes() == product, reported
    forced = toys.run(cache, jobs=1, force=["numbers", "scaled", "table", "total"], on_event=events.append)
    assert forced.ok and forced.outputs == result.outputs, reported
    assert not [one for one in events if isinstance(one, Warned) and "not deterministic" in one.message], (
        reported
    )
    gc(Store(cache), 0.0)
