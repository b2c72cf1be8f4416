"""A limit of a cache's size: what was not used for longest goes first, nothing that a running build uses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from npuflow.flow.store import Store
from npuflow.flow.store_gc import sweep
from npuflow.flow.store_lease import now, oldest, read_root
from npuflow.flow.store_manifest import Damaged


class Entry(NamedTuple):
    """Something that can go: when it was last used, its bytes, what it is, and where."""

    used: float
    size: int
    kind: str
    path: str


@dataclass
class Shrunk:
    """What was removed to keep a limit, and what is left."""

    records: int = 0
    objects: int = 0
    quarantined: int = 0
    bytes: int = 0
    left: int = 0
    """Bytes of what stays."""
    limit: int = 0

    @property
    def over(self) -> bool:
        """Whether more than the limit stays, because running builds use it."""
        return self.left > self.limit


def shrink(store: Store, limit: int, grace: float = 0.0, *, dry: bool = False) -> Shrunk:
    """Remove what was not used for longest until the cache has at most `limit` bytes. What a running build
    has used since it began stays, and what was used in the last `grace` seconds."""
    clock = now(store.root)
    begun = oldest(store.root, clock)
    entries = sorted(_entries(store))
    total = sum(one.size for one in entries)
    found = Shrunk(limit=limit)
    doomed: list[Entry] = []
    for one in entries:
        if total <= limit:
            break
        if one.used < begun and one.used <= clock - grace:
            doomed.append(one)
            total -= one.size
    for kind in ("record", "object", "quarantined"):  # a record before what it stands for
        mine = [one for one in doomed if one.kind == kind]
        if dry:
            number, size = len(mine), sum(one.size for one in mine)
        else:
            number, size = sweep(store, [one.path for one in mine], clock)
        setattr(found, "quarantined" if kind == "quarantined" else f"{kind}s", number)
        found.bytes += size
    found.left = total + sum(one.size for one in doomed) - found.bytes
    return found


def _entries(store: Store) -> Iterator[Entry]:
    """All records, objects and quarantined things, with their last use. What the last build of a place used
    is as young as that build: one with nothing to do looks nothing up."""
    used = _by_roots(store)
    root = str(store.root)
    for kind in ("records", "objects"):
        for folder in _scan(f"{root}/{kind}"):
            for one in _scan(folder.path):
                with suppress(OSError):
                    stat = one.stat(follow_symlinks=False)
                    size = _size(one.path) if one.is_dir(follow_symlinks=False) else stat.st_size
                    yield Entry(max(stat.st_mtime, used.get(one.path, 0.0)), size, kind[:-1], one.path)
    for one in _scan(f"{root}/quarantine"):
        with suppress(OSError):
            yield Entry(one.stat().st_mtime, _size(one.path), "quarantined", one.path)


def _by_roots(store: Store) -> dict[str, float]:
    """Path -> the time of the last build of a place that used it."""
    used: dict[str, float] = {}
    for path in (store.root / "roots").glob("*.json"):
        with suppress(OSError, Damaged):
            when = path.stat().st_mtime
            for key in read_root(path)["keys"]:
                record = store.record(key, touch=False, remote=False)
                if record is not None:
                    paths = [store.record_path(key), *map(store.object_path, record.objects)]
                    used.update({str(one): max(when, used.get(str(one), 0.0)) for one in paths})
    return used


def _scan(folder: str) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return ()


def _size(folder: str) -> int:
    """Bytes of the files in a folder, at any depth."""
    size = 0
    for one in _scan(folder):
        with suppress(OSError):
            inside = one.is_dir(follow_symlinks=False)
            size += _size(one.path) if inside else one.stat(follow_symlinks=False).st_size
    return size
