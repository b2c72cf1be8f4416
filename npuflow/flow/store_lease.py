"""Leases of running builds and roots of finished ones: what a collection of garbage must leave alone."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from npuflow.base.errors import StoreError
from npuflow.flow import store_files as files
from npuflow.flow.store_manifest import Damaged, bytes_digest, sealed, unsealed

BEAT = 5.0
STALE = 60.0  # seconds without a heartbeat after which a lease of another machine is dead


def start_time(pid: int) -> str:
    """When a process of this machine began, so that a reused number is not taken for the same process."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


class Lease:
    """A running build's claim to everything that it uses: a folder with a heartbeat, and a file as old as the
    build. A lookup sets the time of what it finds, so that a collection sees by age what builds use.
    """

    def __init__(self, root: Path) -> None:
        self.name = files.fresh(root).name
        self._folder = root / "leases" / self.name
        self._stop = threading.Event()
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "start": start_time(os.getpid())}
        made = root / "tmp" / f"{self.name}.lease"
        with files.writing(root):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            while not self._folder.exists():
                with suppress(FileNotFoundError):  # a collection took it for debris before it was a lease
                    try:
                        made.mkdir(parents=True, exist_ok=True)
                        (made / "begun").touch()
                        (made / "beat").write_text(json.dumps(owner))
                        made.rename(self._folder)  # a lease is never seen without its owner
                    except OSError:
                        files.remove(made)
                        raise
        threading.Thread(target=self._beat, name="npuflow-lease", daemon=True).start()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            with suppress(OSError):
                os.utime(self._folder / "beat")

    def release(self) -> None:
        self._stop.set()
        files.remove(self._folder)


def claim(root: Path) -> Lease | files.Unwritable:
    """A build's lease; or why the cache takes none, where a build can still find everything in it."""
    try:
        return Lease(root)
    except files.Unwritable as refused:
        if not (refused.readonly or refused.full) or not (root / "objects").is_dir():
            raise
        return refused


def lacking(root: Path, refused: files.Unwritable, step: str, item: str | None) -> StoreError:
    """The error of a build that needs more than a cache has that takes nothing."""
    own = "another cache: --cache DIR or NPUFLOW_CACHE"
    copy = f"{own}; a copy of this one (cp -r {root} DIR) has all that it has"
    error = StoreError(
        f"{step} has to run, and the cache {root} cannot take what it gives",
        because=f"{refused.reason}, and the cache lacks this step",
        hint=f"make room: {files.ROOM}; or {own}" if refused.full else copy, code="NF-STORE-019",
    )
    error.at(stage=step, item=item)
    return error


def now(root: Path) -> float:
    """The clock of the file system that holds the cache, which may not be this machine's."""
    probe = files.fresh(root / "tmp", "clock-")
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        files.unlink(str(probe))


def alive(folder: Path, clock: float) -> bool:
    """Whether a lease's build still runs, as far as this machine can tell."""
    try:
        beat = (folder / "beat").stat().st_mtime
        owner: dict[str, Any] = json.loads((folder / "beat").read_text())
    except (OSError, ValueError):
        return False
    if owner.get("host") == socket.gethostname():
        return bool(start_time(owner["pid"])) and start_time(owner["pid"]) == owner["start"]
    return clock - beat < STALE


def live(root: Path, clock: float) -> list[Path]:
    """The folders of live leases."""
    with suppress(OSError):
        return [folder for folder in sorted((root / "leases").iterdir()) if alive(folder, clock)]
    return []


def oldest(root: Path, clock: float) -> float:
    """When the first of the builds that run began, by the clock of the cache; infinity if none runs."""
    found = [math.inf]
    for folder in live(root, clock):
        with suppress(OSError):
            found.append((folder / "begun").stat().st_mtime)
    return min(found)


def add_root(
    root: Path,
    place: Path,
    keys: Iterable[str],
    errors: Iterable[Mapping[str, Any]] = (),
    part: bool = False,
) -> None:
    """Keep what the last build of this place used, for as long as the place exists. `errors`: why it failed,
    as `NpuflowError.as_dict` has it. `part`: the build stopped early; where an earlier one used all that it
    did and more, this one's root stays."""
    host, used = socket.gethostname(), sorted(set(keys))
    body: dict[str, Any] = {"v": 1, "place": str(place), "host": host, "keys": used}
    if failed := [dict(error) for error in errors]:
        body["errors"] = failed
    elif part and _holds(root_file(root, place), used):
        with suppress(OSError):
            os.utime(root_file(root, place))
        return
    with files.writing(root):
        files.replace(str(root_file(root, place)), sealed(body), f"{root}/tmp")


def _holds(path: Path, keys: Iterable[str]) -> bool:
    """Whether a root is of a build that succeeded and used these keys."""
    with suppress(Damaged, OSError):
        body = read_root(path)
        return not body.get("errors") and {*keys} <= {*body["keys"]}
    return False


def root_file(root: Path, place: Path) -> Path:
    """Where the root of a place is written."""
    return root / "roots" / f"{_root_name(str(place))}.json"


def read_root(path: Path) -> dict[str, Any]:
    """A root's place and keys, or `Damaged`."""
    try:
        body = unsealed(path.read_bytes(), f"root {path.stem}", str(path))
    except OSError as fault:
        raise Damaged(f"root {path.stem}", str(path), f"it cannot be read: {fault.strerror}") from fault
    if _root_name(body["place"]) != path.stem:
        raise Damaged(f"root {path.stem}", str(path), f"it is the root of {body['place']}")
    return body


def _root_name(place: str) -> str:
    return bytes_digest(place.encode()).partition(":")[2]
