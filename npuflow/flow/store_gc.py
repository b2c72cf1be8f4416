"""Collects what no root, live lease or grace period reaches, beside running builds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from npuflow.flow import store_files as files
from npuflow.flow.store import Store
from npuflow.flow.store_lease import live, now, oldest, read_root
from npuflow.flow.store_manifest import Damaged

GRACE = 24 * 3600.0


@dataclass
class Collected:
    """What a collection removed and what it left."""

    records: int = 0
    objects: int = 0
    debris: int = 0
    bytes: int = 0
    kept_records: int = 0
    kept_objects: int = 0
    stopped: str = ""
    """Why nothing was removed, when that is so."""


def gc(store: Store, grace: float = GRACE, *, dry: bool = False) -> Collected:
    """Remove every record and object that nothing reaches, and the debris of builds that died."""
    clock = now(store.root)
    keys, damaged = _rooted(store)
    if damaged:
        # What a damaged root protected is unknown: it is set aside, and this collection removes nothing.
        return Collected(
            stopped=f"{len(damaged)} damaged roots were set aside; the next build of each writes a new one"
        )
    begun = oldest(store.root, clock)
    wanted, result = set(keys), Collected()
    doomed_records: list[Path] = []
    for key in store.record_keys():
        path = store.record_path(key)
        kept = key in wanted or _young(path, clock, grace, begun)
        record = store.record(key, touch=False) if kept else None
        if record is None:
            if path.exists():
                doomed_records.append(path)
        else:
            result.kept_records += 1
            wanted.update(record.objects)
    doomed_objects = []
    for digest in store.digests():
        path = store.object_path(digest)
        if digest in wanted or _young(path, clock, grace, begun):
            result.kept_objects += 1
        else:
            doomed_objects.append(path)
    debris = list(_debris(store.root, grace))
    result.records, result.objects, result.debris = len(doomed_records), len(doomed_objects), len(debris)
    if not dry:
        # Records go before their objects, so that no record is ever left whose object was collected.
        result.records, size = sweep(store, doomed_records, clock)
        result.objects, more = sweep(store, doomed_objects, clock)
        result.bytes = size + more + sum(files.remove(path) for path in debris)
        _prune(store.root)
    return result


def _rooted(store: Store) -> tuple[set[str], list[Path]]:
    """The keys of every build whose place still exists; and the roots that cannot be read."""
    keys: set[str] = set()
    damaged = []
    for path in sorted((store.root / "roots").glob("*.json")):
        try:
            body = read_root(path)
        except Damaged as fault:
            damaged.append(path)
            store.set_aside(path, fault.reason)
            continue
        if body["host"] == os.uname().nodename and not Path(body["place"]).exists():
            files.remove(path)
        else:
            keys.update(body["keys"])
    return keys, damaged


def _young(path: Path, clock: float, grace: float, begun: float = math.inf) -> bool:
    """Whether something was used within the grace period, or since the first of the running builds began."""
    try:
        used = path.stat().st_mtime
    except OSError:
        return False
    return used > clock - grace or used >= begun


def sweep(store: Store, doomed: Iterable[Path | str], clock: float) -> tuple[int, int]:
    """Move doomed things away, but for those that a build has used meanwhile; then delete them: how many, and
    their bytes. `clock`: when they were found."""
    paths = [Path(one) for one in doomed]
    if not paths:
        return 0, 0
    trash = files.fresh(store.root / "tmp", "trash-")
    with files.writing(store.root):
        trash.mkdir()
    begun, removed = oldest(store.root, clock), 0
    for number, path in enumerate(paths):
        if _young(path, clock, 0.0, begun):
            continue
        moved = trash / str(number)
        with suppress(FileNotFoundError):
            path.rename(moved)
            removed += 1
            if _young(moved, clock, 0.0, begun):
                with suppress(OSError):  # it was written again
                    moved.rename(path)
                    removed -= 1
    return removed, files.remove(trash)


def _debris(root: Path, grace: float) -> Iterator[Path]:
    """Temporary files, leases and quarantined things that nobody will come back for."""
    # Listed first, judged afterwards: what a build begins meanwhile is not in the list.
    temporary, leases = list((root / "tmp").iterdir()), list((root / "leases").iterdir())
    clock = now(root)
    alive = {folder.name for folder in live(root, clock)}
    for path in leases:
        if path.name not in alive:
            yield path
    for path in temporary:
        lease = path.name.partition(".")[0] if "." in path.name else ""
        # A file without a lease is the work of a moment: it is debris once no build runs, or once it is old.
        if lease not in alive if lease else (not alive or not _young(path, clock, max(grace, 3600.0))):
            yield path
    for path in (root / "memo").glob(".*"):  # half-written memos
        if not alive or not _young(path, clock, max(grace, 3600.0)):
            yield path
    for path in (root / "quarantine").iterdir():
        if not _young(path, clock, grace):
            yield path


def _prune(root: Path) -> None:
    for kind in ("objects", "records"):
        for folder in (root / kind).iterdir():
            with suppress(OSError):
                folder.rmdir()
