"""Parsed modules, and where a name in one of them is really defined."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from npuflow.base.code_find import Finder, Place
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_memo import PICTURES
from npuflow.base.code_module import Chain, Facts, SourceModule, SourceUnit
from npuflow.base.code_scope import Reference
from npuflow.base.digest import digest
from npuflow.base.registry import Registry

DULL = set(dir(builtins)) - {"__import__", "__file__", "__path__", "globals", "exec", "eval", "vars"}
REGISTRY = "npuflow.base.registry:Registry"
_STAGE = {"npuflow.flow.stage:stage", "npuflow.flow.stage:part"}
VIEW = "npuflow.flow.stage:View"
_RECEIVED = {"npuflow.flow.artifact:Artifact", "npuflow.flow.artifact:Codec", VIEW}


class Sources:
    """Parsed modules, kept for the life of the process."""

    def __init__(self) -> None:
        self.finder = Finder()
        self._modules: dict[str, SourceModule] = {}
        self.registries: dict[str, Registry] = {}
        """Those of which code names entries by constants."""
        self._received: dict[tuple[str, str], str] = {}
        self._wholes: dict[tuple[str, str], tuple[str, tuple[Facts, ...]]] = {}
        self.data: dict[str, str] = {}
        """Other files read: package data, and sources behind closures that were kept. Path -> digest."""

    def module(self, place: Place) -> SourceModule:
        found = self._modules.get(place.name)
        if found is None:
            assert place.path is not None
            LOADED.read(str(place.path))
            content = place.path.read_bytes()
            found = SourceModule(place, content)
            if not PICTURES.restore(found):
                PICTURES.keep(found.parse(content))
            self._modules[place.name] = found
        return found

    def live(self, module: SourceModule, facts: Facts) -> Iterator[Reference]:
        """The references of a piece of a module, but for those to builtins that tell nothing."""
        for one in facts.references:
            if module.stars or one.root not in DULL or module.binds(str(one.root)):
                yield one

    def mentions(self, module: SourceModule, facts: Facts) -> tuple[frozenset[str], frozenset[str]]:
        """Attributes that a piece mentions of other objects, and those of any, its own
        `self` too; modules have none."""
        other, own = set[str](), set[str]()
        for mention in facts.mentions:
            root, _, name = mention.rpartition(":")
            targets = module.imports.get(root, ())
            if targets and all(target.name is None for target in targets):
                continue
            if not name.startswith("="):
                own.add(name)
            if root not in ("self", "cls"):
                other.add(name)
        return frozenset(other), frozenset(own)

    def read(self) -> dict[str, str]:
        """Every file read so far: path -> digest of its bytes."""
        modules = list(self._modules.values())  # other threads may read more meanwhile
        return {str(m.path): m.content for m in modules} | self.data

    def final(self, module: SourceModule, chain: tuple[str, ...], depth: int = 0) -> str | None:
        """Where a chain of names in a module is defined, as "module:name"; facades and aliases followed."""
        name = chain[0]
        if name in module.units:
            return f"{module.name}:{name}"
        targets = module.imports.get(name)
        if not targets or depth > 50:
            return None
        place = self.finder.find(targets[0].module)
        rest = ((targets[0].name,) if targets[0].name else ()) + chain[1:]
        while rest:
            if place.kind == "source":
                source = self.module(place)
                if source.binds(rest[0]) and source is not module:
                    return self.final(source, rest, depth + 1)
            below = self.finder.find(f"{place.name}.{rest[0]}") if place.package else None
            if below is None or below.kind == "absent":
                return f"{place.name}:{rest[0]}"
            place, rest = below, rest[1:]
        return None

    def registry(self, module: SourceModule, name: str) -> tuple[str, str] | None:
        """(name, package) if the module's `name` is a registry."""
        units = module.units.get(name, ())
        if (
            len(units) != 1
            or len(units[0].call[1]) != 2
            or self.final_of(module, units[0].call[0]) != REGISTRY
        ):
            return None
        return units[0].call[1][0], units[0].call[1][1]

    def final_of(self, module: SourceModule, chain: Chain) -> str | None:
        """Where what a chain of names in a module means is defined, if it is one."""
        return self.final(module, chain) if chain else None

    def whole(self, module: SourceModule, name: str) -> tuple[str, tuple[Facts, ...]]:
        """The digest of a definition, and what it consists of."""
        key = module.name, name
        if key not in self._wholes:
            found = tuple(self._without_stage(module, unit) for unit in module.units[name])
            made = found[0].digest if len(found) == 1 else digest([facts.digest for facts in found])
            self._wholes[key] = made, found
        return self._wholes[key]

    def _without_stage(self, module: SourceModule, unit: SourceUnit) -> Facts:
        """A stage function without its decorator: batch sizes, memory and the like never enter a key."""
        for index, facts in enumerate(unit.unmarked):
            if self.final_of(module, unit.marks[index]) in _STAGE:
                return facts
        return unit.facts

    def received(self, module: SourceModule, name: str) -> str:
        """Which of `Artifact`, `Codec` and `View` the class of a name is made from, all of it in source code;
        nothing: none of them."""
        key = module.name, name
        if key not in self._received:
            self._received[key] = ""
            parts = module.units[name][-1].parts
            named = [self.final_of(module, chain) for chain, _ in parts.bases] if parts else []
            above = (self.received(*base) for base in map(self.class_of, named) if base is not None)
            roots = [one for one in named if one in _RECEIVED]
            self._received[key] = next(iter(roots or filter(None, above)), "")
        return self._received[key]

    def class_of(self, full: str | None) -> tuple[SourceModule, str] | None:
        """The module and name of a class whose source is at hand."""
        home, _, name = (full or "").partition(":")
        place = self.finder.find(home) if home else None
        source = self.module(place) if place is not None and place.kind == "source" else None
        if source is None or name not in source.units or source.units[name][-1].parts is None:
            return None
        return source, name
