"""The code part of a key: a digest of every definition that a function can statically reach."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from npuflow.base.code_class import Mentions
from npuflow.base.code_find import CodeError
from npuflow.base.code_kept import KEPT, Closure, Mark
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_memo import PICTURES
from npuflow.base.code_sources import Sources
from npuflow.base.code_steps import StepTable
from npuflow.base.code_walk import ClosureWalk
from npuflow.base.digest import digest
from npuflow.base.registry import Registry

__all__ = [
    "Closure",
    "CodeError",
    "Mentions",
    "closure",
    "definition_closure",
    "entry_closure",
    "facets_of",
    "files_read",
    "forget",
    "open_memo",
    "package_file",
    "plugin_closure",
    "registry_named",
    "save_memo",
    "whole_digest",
]


class _State:
    """What this process has read so far."""

    sources = Sources()
    steps = StepTable(sources)
    passing: dict[Mark, Closure] = {}  # noqa: RUF012
    """Closures that hold in this process only."""


def closure(target: Any) -> Closure:
    """The closure of a function or class."""
    target = inspect.unwrap(target)
    return definition_closure(target.__module__, target.__qualname__.partition(".")[0])


def definition_closure(module: str, name: str) -> Closure:
    """The closure of a module's top-level name, which need not have been imported."""
    return _closure(module, name, None, False)


def entry_closure(
    module: str, attribute: str | None = None, facets: tuple[str, ...] | None = None
) -> Closure:
    """The closure of what a registry's file marks, or of one of its names; narrowed to the
    methods in `facets`, if given."""
    return _closure(module, attribute, facets, True)


def plugin_closure(registry: Registry, name: str, facets: tuple[str, ...] | None = None) -> Closure:
    """The code behind a registry's entry, narrowed to some of its methods if facets are given."""
    source = registry.source(name)
    return entry_closure(source.module, source.attribute, facets)


def registry_named(name: str) -> Registry | None:
    """A registry that code in reach names an entry of, or that has been imported."""
    return _State.sources.registries.get(name) or Registry.known.get(name)


def whole_digest(target: Any) -> str:
    """The digest of a function with all of the entries that its code names by constants."""
    found = closure(target)
    labels, digests = set(found.entries), {"": found.digest}
    while left := labels - digests.keys():
        for label in left:
            name, _, entry = label.partition("/")
            registry = registry_named(name)
            assert registry is not None, f"no registry {name}"
            one = plugin_closure(registry, entry)
            digests[label] = one.digest
            labels |= one.entries
    return digest(digests)


def facets_of(registry: Registry, name: str, wanted: Mentions) -> tuple[str, ...] | None:
    """The methods of an entry that code may use which mentions `wanted`; None if the entry is no class."""
    source = registry.source(name)
    mark = (source.module, source.attribute)
    if mark not in KEPT.forms:
        KEPT.forms[mark] = ClosureWalk(_State.sources, _State.steps).forms(*mark)
    forms = KEPT.forms[mark]
    if forms is None:
        return None
    named = wanted.heads & forms.keys()
    return tuple(sorted(name for name in named if any(wanted.names(name, one) for one in forms[name])))


def forget() -> None:
    """Read all sources again on next use (after files changed under a running process)."""
    LOADED.forget()
    _State.sources = Sources()
    _State.steps = StepTable(_State.sources)
    _State.passing.clear()
    KEPT.forget()


def open_memo(folder: Path) -> None:
    """Take over what earlier processes found, as far as it still holds; `save_memo` writes this one's."""
    PICTURES.open(folder / "code.json")
    KEPT.open(folder / "closures.json", _State.sources)


def save_memo() -> None:
    """Let later processes know what this one found."""
    PICTURES.save()
    KEPT.save(_State.sources)


def files_read() -> dict[str, str]:
    """Every source and data file that closures of this process read: path -> digest of its bytes."""
    return _State.sources.read()


def package_file(name: str) -> Path:
    """A data file beside the calling Python file. Written with a constant name, it
    enters the keys of what calls it."""
    caller = sys._getframe(1).f_globals["__file__"]
    return Path(caller).parent / name


def _closure(module: str, name: str | None, facets: tuple[str, ...] | None, entry: bool) -> Closure:
    mark = (module, name, facets, entry)
    found = KEPT.closures.get(mark) or _State.passing.get(mark)
    if found is None:
        walk = ClosureWalk(_State.sources, _State.steps)
        if entry or name is None:
            walk.entry(module, name, facets)
        else:
            walk.definition(module, name)
        found = (KEPT.closures if walk.lasting else _State.passing)[mark] = _sealed(walk)
    return found


def _sealed(walk: ClosureWalk) -> Closure:
    definitions, files = dict(sorted(walk.definitions.items())), dict(sorted(walk.files.items()))
    libraries = dict(sorted(walk.libraries.items()))
    whole = digest({"definitions": definitions, "files": files})
    return Closure(whole, definitions, libraries, files, frozenset(walk.entries), frozenset(walk.mentions))
