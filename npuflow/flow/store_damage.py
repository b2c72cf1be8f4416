"""Notes what was found damaged in a cache or the remote one behind it, across processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from npuflow.flow import store_files as files

LOCAL, LEFT, REMOTE, ABSENT = "local", "left", "remote", "absent"
"""Where damage was: in the cache, in a cache that can only be read, in the remote cache; or the remote cache
does not give what it had."""
_REPLACED = ".replaced"
_FOLDER = "damage"


class Damages:
    """Notes of damage, each thing once. With the folder of a lease the notes are files in it, so that what
    one process of a build found is known to all of them; without one they are this process's own."""

    def __init__(self, lease: Path | None = None) -> None:
        self._folder = f"{lease}/{_FOLDER}" if lease is not None else ""
        self._own: dict[str, bool] = {}

    def note(self, where: str, name: str) -> None:
        """Something is damaged (or `ABSENT`). `name`: objects/DIGEST, records/KEY, or a path in the cache."""
        mark = _mark(where, name)
        if self._folder:
            with suppress(OSError):
                with suppress(FileExistsError):
                    os.mkdir(self._folder)  # noqa: PTH102 (not its parents: a lease that is gone stays gone)
                with suppress(FileExistsError):
                    files.write(f"{self._folder}/{mark}", b"")
                return
        self._own.setdefault(mark, False)

    def distrusted(self, name: str) -> bool:
        """Whether the remote cache is not to be asked for this: what it has is damaged, or did not come."""
        return any(self._noted(_mark(where, name)) for where in (REMOTE, ABSENT))

    def replaced(self, name: str) -> None:
        """What was damaged in the remote cache has been written again."""
        mark = _mark(REMOTE, name)
        if self._own.get(mark) is False:
            self._own[mark] = True
        if self._folder:
            with suppress(OSError):
                os.replace(f"{self._folder}/{mark}", f"{self._folder}/{mark}{_REPLACED}")  # noqa: PTH105
            files.unlink(f"{self._folder}/{_mark(ABSENT, name)}")
        self._own.pop(_mark(ABSENT, name), None)

    def _noted(self, mark: str) -> bool:
        if self._own.get(mark) is False:
            return True
        return bool(self._folder) and os.path.exists(f"{self._folder}/{mark}")  # noqa: PTH110

    def all(self) -> Mapping[str, bool]:
        """Every note -> whether the thing has been replaced."""
        found = dict(self._own)
        with suppress(OSError):
            for name in os.listdir(self._folder or os.devnull):  # noqa: PTH208
                mark = name.removesuffix(_REPLACED)
                found[mark] = found.get(mark, False) or name != mark
        return found

    def told(self, root: Path, remote: str, readonly: bool) -> list[tuple[str, str]]:
        """At most one warning for each of the two caches, with what to do: how much was damaged, and what
        came of it. `remote`: its name; `readonly`: this build does not write to it."""
        local, behind, replaced, left = Counter[str](), Counter[str](), 0, False
        for mark, again in self.all().items():
            where, _, name = mark.partition("-")
            if where in (LOCAL, LEFT):
                local[_kind(name)] += 1
                left |= where == LEFT
            elif where == REMOTE:
                behind[_kind(name)] += 1
                replaced += again
        texts = []
        if local:
            done = f"set aside in {root / 'quarantine'}, and what this build needs of it is built again"
            stays = "not used; it stays there, because this cache can only be read"
            text = f"the cache {root} had damage in {_counted(local)}: {stays if left else done}"
            hint = "`npuflow cache verify` reads all of the cache; repeated damage is a fault of the disk"
            texts.append((text, hint))
        if behind:
            texts.append(_of_remote(behind, replaced, remote, readonly))
        return texts

    def forget(self) -> None:
        """Drop this process's own notes, once they have been told."""
        self._own.clear()


def _of_remote(found: Counter[str], replaced: int, remote: str, readonly: bool) -> tuple[str, str]:
    total = found.total()
    done = "not used, and what this build needs of it is built again"
    if readonly:
        done += '; it stays there, because remote_mode = "read"'
        hint = 'a build with remote_mode = "read-write" and an empty local cache replaces them'
    else:
        done += f"; replaced there: {'all' if replaced == total else replaced}"
        hint = "nothing has to be done; repeated damage is a fault of the network, the disk or the server"
    return f"the remote cache {remote} had damage in {_counted(found)}: {done}", hint


def _counted(found: Counter[str]) -> str:
    """How many of what: 3 objects and 1 record."""
    return " and ".join(f"{found[kind]} {kind}{'s' if found[kind] > 1 else ''}" for kind in sorted(found))


def _kind(name: str) -> str:
    kind = name.partition("%2F")[0]
    return {"objects": "object", "records": "record", "roots": "root"}.get(kind, "file")


def _mark(where: str, name: str) -> str:
    return f"{where}-{quote(name, safe='')}"
