"""A class narrowed to the methods that are needed, so that editing one of the others changes nothing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from npuflow.base.code_module import Module, Unit


class Narrowed:
    """A class in parts: its body without methods, and each method on its own."""

    def __init__(self, module: Module, node: ast.ClassDef, followed: list[ast.expr]) -> None:
        self.module = module
        self.label = f"{module.name}:{node.name}"
        self.methods: dict[str, list[ast.stmt]] = {}
        rest = copy.copy(node)
        rest.body = []
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.methods.setdefault(statement.name, []).append(statement)
            else:
                rest.body.append(statement)
        self._rest: list[tuple[str, Unit]] = [(self.label, Unit(rest, module.package))]
        if followed:  # the narrowed bases count in the digest, but must not be reached whole
            bare = copy.copy(rest)
            bare.bases = [base for base in node.bases if base not in followed]
            self._rest.append((f"{self.label}()", Unit(bare, module.package)))
        self._taken: set[str] = set()

    def start(self) -> tuple[str, str, Unit]:
        """(label, digest, unit to follow) of the class without its methods."""
        return self.label, self._rest[0][1].digest, self._rest[-1][1]

    def more(self, wanted: set[str]) -> Iterator[tuple[str, str, Unit]]:
        """The methods not taken yet that are wanted by name, or that Python calls by itself."""
        for name, nodes in self.methods.items():
            if name not in self._taken and (name in wanted or (name.startswith("__") and name.endswith("__"))):
                self._taken.add(name)
                for index, node in enumerate(nodes):
                    unit = Unit(node, self.module.package)
                    yield f"{self.label}.{name}" + (f"#{index}" if index else ""), unit.digest, unit
