"""A limit of a remote cache's size: as of a local one, from what builds note of their use."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from npuflow.base.errors import NpuflowError, StoreError, UsageError
from npuflow.flow.store_limit import Entry, Shrunk
from npuflow.flow.store_manifest import Damaged, sealed, unsealed
from npuflow.flow.store_remote import USES, Remote, _send, name_of

GRACE = 3600.0
"""Seconds for which what a build has used stays: a running build writes its note again every minute."""
OFTEN = 3600.0
"""Seconds in which builds look at the size of a remote cache once."""
_MANY = 500         # files that are deleted with one request


def shrink_remote(remote: Remote, limit: int, grace: float = GRACE, *, dry: bool = False) -> Shrunk:
    """Remove what was not used for longest until the remote cache has at most `limit` bytes. What was
    uploaded or used in the last `grace` seconds stays. A remote that fails is an error."""
    if remote.mode != "read-write" and not dry:
        raise UsageError(
            f"the remote cache {remote.shown} is only read: nothing of it can be removed",
            hint='remote_mode = "read-write"', code="NF-REMOTE-007",
        )
    remote.reach()
    try:
        return _shrunk(*remote.files(), limit, grace, dry=dry)
    except NpuflowError:
        raise
    except Exception as fault:  # every file system has errors of its own
        raise _failed(remote, fault) from fault


def keep_small(remote: Remote) -> Shrunk | None:
    """Keep the limit of a remote cache that has one, unless a build has looked at it in the last hour."""
    if remote.limit is None or remote.mode != "read-write" or remote.down:
        return None
    try:
        fs, base = remote.files()
        mark = f"{base}/{USES}/.looked"
        with suppress(FileNotFoundError):
            if _clock(fs, base) - _modified(fs.info(mark)) < OFTEN:
                return None
        _send(fs, mark, lambda out: out.write(b"now"))
    except Exception as fault:  # every file system has errors of its own
        raise _failed(remote, fault) from fault
    return shrink_remote(remote, remote.limit)


def _failed(remote: Remote, fault: Exception) -> StoreError:
    return StoreError(
        f"the remote cache {remote.shown} cannot be made smaller: {fault}", code="NF-REMOTE-008",
        because=type(fault).__name__, hint="check the right to list and to delete; then the same command",
    )


def _shrunk(fs: Any, base: str, limit: int, grace: float, *, dry: bool) -> Shrunk:
    clock = time.time() if dry else _clock(fs, base)
    notes, used = _notes(fs, base)
    entries, names = [], dict[str, str]()
    for path, about in (*_listed(fs, f"{base}/records"), *_listed(fs, f"{base}/objects")):
        name = name_of(base, path)
        if name is None:
            continue
        names[path] = name
        when = max(_modified(about), used.get(name, 0.0))
        entries.append(Entry(when, int(about["size"] or 0), name.partition("/")[0][:-1], path))
    total = sum(one.size for one in entries)
    found, doomed = Shrunk(limit=limit), list[Entry]()
    for one in sorted(entries):
        if total <= limit:
            break
        if one.used < clock - grace:
            doomed.append(one)
            total -= one.size
    if not dry:
        _, again = _notes(fs, base)  # a build may have come meanwhile
        doomed = [one for one in doomed if again.get(names[one.path], 0.0) < clock - grace]
        for kind in ("record", "object"):  # a record before its objects: it is useless without them
            _delete(fs, [one.path for one in doomed if one.kind == kind])
        gone = {names[one.path] for one in doomed}
        left = {name: when for name, when in again.items() if name not in gone and name in {*names.values()}}
        _fold(fs, base, notes, left, clock - grace)
    for one in doomed:
        setattr(found, f"{one.kind}s", getattr(found, f"{one.kind}s") + 1)
    found.bytes = sum(one.size for one in doomed)
    found.left = sum(one.size for one in entries) - found.bytes
    return found


def _listed(fs: Any, folder: str) -> Any:
    """Path and facts of every file in a remote folder, at any depth; none where there is no folder."""
    try:
        found: dict[str, dict[str, Any]] = fs.find(folder, detail=True)
    except FileNotFoundError:
        found = {}
    return found.items()


def _modified(about: Mapping[str, Any]) -> float:
    """When a remote file was written, by the server's clock; each file system has its own word for it."""
    for word in ("LastModified", "mtime", "last_modified", "updated", "created"):
        value = about.get(word)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).timestamp()
    return time.time()  # unknown: it counts as young, and stays


def _notes(fs: Any, base: str) -> tuple[dict[str, float], dict[str, float]]:
    """The notes of builds with their times, and the last use of every name in them."""
    notes, used = dict[str, float](), dict[str, float]()
    for path, about in _listed(fs, f"{base}/{USES}"):
        if path.rpartition("/")[2].startswith("."):
            continue
        written = notes[path] = _modified(about)
        with suppress(Damaged, FileNotFoundError, ValueError, KeyError, AttributeError):
            body = unsealed(fs.cat_file(path), "note", path)
            for name, when in body["used"].items():
                used[name] = max(used.get(name, 0.0), written if when is None else float(when))
    return notes, used


def _fold(fs: Any, base: str, notes: Mapping[str, float], used: Mapping[str, float], before: float) -> None:
    """Put the notes of builds that ended long ago into one."""
    old = [path for path, when in notes.items() if when < before]
    if len(old) > 1:
        data = sealed({"v": 1, "used": dict(used)})
        _send(fs, f"{base}/{USES}/{secrets.token_hex(8)}.json", lambda out: out.write(data))
        _delete(fs, old)


def _delete(fs: Any, paths: Iterable[str]) -> None:
    """Delete files; one that another process deleted first is no fault."""
    todo = list(paths)
    for start in range(0, len(todo), _MANY):
        some = todo[start : start + _MANY]
        try:
            fs.rm(some)
        except FileNotFoundError:
            for path in some:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


def _clock(fs: Any, base: str) -> float:
    """The clock of the server, which may not be this machine's."""
    path = f"{base}/{USES}/.clock-{secrets.token_hex(8)}"
    _send(fs, path, lambda out: out.write(b"now"))
    try:
        return _modified(fs.info(path))
    finally:
        with suppress(Exception):
            fs.rm_file(path)
