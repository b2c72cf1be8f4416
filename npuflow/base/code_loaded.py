"""Which text of each source file this process runs, noted at imports and compared with what keys hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_VENDORS = ("site-packages", "dist-packages")

Mark = tuple[int, int, int]


def _mark(path: str) -> Mark | None:
    """What changes when a source file is edited: size, time, inode; None if it is gone."""
    try:
        found = os.stat(path)  # noqa: PTH116  (hot: every module that is imported)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


class LoadedSources:
    """The files of this process's modules as they were when Python loaded them, and as they were when keys
    read them.

    A key states the text of a file, and a process runs what it imported. Both are the same text unless the
    file was edited in between; then nothing that this process makes may be stored. It stands in
    `sys.meta_path` and finds nothing of its own: it notes what the finders behind it find. Installed
    packages are left out, as keys hold their versions, but for `own` ones.
    """

    def __init__(self) -> None:
        self.own = {"npuflow"}
        """Top-level packages whose sources count wherever they are installed."""
        self.renewed: set[str] = set()
        """Folders beside recipes, whose modules are imported anew where they were edited."""
        self._vendors: dict[str, bool] = {}
        self._loaded: dict[str, tuple[str, Mark | None]] = {}
        self._read: dict[str, Mark | None] = {}
        self._data: set[str] = set()
        self._differ: set[str] = set()
        self.times = 0
        """How often keys began to read all files anew."""

    # What the import system asks for.

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, noted. A name that is imported already was only looked up."""
        top = name.partition(".")[0]
        if top not in self.own and (top in sys.stdlib_module_names or self._vendors.get(top)):
            return None
        spec = self._found(name, path, target)
        if spec is None or not spec.has_location or not spec.origin:
            return spec
        if top == name:
            self._vendors[top] = any(f"/{one}/" in spec.origin for one in _VENDORS)
        if not spec.origin.endswith(".py") or (top not in self.own and self._vendors.get(top)):
            return spec
        if target is not None or name not in sys.modules:
            self._loaded[spec.origin] = name, _mark(spec.origin)
            self._compare(spec.origin)
        return spec

    def _found(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                return spec
        return None

    # What keys are computed from.

    def read(self, path: str) -> None:
        """A file is about to be read for keys."""
        self._read[path] = _mark(path)
        if path.endswith(".py"):
            self._compare(path)
        else:
            self._data.add(path)

    @property
    def known(self) -> int:
        """How many files keys have read."""
        return len(self._read)

    def forget(self) -> None:
        """Keys read all files again."""
        self._read.clear()
        self._data.clear()
        self._differ.clear()
        self.times += 1

    def _compare(self, path: str) -> None:
        differ = path in self._read and path in self._loaded and self._read[path] != self._loaded[path][1]
        (self._differ.add if differ else self._differ.discard)(path)

    # What the build asks.

    def mixed(self) -> list[str]:
        """Files of which this process runs another text than its keys state, and data files of packages
        that were edited since keys read them."""
        found = [path for path in list(self._differ) if self._runs(path)]
        found += [path for path in list(self._data) if _mark(path) != self._read.get(path)]
        return sorted(found)

    def outdated(self, folder: str | None = None) -> list[str]:
        """Files edited since this process loaded them: those below a folder, or all but `renewed` ones."""
        found = []
        for path, (name, mark) in list(self._loaded.items()):
            below = (folder,) if folder is not None else self.renewed
            asked = any(path.startswith(f"{one}/") for one in below) and self.may_go(name, path)
            asked = asked if folder is not None else not asked
            if asked and self._runs(path) and _mark(path) != mark:
                found.append(path)
        return sorted(found)

    @staticmethod
    def may_go(name: str, path: str) -> bool:
        """Whether a module below a recipe's folder is the user's own: it may hold environments too."""
        return name.partition(".")[0] != "npuflow" and not any(f"/{one}/" in path for one in _VENDORS)

    def edited(self) -> list[str]:
        """Files edited since keys of this process read them."""
        return sorted(path for path, mark in list(self._read.items()) if _mark(path) != mark)

    def _runs(self, path: str) -> bool:
        module = sys.modules.get(self._loaded[path][0])
        return module is not None and getattr(module, "__file__", None) == path


LOADED = LoadedSources()
"""Of this process."""
sys.meta_path.insert(0, LOADED)
