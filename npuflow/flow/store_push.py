"""Uploads a local cache to the shared one behind it.
What is there already stays, so it can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from npuflow.base.errors import StoreError, UsageError
from npuflow.flow.store import Store
from npuflow.flow.store_lease import Lease, claim, read_root, root_file
from npuflow.flow.store_manifest import Damaged
from npuflow.flow.store_record import Record

TOGETHER = 8        # uploads at once: an object server answers each in tens of milliseconds
CHUNK = 64          # records whose objects go first, then they


@dataclass
class Pushed:
    """What an upload sent, what it found there, and what it could not send."""

    records: int = 0
    objects: int = 0
    bytes: int = 0
    """Of what was sent, or would be."""
    records_there: int = 0
    objects_there: int = 0
    left_out: int = 0
    """Records of which the local cache lacks an object, or holds it damaged."""


def push(
    store: Store,
    keys: Collection[str] | None = None,
    *,
    dry: bool = False,
    tell: Callable[[Pushed], None] | None = None,
) -> Pushed:
    """Upload the records of these keys (None: all) with their objects. The first upload
    that fails ends it as an error."""
    remote = store.remote
    if remote is None:
        raise UsageError(
            "no remote cache is configured", code="NF-REMOTE-001",
            hint="--remote URL, or --recipe RECIPE of a recipe whose [build] remote names one",
        )
    if remote.mode != "read-write":
        raise UsageError(
            f'the remote cache {remote.shown} is read-only: [build] remote_mode = "{remote.mode}"',
            code="NF-REMOTE-002", hint='remote_mode = "read-write"',
        )
    remote.reach()
    done = Pushed()
    seen: set[str] = set()
    with _leased(store) as own, ThreadPoolExecutor(TOGETHER, "npuflow-push") as pool:
        names = iter(own.record_keys() if keys is None else sorted(keys))
        try:
            while chunk := list(islice(names, CHUNK)):
                found = [
                    one for key in chunk if (one := own.record(key, touch=False, remote=False)) is not None
                ]
                _chunk(own, found, seen, pool, done, dry=dry)
                if tell is not None:
                    tell(done)
        except Exception as fault:  # every file system has errors of its own
            pool.shutdown(cancel_futures=True)
            raise StoreError(
                f"the upload to {remote.shown} stopped: {fault}", code="NF-REMOTE-003",
                because=f"{done.records} records and {done.objects} objects had been uploaded",
                hint="the same command resumes from there",
            ) from fault
    return done


def _chunk(
    store: Store, found: list[Record], seen: set[str], pool: ThreadPoolExecutor, done: Pushed, *, dry: bool
) -> None:
    """Some records: those that are not there yet, after their objects."""
    remote = store.remote
    assert remote is not None
    known = pool.map(lambda one: remote.holds("records", one.key), found)
    absent = [one for one, there in zip(found, known, strict=True) if not there]
    needed = list(dict.fromkeys(digest for one in absent for digest in one.objects if digest not in seen))
    known = pool.map(lambda digest: remote.holds("objects", digest), needed)
    there = {digest for digest, held in zip(needed, known, strict=True) if held}
    todo = [digest for digest in needed if digest not in there]
    bad: set[str] = set()
    for digest, size in zip(todo, pool.map(lambda digest: _send(store, digest, dry=dry), todo), strict=True):
        if size is None:
            bad.add(digest)
        else:
            done.objects, done.bytes = done.objects + 1, done.bytes + size
    seen.update(digest for digest in needed if digest not in bad)
    whole = [one for one in absent if not bad & set(one.objects)]
    for size in pool.map(lambda one: len(one.encode()) if dry else remote.send_record(one), whole):
        done.records, done.bytes = done.records + 1, done.bytes + size
    done.records_there += len(found) - len(absent)
    done.objects_there += len(there)
    done.left_out += len(absent) - len(whole)


def _send(store: Store, digest: str, *, dry: bool) -> int | None:
    """Upload one object, after its files have been checked; its bytes, or None if this
    cache does not hold it whole."""
    assert store.remote is not None
    try:
        return store.remote.send_object(store, store.manifest(digest, remote=False), dry=dry)
    except Damaged as damage:
        store.warn(f"{damage.what} is left out: {damage.reason}")
        return None


@contextmanager
def _leased(store: Store) -> Iterator[Store]:
    """The same store under a lease, so that no collection of garbage takes away what is being sent."""
    held = claim(store.root)
    lease = held if isinstance(held, Lease) else None
    own = Store(store.root, store.remote, lease=lease.name if lease is not None else None, warn=store.warn)
    try:
        yield own
    finally:
        if lease is not None:
            lease.release()


def last_build(store: Store, place: Path) -> list[str]:
    """The keys that the last finished build of an output folder used."""
    path = root_file(store.root, place)
    if not path.is_file():
        raise UsageError(
            f"no build of {place} has finished with this cache", code="NF-REMOTE-004",
            because=f"the cache is {store.root}", hint="build the recipe first, or push the whole cache",
        )
    found: list[str] = read_root(path)["keys"]
    return found
