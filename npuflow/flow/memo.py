"""The no-op memo: proof by file fingerprints that a build would find everything as its last run left it.

The proof covers what the build read (recipe, sources, code, plug-in metadata) and what it gave (records,
objects, products, lock). It is light on purpose: it imports neither stages nor recipe nor store. A memo that
is lost, damaged or out of date costs one ordinary build; it cannot change an answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from npuflow.base.code_loaded import LOADED
from npuflow.base.digest import digest, digest_file
from npuflow.base.files import doubtful, fingerprint

VERSION = 2
_METADATA = (".dist-info", ".egg-info", ".egg-link", ".pth")


class Memo:
    """What must still hold: files of equal fingerprint, doubtful ones of equal
    bytes, folders of equal names."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.path = folder / "memo" / f"noop-{_name(command)}.json"
        self.payload: Any = None
        self._body: dict[str, Any] = {}

    def holds(self) -> bool:
        """Whether nothing has changed since the memo was written."""
        try:
            head, _, body = self.path.read_bytes().partition(b"\n")
            if head.decode() != _check(body):
                return False
            self._body = json.loads(body)
            if self._body["version"] != VERSION or self._body["world"] != _world():
                return False
            if not (_same_files(self._body["files"]) and _same_names(self._body["folders"], names)):
                return False
            if not _same_names(self._body["installed"], _installed):
                return False
            if not self._same_bytes():
                return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self.payload = self._body["payload"]
        for path in self._body.get("roots", ()):  # nothing is looked up, but all of it is used
            with suppress(OSError):
                os.utime(path)
        return True

    def write(
        self,
        begun: int,
        inputs: dict[str, str | None],
        outputs: Sequence[str],
        folders: dict[str, str],
        payload: Any,
        roots: Sequence[str] = (),
    ) -> bool:
        """Write the proof for a build that began at `begun` (ns). False if something
        it read changed meanwhile.

        inputs: path -> the digest of what was read, if known. outputs: files written by npuflow itself.
        folders: path -> names in it (see `names`), taken before it was made sure that nothing had come in.
        roots: files of the cache that say what the last build of a place used.
        """
        files: list[Any] = []
        hashed: dict[str, str] = {}
        try:
            for path, seen in inputs.items():
                stat = fingerprint(path)
                if max(stat[1], stat[2]) >= begun and seen is None:
                    return False  # it changed while it was read: nobody knows which bytes took part
                if doubtful(stat, begun):
                    hashed[path] = seen if seen is not None else digest_file(path)
                else:
                    files.append([path, *stat])
            files += [[path, *fingerprint(path)] for path in outputs]
            points, places = metadata()
            files += [[path, *fingerprint(path)] for path in points]
            installed = {path: _installed(path) for path in places}
        except OSError:
            return False
        body = {
            "version": VERSION,
            "world": _world(),
            "files": files,
            "hashed": hashed,
            "folders": folders,
            "installed": installed,
            "payload": payload,
            "roots": list(roots),
        }
        return self._put(body)

    def _same_bytes(self) -> bool:
        """Check the doubtful files by content; those that have come of age are then known by fingerprint."""
        hashed: dict[str, str] = self._body["hashed"]
        grown = False
        for path, wanted in list(hashed.items()):
            stat, now = fingerprint(path), time.time_ns()
            if digest_file(path) != wanted:
                return False
            if not doubtful(stat, now) and fingerprint(path) == stat:
                del hashed[path]
                self._body["files"].append([path, *stat])
                grown = True
        if grown:
            self._put(self._body)
        return True

    def _put(self, body: dict[str, Any]) -> bool:
        text = json.dumps(body, separators=(",", ":")).encode()
        made = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(_check(text).encode() + b"\n" + text)
            made.replace(self.path)
        except OSError:
            return False  # an unwritable cache is reported elsewhere
        return True


def metadata() -> tuple[list[str], list[str]]:
    """(files, folders) that say which packages are installed, in which version, with which plug-ins."""
    files: list[str] = []
    folders: list[str] = []
    for place in dict.fromkeys(os.path.abspath(p) for p in sys.path if p):  # noqa: PTH100
        try:
            names = [name for name in os.listdir(place) if name.endswith(_METADATA)]  # noqa: PTH208
        except OSError:
            continue
        folders.append(place)
        for name in names:
            points = os.path.join(place, name, "entry_points.txt")  # noqa: PTH118
            if os.path.exists(points):  # noqa: PTH110
                files.append(points)
    return files, folders


def _same_files(files: list[list[Any]]) -> bool:
    stat = os.stat
    for path, size, mtime, ctime, inode, device in files:
        found = stat(path)
        if (
            found.st_mtime_ns != mtime
            or found.st_size != size
            or found.st_ctime_ns != ctime
            or found.st_ino != inode
            or found.st_dev != device
        ):
            return False
    return True


def _same_names(folders: dict[str, str], names_of: Callable[[str], str]) -> bool:
    return all(names_of(path) == seen for path, seen in folders.items())


def names(path: str) -> str:
    """The names in a folder, as a digest; byte-compiled files come and go without meaning."""
    found = os.listdir(path)  # noqa: PTH208
    # as one text, since no name holds a slash: there may be thousands
    return digest("/".join(sorted(name for name in found if name != "__pycache__")))


def _installed(path: str) -> str:
    """Of a folder of packages only the metadata: names hold versions, and anything may lie beside them."""
    return digest(sorted(name for name in os.listdir(path) if name.endswith(_METADATA)))  # noqa: PTH208


def _world() -> list[str]:
    """The interpreter and machine; another one has other keys or another view of the files. Folders that a
    recipe's own functions were imported from follow from the recipe; those that are gone (dask puts its
    scratch folders there) have no modules."""
    there = os.path.exists
    places = [p for p in sys.path if p not in LOADED.renewed and (p[:1] != "/" or there(p))]
    return [sys.version, sys.prefix, os.uname().nodename, digest(places)]


def _name(command: Sequence[str]) -> str:
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NPUFLOW_"))
    return digest([list(command), settings, os.getcwd()]).partition(":")[2]  # noqa: PTH109


def _check(text: bytes) -> str:
    return digest(["no-op memo", text])
