"""A module's source as separate definitions: what each top-level name is bound to, and what merely runs on import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from npuflow.base.code_find import CodeError, Place
from npuflow.base.code_normal import inert, syntax_digest
from npuflow.base.code_scope import Imported, Reference, References, imports_of
from npuflow.base.digest import bytes_digest
from npuflow.base.errors import Where

_COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.With, ast.For, ast.While, ast.Match)


class Unit:
    """One top-level statement, or part of one: its digest, and what it refers to."""

    def __init__(self, node: ast.stmt, package: str) -> None:
        self.node = node
        self.package = package

    @cached_property
    def digest(self) -> str:
        return syntax_digest([self.node])

    @cached_property
    def _visited(self) -> References:
        visitor = References(self.package)
        visitor.visit(self.node)
        return visitor

    @property
    def references(self) -> tuple[Reference, ...]:
        return tuple(self._visited.found)

    @property
    def attributes(self) -> set[str]:
        """Every attribute name that the statement mentions."""
        return self._visited.attributes


class Module:
    """The static picture of one source file."""

    def __init__(self, place: Place) -> None:
        assert place.path is not None
        self.name, self.path = place.name, place.path
        self.package = place.name if place.package else place.name.rpartition(".")[0]
        self.units: dict[str, list[Unit]] = {}
        self.imports: dict[str, list[Imported]] = {}
        self.stars: list[str] = []
        self.effects: list[Unit] = []
        self.executed: list[Imported] = []
        """Imports that run when the module is imported (those for type checkers only do not)."""
        content = self.path.read_bytes()
        self.content = bytes_digest(content)
        try:
            tree = ast.parse(content, filename=str(self.path))
        except (SyntaxError, ValueError) as error:
            where = Where(file=str(self.path), line=getattr(error, "lineno", None))
            raise CodeError(f"{self.name} is not valid Python: {error}", where=where) from error
        for node in tree.body:
            self._statement(node, typing=False)

    def binds(self, name: str) -> bool:
        return name in self.units or name in self.imports

    def all_names(self) -> Iterator[str]:
        yield from self.units
        yield from (name for name in self.imports if name not in self.units)

    def _statement(self, node: ast.stmt, typing: bool) -> None:
        if inert(node):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, typing)
        elif isinstance(node, ast.If) and _typing_only(node.test):
            for inner in node.body:
                self._statement(inner, typing=True)
            for inner in node.orelse:
                self._statement(inner, typing=False)
        elif isinstance(node, ast.If) and _main_only(node.test):
            return
        else:
            self._definition(node, typing)

    def _import(self, node: ast.Import | ast.ImportFrom, typing: bool) -> None:
        for name, target in imports_of(node, self.package).items():
            if name == "*":
                self.stars.append(target.module)
            else:
                self.imports.setdefault(name, []).append(target)
        if typing:
            return
        if isinstance(node, ast.Import):
            self.executed += [Imported(alias.name) for alias in node.names]
        else:
            self.executed += imports_of(node, self.package).values()

    def _definition(self, node: ast.stmt, typing: bool) -> None:
        unit = Unit(node, self.package)
        names, acts = _bound(node)
        for name in names:
            self.units.setdefault(name, []).append(unit)
        if isinstance(node, _COMPOUND):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    self._import(inner, typing)
        if acts:
            self.effects.append(unit)


def _bound(node: ast.stmt) -> tuple[list[str], bool]:
    """The names that a top-level statement binds, and whether it does something besides."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name], False
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
        return _targets(list(node.targets) if isinstance(node, ast.Assign | ast.Delete) else [node.target])
    if type(node).__name__ == "TypeAlias":  # since 3.12
        return [node.name.id], False  # type: ignore[attr-defined]
    if isinstance(node, _COMPOUND):
        return _bound_inside(node)
    return [], not isinstance(node, ast.Global)


def _bound_inside(node: ast.stmt) -> tuple[list[str], bool]:
    names: dict[str, None] = {}
    acts = False
    loops = [n.target for n in ast.walk(node) if isinstance(n, ast.For)]
    opened = [n.optional_vars for n in ast.walk(node) if isinstance(n, ast.withitem) and n.optional_vars]
    names.update(dict.fromkeys(_targets([*loops, *opened])[0]))
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, []):
            blocks = inner.body if isinstance(inner, ast.ExceptHandler | ast.match_case) else [inner]
            for statement in blocks:
                if isinstance(statement, ast.Import | ast.ImportFrom) or inert(statement):
                    continue
                bound, more = _bound(statement)
                names.update(dict.fromkeys(bound))
                acts = acts or more
    return list(names), acts


def _targets(targets: list[ast.expr]) -> tuple[list[str], bool]:
    """Plain names among assignment targets, and whether anything else (an item, an attribute) is assigned."""
    names: list[str] = []
    rest = False
    for target in targets:
        if isinstance(target, ast.Name):
            names.append(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            inner, more = _targets(target.elts)
            names, rest = names + inner, rest or more
        elif isinstance(target, ast.Starred):
            inner, more = _targets([target.value])
            names, rest = names + inner, rest or more
        else:
            rest = True
    return names, rest


def _typing_only(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _main_only(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
