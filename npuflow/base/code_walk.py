"""From a definition to everything it can reach: the walk behind a code digest."""

from __future__ import annotations

import builtins
import importlib
import types

from npuflow.base.code_class import Mentions, Narrowed
from npuflow.base.code_find import CodeError, Place
from npuflow.base.code_late import IMPORTERS, declared_file, imported, refuse_readers, undeclared
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_module import Facts, Form, SourceModule
from npuflow.base.code_scope import ImportTarget, Reference
from npuflow.base.code_sources import VIEW, Sources
from npuflow.base.code_steps import IMPLICIT, PACKAGE_FILE, Defined, Entered, Required, StepTable
from npuflow.base.digest import digest, digest_file
from npuflow.base.registry import Registry

_OWN_NAMES = {"globals", "exec", "eval", "vars"}
_LOADED = frozenset({"load"})  # what the build system calls of an artifact that a stage is given

Origin = tuple[SourceModule, Reference]


class ClosureWalk:
    """One closure in the making."""

    def __init__(self, sources: Sources, steps: StepTable) -> None:
        self.sources, self.steps = sources, steps
        self.find = sources.finder.find
        self.definitions: dict[str, str] = {}
        self.libraries: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.entries: set[str] = set()
        self.lasting = True
        """Every question had an answer that another process can check (see `code`)."""
        self.mentions: set[str] = set()
        """What the code mentions of objects that are known only while running, its
        own `self` not among them."""
        self._own = Mentions()
        self._facets: frozenset[str] = frozenset()
        self._narrowed: dict[tuple[str, str], Narrowed] = {}
        self._plugins: set[tuple[str, str]] = set()
        self._entered: set[str] = set()
        self._wholes: set[str] = set()
        self._bounds: set[tuple[object, ...]] = set()
        self._todo: list[tuple[SourceModule, Facts]] = []

    def definition(self, module: str, name: str) -> None:
        """Reach a top-level definition."""
        place = self._source(module)
        self._follow(place, (name,), None)
        self._drain()

    def entry(self, module: str, attribute: str | None, facets: tuple[str, ...] | None) -> None:
        """Reach what a registry's file marks, narrowed to some methods if facets are given."""
        place = self._source(module)
        source = self.sources.module(place)
        name = attribute or _marked(source)
        if name is None or name not in source.units:
            self._follow(place, (name,) if name else (), None)
        elif facets is not None and source.units[name][-1].parts is not None:
            self._enter(place)
            self._facets = frozenset(facets)
            self._narrow(source, name)
        else:
            self._follow(place, (name,), None)
        self._drain()

    def _plugin(self, module: str, attribute: str | None) -> None:
        """Reach one of all that a registry holds, narrowed to what the code mentions."""
        place = self._source(module)
        source = self.sources.module(place)
        name = attribute or _marked(source)
        if name in source.units and source.units[name][-1].parts is not None:
            self._enter(place)
            self._narrow(source, name)
        else:
            self._follow(place, (name,) if name else (), None)

    def forms(self, module: str, attribute: str | None) -> dict[str, tuple[Form, ...]] | None:
        """The methods of what a registry's file marks, those of its bases too; None if it is no class."""
        source = self.sources.module(self._source(module))
        name = attribute or _marked(source)
        if name is None or name not in source.units or source.units[name][-1].parts is None:
            return None
        self._narrow(source, name)
        found: dict[str, tuple[Form, ...]] = {}
        for narrowed in self._narrowed.values():
            for method, form in narrowed.forms.items():
                found[method] = (*found.get(method, ()), form)
        return found

    def _source(self, module: str) -> Place:
        self.sources.finder.own.add(module.partition(".")[0])
        place = self.find(module)
        if place.kind not in ("source", "contract"):
            raise CodeError(
                f"the source of {module} cannot be read",
                because=f"the module is {place.kind}", code="NF-CODE-004",
            )
        return place

    # ***** the queue *****

    def _drain(self) -> None:
        named = set[str]()
        while True:
            while self._todo:
                module, facts = self._todo.pop()
                piece = self.steps.of(module, facts)
                self.mentions |= piece.other
                named |= piece.own
                for step in piece.steps:
                    if isinstance(step, Defined):
                        if step.label not in self.definitions and step.mark not in self._plugins:
                            self._plain(step.module, step.name, step.label)
                    elif isinstance(step, Entered):
                        if step.place.name not in self._entered:
                            self._enter(step.place)
                    elif isinstance(step, Required):
                        self.libraries.update(step.detail)
                    else:
                        self._reference(module, step.reference)
            if self._narrowed:
                self._own.add(named | self.mentions)
            for narrowed in list(self._narrowed.values()):
                for label, facts in narrowed.more(self._own, self._facets):
                    self._take(narrowed.module, label, facts)
            if not self._todo:
                return

    def _take(self, module: SourceModule, label: str, facts: Facts) -> None:
        self.definitions[label] = facts.digest
        self._todo.append((module, facts))

    def _reference(self, module: SourceModule, ref: Reference) -> None:
        if isinstance(ref.root, ImportTarget):
            self._imported(ref.root, ref.attrs, (module, ref))
        elif module.binds(ref.root):
            self._bound(module, ref.root, ref.attrs, (module, ref))
        elif not self._starred(module, ref.root, ref.attrs, (module, ref)):
            self._free(module, ref.root, ref)

    def _free(self, module: SourceModule, name: str, ref: Reference) -> None:
        """A name that the module does not bind: a builtin, or something only a running process could tell."""
        if ref.how == "maybe":
            return
        if name in ("__file__", "__path__"):
            raise undeclared(module, ref, name)
        if name == "__import__":
            self._importer("__import__", (module, ref))
        elif name in _OWN_NAMES or not (hasattr(builtins, name) or name in IMPLICIT):
            self._whole(self.find(module.name), None)

    # ***** following names *****

    def _imported(self, target: ImportTarget, attrs: tuple[str, ...], origin: Origin | None) -> None:
        chain = ((target.name,) if target.name is not None else ()) + attrs
        self._follow(self.find(target.module), chain, origin)

    def _follow(self, place: Place, chain: tuple[str, ...], origin: Origin | None) -> None:
        """Reach what a chain of names leads to from a module."""
        if place.kind == "source":
            self._enter(place)
            if not chain:
                self._whole(place, origin)
            else:
                self._member(place, chain, origin)
        elif place.kind == "standard":
            self._standard(".".join((place.name, *chain)), origin)
        elif place.kind in ("library", "absent"):
            self.libraries.update(place.detail or ((place.name.partition(".")[0], "absent"),))
        elif place.kind == "binary":
            assert place.path is not None
            LOADED.read(str(place.path))
            self.files[place.name] = self.sources.data[str(place.path)] = digest_file(place.path)
        elif chain:
            below = self.find(f"{place.name}.{chain[0]}") if place.package else None
            if below is not None and below.kind != "absent":
                self._follow(below, chain[1:], origin)
            elif f"{place.name}:{chain[0]}" == PACKAGE_FILE:
                self._package_file(origin)

    def _member(self, place: Place, chain: tuple[str, ...], origin: Origin | None) -> None:
        source, name = self.sources.module(place), chain[0]
        if source.binds(name):
            self._bound(source, name, chain[1:], origin)
        elif self._starred(source, name, chain[1:], origin) or name in IMPLICIT:
            pass
        elif name in ("__file__", "__path__"):
            raise undeclared(*(origin or (source, Reference(name))), name)
        elif place.package and (below := self.find(f"{place.name}.{name}")).kind != "absent":
            self._follow(below, chain[1:], origin)
        elif "__getattr__" in source.units:
            self._lazy(place, chain, origin)
        else:
            self._whole(place, origin)

    def _bound(self, module: SourceModule, name: str, attrs: tuple[str, ...], origin: Origin | None) -> None:
        """Reach what a module binds to a name: its own definitions, and whatever it
        imports under that name."""
        ref = origin[1] if origin else Reference(name)
        # Calls are identified by place: an importer or a data file may be refused at one and not at another.
        place = (origin[0].name, ref.line) if origin and ref.how == "call" else None
        mark = (module.name, name, attrs, ref.how, ref.const, place)
        if mark in self._bounds:
            return
        self._bounds.add(mark)
        if name in module.units and (module.name, name) not in self._plugins:
            self._define(module, name, attrs, origin)
        for target in module.imports.get(name, ()):
            if target == (module.name, name):  # `from . import submodule`
                self._follow(self.find(f"{module.name}.{name}"), attrs, origin)
            else:
                self._imported(target, attrs, origin)

    def _define(self, module: SourceModule, name: str, attrs: tuple[str, ...], origin: Origin | None) -> None:
        registry = self.sources.registry(module, name)
        if registry is not None:
            self._registry(registry, attrs, origin)
            return
        label = f"{module.name}:{name}"
        if self.sources.received(module, name):
            self._artifact(module, name, origin)
        elif label not in self.definitions:
            self._plain(module, name, label)

    def _plain(self, module: SourceModule, name: str, label: str) -> None:
        self.definitions[label], found = self.sources.whole(module, name)
        self._todo += [(module, facts) for facts in found]

    def _starred(
        self, module: SourceModule, name: str, attrs: tuple[str, ...], origin: Origin | None
    ) -> bool:
        for star in module.stars:
            place = self.find(star)
            if place.kind in ("library", "absent"):
                self._follow(place, (name,), origin)
            elif place.kind == "source":
                source = self.sources.module(place)
                if source.binds(name):
                    self._enter(place)
                    self._bound(source, name, attrs, origin)
                    return True
                if source is not module and self._starred(source, name, attrs, origin):
                    return True
        return False

    # ***** what runs on import *****

    def _enter(self, place: Place) -> None:
        """Reach the statements that act when the module is imported, those of its
        packages and of its imports too."""
        waiting = [place]
        while waiting:
            place = waiting.pop()
            if place.name in self._entered or place.kind not in ("source", "namespace"):
                continue
            self._entered.add(place.name)
            if place.kind == "namespace":
                parent = place.name.rpartition(".")[0]
                waiting += [self.find(parent)] if parent else []
                continue
            module = self.sources.module(place)
            for index, unit in enumerate(module.effects):
                self._take(module, f"{module.name}:<{index}>", unit.facts)
            waiting += [one for one in self.steps.imported(module) if one.name not in self._entered]

    def _whole(self, place: Place, origin: Origin | None) -> None:
        if place.name in self._wholes or place.kind != "source":
            return
        self._wholes.add(place.name)
        module = self.sources.module(place)
        for name in module.all_names():
            self._bound(module, name, (), None)

    def _artifact(self, module: SourceModule, name: str, origin: Origin | None) -> None:
        """Note an artifact class, a view or a codec that a stage receives: `load` and the methods that the
        stage names are in its key. Any other use of the class puts all of it there, and what stores its
        fields."""
        self._narrow(module, name, _LOADED)
        narrowed = self._narrowed[module.name, name]
        if narrowed.whole or (origin is not None and origin[1].how == "given"):
            return
        narrowed.whole = True
        parts = module.units[name][-1].parts
        self._todo += [(module, facts) for _, facts in parts.bases] if parts is not None else []
        if parts is not None and self.sources.received(module, name) != VIEW:
            fields = tuple(ref._replace(how="use") for ref in parts.rest.references if ref.how == "given")
            self._todo.append((module, parts.rest._replace(references=fields)))

    def _narrow(self, module: SourceModule, name: str, always: frozenset[str] | None = None) -> None:
        """Take a class and the classes it is made from in parts, method by method. `always`: of an artifact,
        which may still be taken whole; plug-ins are not."""
        if always is None:
            self._plugins.add((module.name, name))
        parts = module.units[name][-1].parts
        if (module.name, name) in self._narrowed or parts is None:
            return
        bases: dict[int, tuple[SourceModule, str]] = {}
        for index, (chain, _) in enumerate(parts.bases):
            base = self.sources.class_of(self.sources.final_of(module, chain))
            if base is not None:
                bases[index] = base
        narrowed = Narrowed(module, name, parts, bases, always or frozenset())
        self._narrowed[module.name, name] = narrowed
        self._take(module, *narrowed.start())
        for source, label in bases.values():
            self._enter(self.find(source.name))
            self._narrow(source, label, always)

    # ***** places where static sight ends *****

    def _registry(self, registry: tuple[str, str], attrs: tuple[str, ...], origin: Origin | None) -> None:
        """The walk stops at a registry: it notes entries named by constants, and reaches the
        list of names, and all entries."""
        name, package = registry
        live = self.sources.registries[name] = Registry.at_hand(name, package)
        ref = origin[1] if origin else None
        if ref is not None and ref.how == "subscript" and ref.const is not None and not attrs:
            live.source(ref.const)
            self.entries.add(f"{name}/{ref.const}")
        elif attrs[:1] in (("names",), ("every",)):
            self.definitions[f"{name}/"] = digest(list(live.names()))
            for entry in live.names() if attrs[0] == "every" else ():
                source = live.source(entry)
                self._plugin(source.module, source.attribute)
                self.entries.add(f"{name}/{entry}")

    def _lazy(self, place: Place, chain: tuple[str, ...], origin: Origin | None) -> None:
        """A facade with a module-level `__getattr__`: only the running module can
        say where the name comes from."""
        self.lasting = False
        found = getattr(importlib.import_module(place.name), chain[0], None)
        if isinstance(found, types.ModuleType):
            self._follow(self.find(found.__name__), chain[1:], origin)
            return
        home, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
        if isinstance(home, str) and isinstance(name, str) and home != place.name:
            self._follow(self.find(home), (name.partition(".")[0], *chain[1:]), origin)
        else:
            self._whole(place, origin)

    def _standard(self, full: str, origin: Origin | None) -> None:
        if origin is None:
            return
        if full in IMPORTERS:
            self._importer(full, origin)
        elif full == "sys.modules":
            self._whole(self.find(origin[0].name), None)
        else:
            refuse_readers(*origin, full)

    def _importer(self, full: str, origin: Origin) -> None:
        self._follow(self.find(imported(*origin, full)), (), origin)

    def _package_file(self, origin: Origin | None) -> None:
        if origin is not None:
            path, content = declared_file(*origin)
            self.files[f"{origin[0].name}:{origin[1].const}"] = self.sources.data[str(path)] = content


def _marked(module: SourceModule) -> str | None:
    """The definition that a file marks as its registry's entry."""
    for name, units in module.units.items():
        if any(len(chain) > 1 and chain[-1] == "entry" for chain in units[-1].marks):
            return name
    return None
