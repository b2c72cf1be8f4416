"""A class narrowed to the methods that are needed, so that editing one of the others changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from npuflow.base.code_module import Class, Facts, Module


class Narrowed:
    """The parts of a class that have been reached."""

    def __init__(self, module: Module, name: str, parts: Class, followed: Collection[int]) -> None:
        self.module = module
        self.label = f"{module.name}:{name}"
        self._parts, self._followed = parts, followed
        self._taken: set[str] = set()

    def start(self) -> tuple[str, Facts]:
        """The class without its methods; bases that are narrowed themselves count in the digest, but are not reached whole."""
        references, attributes = set(self._parts.rest.references), set(self._parts.rest.attributes)
        for index, (_, base) in enumerate(self._parts.bases):
            if index not in self._followed:
                references.update(base.references)
                attributes.update(base.attributes)
        return self.label, Facts(self._parts.rest.digest, tuple(references), frozenset(attributes))

    def more(self, wanted: set[str]) -> Iterator[tuple[str, Facts]]:
        """The methods not taken yet that are wanted by name, or that Python calls by itself."""
        for name, found in self._parts.methods.items():
            if name not in self._taken and (name in wanted or (name.startswith("__") and name.endswith("__"))):
                self._taken.add(name)
                for index, facts in enumerate(found):
                    yield f"{self.label}.{name}" + (f"#{index}" if index else ""), facts
