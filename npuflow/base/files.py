"""File digests behind a memo of stat fingerprints: a file that did not change is read once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from npuflow.base.digest import digest_file
from npuflow.base.memo_file import read_memo, write_memo

DOUBTFUL_NS = 2_000_000_000
"""A file hashed this soon after its last change may have changed again within one tick
of its file system's clock."""

_MAKER = "files/1"

Stat = tuple[int, int, int, int, int]


def fingerprint(path: str | os.PathLike[str]) -> Stat:
    """What changes when a file's bytes do: size, mtime, ctime, inode, device."""
    found = os.stat(path)  # noqa: PTH116  (hot: thousands of files in a build with nothing to do)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def doubtful(stat: Stat, now: int) -> bool:
    """Whether a file looked at `now` could change without its fingerprint changing."""
    return now - max(stat[1], stat[2]) < DOUBTFUL_NS


class ByteSink(Protocol):
    """Where bytes go: an open file, a buffer, a file that is digested as it is written."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class ByteCount:
    """A sink that counts its bytes and keeps none."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self.size += len(data)


class FileDigests:
    """Digests by path; optionally kept in a file between processes. A wrong or lost memo costs time only."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stat, str, bool]] = {}
        self._used: dict[str, str] = {}
        self._path: Path | None = None
        self._fresh = False

    def digest(self, path: str | os.PathLike[str]) -> str:
        name = os.path.abspath(path)  # noqa: PTH100
        stat, now = fingerprint(name), time.time_ns()
        known = self._known.get(name)
        if known is not None and known[0] == stat and not known[2]:
            self._used[name] = known[1]
            return known[1]
        found = self._used[name] = digest_file(name)
        # A file that changes while it is read is as doubtful as one that has just changed.
        self._known[name] = stat, found, doubtful(stat, now) or fingerprint(name) != stat
        self._fresh = True
        return found

    def seen(self, path: str | os.PathLike[str]) -> tuple[int, int] | None:
        """Size and time of a file when it was digested, as all machines see them; None if it was not."""
        known = self._known.get(os.path.abspath(path))  # noqa: PTH100
        return None if known is None else known[0][:2]

    def used(self) -> dict[str, str]:
        """Path -> digest of every file asked for in this process."""
        return self._used

    def open(self, path: Path) -> None:
        """Remember through this file: what it holds is taken over, and `save` writes it."""
        self._path = path
        for name, (stat, found) in (read_memo(path, _MAKER) or {}).items():
            self._known.setdefault(name, (tuple(stat), found, False))

    def save(self) -> None:
        """Write what is certain; failing to is no fault of the build."""
        if self._path is None or not self._fresh:
            return
        kept = {name: (stat, found) for name, (stat, found, doubt) in self._known.items() if not doubt}
        self._fresh = not write_memo(self._path, _MAKER, kept)

    def forget(self) -> None:
        self._known.clear()
        self._used.clear()
        self._path = None


DIGESTS = FileDigests()
"""The memo of this process."""


def file_digest(path: str | os.PathLike[str]) -> str:
    """The digest of a file's bytes, from the memo if the file has not changed."""
    return DIGESTS.digest(path)
