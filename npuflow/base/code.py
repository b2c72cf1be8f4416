"""The code part of a key: a digest of every definition that a function can statically reach."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuflow.base.code_find import CodeError
from npuflow.base.code_sources import Sources
from npuflow.base.code_walk import Walk
from npuflow.base.digest import digest
from npuflow.base.registry import Registry

__all__ = [
    "Closure", "CodeError", "closure", "definition_closure", "entry_closure", "files_read", "forget", "package_file",
    "plugin_closure",
]  # fmt: skip


@dataclass(frozen=True)
class Closure:
    """What a piece of code consists of: definitions and data files by digest, libraries by version."""

    digest: str
    definitions: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    entries: frozenset[str] = frozenset()
    """Registry entries named by constants ("ops/relu"), whose code is in the digest."""


class _State:
    """What this process has read so far."""

    sources = Sources()
    closures: dict[tuple[str, str | None, tuple[str, ...], bool], Closure] = {}  # noqa: RUF012  (one per process)


def closure(target: Any) -> Closure:
    """The closure of a function or class."""
    target = inspect.unwrap(target)
    return definition_closure(target.__module__, target.__qualname__.partition(".")[0])


def definition_closure(module: str, name: str) -> Closure:
    """The closure of a module's top-level name, which need not have been imported."""
    return _closure(module, name, (), False)


def entry_closure(module: str, attribute: str | None = None, facets: tuple[str, ...] = ()) -> Closure:
    """The closure of what a registry's file marks, or of one of its names; narrowed to the methods in `facets`."""
    return _closure(module, attribute, facets, True)


def plugin_closure(registry: Registry, name: str, facets: tuple[str, ...] = ()) -> Closure:
    """The code behind a registry's entry, narrowed to some of its methods if facets are given."""
    source = registry.source(name)
    return entry_closure(source.module, source.attribute, facets)


def forget() -> None:
    """Read all sources again on next use (after files changed under a running process)."""
    _State.sources = Sources()
    _State.closures.clear()


def files_read() -> dict[str, str]:
    """Every source and data file that closures of this process read: path -> digest of its bytes."""
    return _State.sources.read()


def package_file(name: str) -> Path:
    """A data file beside the calling Python file. Written with a constant name, it enters the keys of what calls it."""
    caller = sys._getframe(1).f_globals["__file__"]
    return Path(caller).parent / name


def _closure(module: str, name: str | None, facets: tuple[str, ...], entry: bool) -> Closure:
    mark = (module, name, facets, entry)
    found = _State.closures.get(mark)
    if found is None:
        walk = Walk(_State.sources)
        if entry or name is None:
            walk.entry(module, name, facets)
        else:
            walk.definition(module, name)
        found = _State.closures[mark] = _sealed(walk)
    return found


def _sealed(walk: Walk) -> Closure:
    definitions, files = dict(sorted(walk.definitions.items())), dict(sorted(walk.files.items()))
    libraries = dict(sorted(walk.libraries.items()))
    whole = digest({"definitions": definitions, "files": files})
    return Closure(whole, definitions, libraries, files, frozenset(walk.entries))
