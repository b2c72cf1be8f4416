"""Parsed modules, and where a name in one of them is really defined."""

from __future__ import annotations

import builtins

from npuflow.base.code_find import Finder, Place
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_memo import PICTURES
from npuflow.base.code_module import Chain, Facts, SourceModule
from npuflow.base.code_scope import Reference
from npuflow.base.registry import Registry

DULL = set(dir(builtins)) - {"__import__", "__file__", "__path__", "globals", "exec", "eval", "vars"}
REGISTRY = "npuflow.base.registry:Registry"


class Sources:
    """Parsed modules, kept for the life of the process."""

    def __init__(self) -> None:
        self.finder = Finder()
        self._modules: dict[str, SourceModule] = {}
        self._live: dict[int, tuple[Facts, tuple[Reference, ...]]] = {}
        self._mentions: dict[int, tuple[Facts, frozenset[str], frozenset[str]]] = {}
        self.registries: dict[str, Registry] = {}
        """Those of which code names entries by constants."""
        self.artifacts: dict[tuple[str, str], bool] = {}
        """Which classes are artifacts, by module and name."""
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

    def live(self, module: SourceModule, facts: Facts) -> tuple[Reference, ...]:
        """The references of a piece of a module, but for those to builtins that tell nothing."""
        found = self._live.get(id(facts))
        if found is None:
            kept = [
                r for r in facts.references if module.stars or r.root not in DULL or module.binds(str(r.root))
            ]
            references = tuple(kept)
            found = self._live[id(facts)] = facts, references  # with the facts, so that their id stays theirs
        return found[1]

    def mentions(self, module: SourceModule, facts: Facts) -> tuple[frozenset[str], frozenset[str]]:
        """Attributes that a piece mentions of other objects, and those of any, its own
        `self` too; modules have none."""
        found = self._mentions.get(id(facts))
        if found is None:
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
            found = self._mentions[id(facts)] = facts, frozenset(other), frozenset(own)
        return found[1:]

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
