"""What a reference leads to where the text alone tells, worked out once for all walks that meet it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npuflow.base.code_find import CodeError, Place
from npuflow.base.code_late import IMPORTERS, refused
from npuflow.base.code_module import Facts, SourceModule
from npuflow.base.code_scope import ImportTarget, Reference
from npuflow.base.code_sources import Sources

IMPLICIT = {"__name__", "__doc__", "__spec__", "__package__", "__debug__", "__builtins__", "__annotations__"}
PACKAGE_FILE = "npuflow.base.code:package_file"


@dataclass(frozen=True, slots=True)
class Entered:
    """A module whose import runs."""

    place: Place


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition that is no registry and no artifact: it counts whole."""

    module: SourceModule
    name: str
    mark: tuple[str, str]
    """The names of both."""
    label: str


@dataclass(frozen=True, slots=True)
class Required:
    """Libraries, by version."""

    detail: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A reference that the walk has to follow itself: what it means depends on where the walk has been, or on
    how the reference is written, or it is refused."""

    reference: Reference


Step = Entered | Defined | Required | Followed
Steps = tuple[Step, ...]


class Fragment(NamedTuple):
    """What the walk needs of a piece of code: its steps, and what it mentions of other objects and of any."""

    facts: Facts
    steps: Steps
    other: frozenset[str]
    own: frozenset[str]


class _Unclear(Exception):
    """The text alone does not tell."""


class StepTable:
    """The steps of all pieces of code that walks have met.

    They are what the walk would do, in its order. Each may be done twice without harm, so that equal steps of
    a piece are there once.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._find = sources.finder.find
        self._pieces: dict[int, Fragment] = {}
        self._chains: dict[tuple[str, str, tuple[str, ...]], Steps | None] = {}
        self._runs: dict[str, tuple[Place, ...]] = {}

    def of(self, module: SourceModule, facts: Facts) -> Fragment:
        """What the walk needs of a piece of a module."""
        found = self._pieces.get(id(facts))
        if found is None:
            steps: dict[Step, None] = {}
            for reference in self._sources.live(module, facts):
                steps.update(dict.fromkeys(self._reference(module, reference)))
            # with the facts, so that their id stays theirs
            piece = Fragment(facts, tuple(steps), *self._sources.mentions(module, facts))
            found = self._pieces[id(facts)] = piece
        return found

    def imported(self, module: SourceModule) -> tuple[Place, ...]:
        """What is imported with a module: its package and its imports."""
        found = self._runs.get(module.name)
        if found is None:
            parent = module.name.rpartition(".")[0]
            places = [self._find(parent)] if parent else []
            for target in (*module.executed, *map(ImportTarget, module.stars)):
                above = self._find(target.module)
                places.append(above)
                if target.name is not None and above.package:
                    places.append(self._find(f"{target.module}.{target.name}"))
            found = self._runs[module.name] = tuple(places)
        return found

    def _reference(self, module: SourceModule, reference: Reference) -> Steps:
        root, attrs = reference.root, reference.attrs
        try:
            if isinstance(root, ImportTarget):
                chain = ((root.name,) if root.name is not None else ()) + attrs
                return tuple(self._follow(self._find(root.module), chain, set()))
            if not module.binds(root):
                return (Followed(reference),)
            mark = module.name, root, attrs
            if mark not in self._chains:
                self._chains[mark] = None
                self._chains[mark] = tuple(self._bound(module, root, attrs, set()))
            found = self._chains[mark]
            return (Followed(reference),) if found is None else found
        except (_Unclear, CodeError):  # the walk refuses it when it comes to it
            return (Followed(reference),)

    # The methods below do as those of `ClosureWalk` that have the same names.

    def _bound(
        self, module: SourceModule, name: str, attrs: tuple[str, ...], seen: set[tuple[object, ...]]
    ) -> list[Step]:
        mark = module.name, name, attrs
        if mark in seen:
            return []
        seen.add(mark)
        found: list[Step] = []
        if name in module.units:
            if self._sources.registry(module, name) is not None or self._sources.received(module, name):
                raise _Unclear
            found.append(Defined(module, name, (module.name, name), f"{module.name}:{name}"))
        for target in module.imports.get(name, ()):
            if target == (module.name, name):
                found += self._follow(self._find(f"{module.name}.{name}"), attrs, seen)
            else:
                chain = ((target.name,) if target.name is not None else ()) + attrs
                found += self._follow(self._find(target.module), chain, seen)
        return found

    def _follow(
        self, place: Place, chain: tuple[str, ...], seen: set[tuple[object, ...]]
    ) -> list[Step]:
        if place.kind == "source" and chain:
            return [Entered(place), *self._member(place, chain, seen)]
        if place.kind == "standard":
            full = ".".join((place.name, *chain))
            if full in IMPORTERS or full == "sys.modules" or refused(full):
                raise _Unclear
            return []
        if place.kind in ("library", "absent"):
            return [Required(place.detail or ((place.name.partition(".")[0], "absent"),))]
        if place.kind in ("source", "binary"):
            raise _Unclear
        if not chain:
            return []
        below = self._find(f"{place.name}.{chain[0]}") if place.package else None
        if below is not None and below.kind != "absent":
            return self._follow(below, chain[1:], seen)
        if f"{place.name}:{chain[0]}" == PACKAGE_FILE:
            raise _Unclear
        return []

    def _member(
        self, place: Place, chain: tuple[str, ...], seen: set[tuple[object, ...]]
    ) -> list[Step]:
        source, name = self._sources.module(place), chain[0]
        if source.binds(name):
            return self._bound(source, name, chain[1:], seen)
        if source.stars:
            raise _Unclear
        if name in IMPLICIT:
            return []
        if name not in ("__file__", "__path__") and place.package:
            below = self._find(f"{place.name}.{name}")
            if below.kind != "absent":
                return self._follow(below, chain[1:], seen)
        raise _Unclear
