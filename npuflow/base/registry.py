"""Registries: a folder of entries, found by file name, plus plug-ins announced by installed packages."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import InputError, InternalError, NpuflowError, suggestion

T = TypeVar("T")

_touched: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("npuflow_touched", default=None)


class UnknownEntryError(InputError, KeyError):
    """A name that no file of the registry has."""

    __str__ = NpuflowError.__str__


@dataclass(frozen=True)
class EntrySource:
    """Where an entry lives: its module, the marked name if a plug-in states one, and who brings it."""

    module: str
    attribute: str | None = None
    plugin: str | None = None


class Registry:
    """Named entries, one per file of a package; reading the names imports none of them."""

    known: ClassVar[dict[str, Registry]] = {}

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        self._marked: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        self._sources: dict[str, EntrySource] | None = None
        Registry.known[name] = self
        LOADED.own.add(package.partition(".")[0])

    @classmethod
    def unlisted(cls, name: str, package: str) -> Registry:
        """A registry for looking only: it does not become the one known by its name."""
        self = object.__new__(cls)
        self.name, self.package = name, package
        self._marked, self._loaded, self._sources = {}, {}, None
        LOADED.own.add(package.partition(".")[0])
        return self

    @classmethod
    def at_hand(cls, name: str, package: str) -> Registry:
        """The registry known by its name if it is of that package, else one for looking only."""
        known = cls.known.get(name)
        return known if known is not None and known.package == package else cls.unlisted(name, package)

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, {self.package!r})"

    def entry(self, target: T) -> T:
        """Mark the one function or class that its file contributes."""
        module, name = target.__module__, getattr(target, "__qualname__", "?")
        other = self._marked.get(module)
        if other is not None and getattr(other, "__qualname__", "?") != name:
            raise InternalError(
                f"{module} marks two entries of {self.name}: {other.__qualname__} and {name}",
                code="NF-INTERNAL-001",
            )
        self._marked[module] = target
        return target

    def sources(self) -> dict[str, EntrySource]:
        """Entry name -> where it lives, from the folder's listing and the installed packages' metadata."""
        if self._sources is None:
            self._sources = self._scan()
        return self._sources

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.sources()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.sources())

    def __contains__(self, name: object) -> bool:
        return name in self.sources()

    def __getitem__(self, name: str) -> Any:
        touched = _touched.get()
        if touched is not None:
            touched.add(f"{self.name}/{name}")
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self.source(name))
        return self._loaded[name]

    def every(self) -> dict[str, Any]:
        """All entries by name. Code that calls this has all of them in its key, each narrowed
        to the methods that it names."""
        return {name: self[name] for name in self.names()}

    def source(self, name: str) -> EntrySource:
        found = self.sources().get(name)
        if found is None:
            raise UnknownEntryError(
                f'{self.name} has no "{name}"', hint=suggestion(name, self.names()), code="NF-RECIPE-001",
            )
        return found

    def doc(self, name: str) -> str:
        """The first sentence of the entry's docstring, or of its file's."""
        entry = self[name]
        text = getattr(entry, "__doc__", None) or sys.modules[self.source(name).module].__doc__ or ""
        return caption(text)

    def forget(self) -> None:
        """Scan and import again on next use (after files changed under a running process)."""
        self._sources = None
        # A module that stays imported does not run its decorator again: what it marked stays marked.
        self._marked = {module: entry for module, entry in self._marked.items() if module in sys.modules}
        self._loaded.clear()

    def _scan(self) -> dict[str, EntrySource]:
        found = {name: EntrySource(f"{self.package}.{name}") for name in _stems(self.package)}
        for name, source in _plugins(self.package):
            if name in found:
                owners = [found[name].plugin or self.package, source.plugin]
                raise InputError(
                    f'two entries of {self.name} are called "{name}"',
                    because=f"{owners[0]} and {owners[1]} both provide one",
                    hint="rename one, or uninstall one of the packages", code="NF-USAGE-001",
                )
            found[name] = source
        return found

    def _load(self, name: str, source: EntrySource) -> Any:
        module = importlib.import_module(source.module)
        if source.attribute is not None:
            return getattr(module, source.attribute)
        marked = self._marked.get(source.module) or _self_marked(module)
        if marked is None:
            raise InternalError(
                f"{source.module} marks no entry of {self.name}",
                hint=f"decorate its function or class with the {self.name} registry's entry",
                code="NF-INTERNAL-002",
            )
        return marked


def caption(doc: str | None) -> str:
    """The first sentence of a docstring, on one line: its first lines, up to one that ends a sentence."""
    found: list[str] = []
    for line in (doc or "").strip().splitlines():
        if not line.strip():
            break
        found.append(line.strip())
        if line.rstrip().endswith((".", "!", "?")):
            break
    return " ".join(found)


@contextlib.contextmanager
def touching() -> Iterator[set[str]]:
    """Collect "registry/name" of every entry used inside, so that a run can be held to its key."""
    seen: set[str] = set()
    token = _touched.set(seen)
    try:
        yield seen
    finally:
        _touched.reset(token)


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Inside, entries are used for somebody else: to read or write an artifact,
    whose format is its own affair."""
    token = _touched.set(None)
    try:
        yield
    finally:
        _touched.reset(token)


def forget_all() -> None:
    """Every registry scans again on next use."""
    for registry in Registry.known.values():
        registry.forget()
    _entry_points.cache = None


def folders(package: str) -> list[Path]:
    """The folders of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise InternalError(f"{package} is not a package with a folder", code="NF-INTERNAL-003")
    return [Path(place) for place in spec.submodule_search_locations]


def _stems(package: str) -> Iterator[str]:
    for folder in folders(package):
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py" and not path.name.startswith("_"):
                yield path.stem
            elif path.is_dir() and not path.name.startswith("_") and (path / "__init__.py").is_file():
                yield path.name


def _self_marked(module: ModuleType) -> Any:
    """The object of this module that carries its own mark (a stage), if there is exactly one."""
    found = [o for o in vars(module).values() if getattr(o, "__entry__", None) == module.__name__]
    if len({id(o) for o in found}) > 1:
        raise InternalError(
            f"{module.__name__} marks several entries", hint="keep one per file", code="NF-INTERNAL-004",
        )
    return found[0] if found else None


class _EntryPoints:
    """Installed entry points by group, read once per process."""

    cache: dict[str, list[tuple[str, EntrySource]]] | None = None

    def __call__(self) -> dict[str, list[tuple[str, EntrySource]]]:
        if self.cache is None:
            from importlib.metadata import distributions  # slow to import

            self.cache = {}
            seen: set[str] = set()
            for dist in distributions():
                name = dist.metadata["Name"] if (points := dist.entry_points) else None
                if name is None or name in seen:  # the first on sys.path shadows later ones, as in imports
                    continue
                seen.add(name)
                for point in points:
                    source = EntrySource(point.module, point.attr or None, name)
                    self.cache.setdefault(point.group, []).append((point.name, source))
        return self.cache


_entry_points = _EntryPoints()


def _plugins(package: str) -> list[tuple[str, EntrySource]]:
    found = sorted(_entry_points().get(package, []), key=lambda pair: pair[0])
    LOADED.own.update(source.module.partition(".")[0] for _, source in found)
    return found
