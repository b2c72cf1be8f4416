"""Parsed modules, and where a name in one of them is really defined."""

from __future__ import annotations

import ast

from npuflow.base.code_find import Finder, Place
from npuflow.base.code_module import Module

REGISTRY = "npuflow.base.registry:Registry"


class Sources:
    """Parsed modules, kept for the life of the process."""

    def __init__(self) -> None:
        self.finder = Finder()
        self._modules: dict[str, Module] = {}
        self.data: dict[str, str] = {}
        """Package data read: path -> digest."""

    def module(self, place: Place) -> Module:
        found = self._modules.get(place.name)
        if found is None:
            found = self._modules[place.name] = Module(place)
        return found

    def read(self) -> dict[str, str]:
        """Every file read so far: path -> digest of its bytes."""
        return {str(m.path): m.content for m in self._modules.values()} | self.data

    def final(self, module: Module, chain: tuple[str, ...], depth: int = 0) -> str | None:
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

    def registry(self, module: Module, name: str) -> tuple[str, str] | None:
        """(name, package) if the module's `name` is a registry."""
        units = module.units.get(name, ())
        value = getattr(units[0].node, "value", None) if len(units) == 1 else None
        if not isinstance(value, ast.Call) or len(value.args) != 2:
            return None
        if self.final_of(module, value.func) != REGISTRY:
            return None
        texts = [arg.value for arg in value.args if isinstance(arg, ast.Constant)]
        return (str(texts[0]), str(texts[1])) if len(texts) == 2 else None

    def final_of(self, module: Module, node: ast.expr) -> str | None:
        attrs: list[str] = []
        while isinstance(node, ast.Attribute):
            attrs.append(node.attr)
            node = node.value
        return self.final(module, (node.id, *reversed(attrs))) if isinstance(node, ast.Name) else None
