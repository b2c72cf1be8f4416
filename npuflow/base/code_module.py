"""A module's source as separate definitions: what each top-level name is bound to, and
what merely runs on import."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from npuflow.base import syntax
from npuflow.base.code_find import CodeError, Place
from npuflow.base.code_normal import Encoded, inert, syntax_digest
from npuflow.base.code_scope import Bodies, ImportTarget, Reference, References, imports_of, reads
from npuflow.base.digest import bytes_digest
from npuflow.base.errors import Where

Chain = tuple[str, ...]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MANY = 1 << 16
_COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.With, ast.For, ast.While, ast.Match)


class Facts(NamedTuple):
    """What the walk needs of a piece of syntax: its digest, what it refers to, the
    attributes that it mentions."""

    digest: str
    references: tuple[Reference, ...]
    mentions: frozenset[str]


class Form(NamedTuple):
    """How a method is used: with so many arguments, and whether also without a call."""

    least: int
    most: int
    read: bool


@dataclass(frozen=True, slots=True)
class Class:
    """A class in parts: its bases each with what it refers to, its body without methods, and each method."""

    bases: tuple[tuple[Chain, Facts], ...]
    rest: Facts
    """The bases count in its digest, but not among its references."""
    methods: dict[str, tuple[Facts, ...]]
    forms: dict[str, Form]


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """One top-level statement: its facts, and the few forms that mean more to the walk than their text."""

    facts: Facts
    marks: tuple[Chain, ...] = ()
    """What its decorators are, called or not; an empty chain is something else than names."""
    unmarked: tuple[Facts, ...] = ()
    """A function without its first, its second ... decorator."""
    call: tuple[Chain, tuple[str, ...]] = ((), ())
    """What is called, and its constant arguments, if it assigns the result of a call with two."""
    parts: Class | None = None


def unit_of(node: ast.stmt, package: str) -> SourceUnit:
    """Read a statement once; nothing of its syntax tree is kept."""
    encoded: Encoded = {}
    bodies: Bodies = {}

    def facts(part: ast.AST) -> Facts:
        visitor = References(package, bodies)
        visitor.visit(part)
        return Facts(syntax_digest([part], encoded), tuple(visitor.found), frozenset(visitor.mentions))

    whole = facts(node)
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    marks = tuple(chain_of(mark.func if isinstance(mark, ast.Call) else mark) for mark in decorators)
    unmarked = tuple(
        facts(_with(node, decorator_list=[d for d in decorators if d is not mark])) for mark in decorators
    )
    value = getattr(node, "value", None)
    call: tuple[Chain, tuple[str, ...]] = ((), ())
    if isinstance(value, ast.Call) and len(value.args) == 2:
        call = (
            chain_of(value.func),
            tuple(str(arg.value) for arg in value.args if isinstance(arg, ast.Constant)),
        )
    parts = None
    if isinstance(node, ast.ClassDef):
        methods: dict[str, tuple[Facts, ...]] = {}
        forms: dict[str, Form] = {}
        for inner in node.body:
            if isinstance(inner, _FUNCTIONS):
                methods[inner.name] = (*methods.get(inner.name, ()), facts(inner))
                form, other = _form(inner), forms.get(inner.name)
                forms[inner.name] = form if other is None else _either(form, other)
        body = [inner for inner in node.body if not isinstance(inner, _FUNCTIONS)]
        bare = facts(_with(node, body=body, bases=[]))
        rest = bare._replace(digest=syntax_digest([_with(node, body=body)], encoded))
        bases = tuple((chain_of(_bare(base)), facts(base)) for base in node.bases)
        parts = Class(bases, rest, methods, forms)
    return SourceUnit(whole, marks, unmarked if isinstance(node, ast.FunctionDef) else (), call, parts)


def _form(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Form:
    args = node.args
    static = any(getattr(mark, "id", "") == "staticmethod" for mark in node.decorator_list)
    names = len(args.posonlyargs) + len(args.args) - (not static)
    least = names - len(args.defaults) + sum(default is None for default in args.kw_defaults)
    most = MANY if args.vararg or args.kwarg else names + len(args.kwonlyargs)
    return Form(max(0, least), most, reads(node))


def _either(one: Form, other: Form) -> Form:
    return Form(min(one.least, other.least), max(one.most, other.most), one.read or other.read)


def chain_of(node: ast.expr) -> Chain:
    """The names of `a.b.c`, or none if it is something else."""
    attrs: list[str] = []
    while isinstance(node, ast.Attribute):
        attrs.append(node.attr)
        node = node.value
    return (node.id, *reversed(attrs)) if isinstance(node, ast.Name) else ()


def _bare(base: ast.expr) -> ast.expr:
    """A base without the name of a type in brackets, which is for a type checker: `Base["Later"]`."""
    named = isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant)
    return base.value if isinstance(base, ast.Subscript) and named else base


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


class SourceModule:
    """The static picture of one source file."""

    def __init__(self, place: Place, content: bytes) -> None:
        assert place.path is not None
        self.name, self.path = place.name, place.path
        self.package = place.name if place.package else place.name.rpartition(".")[0]
        self.content = bytes_digest(content)
        self.units: dict[str, list[SourceUnit]] = {}
        self.imports: dict[str, list[ImportTarget]] = {}
        self.stars: list[str] = []
        self.effects: list[SourceUnit] = []
        self.executed: list[ImportTarget] = []
        """Imports that run when the module is imported (those for type checkers only do not)."""

    def parse(self, content: bytes) -> SourceModule:
        """Fill in the picture from the source's bytes."""
        try:
            tree = syntax.module(content, str(self.path))
        except (SyntaxError, ValueError) as error:
            where = Where(file=str(self.path), line=getattr(error, "lineno", None))
            raise CodeError(
                f"{self.name} is not valid Python: {error}", where=where, code="NF-CODE-003",
            ) from error
        for node in tree.body:
            self._statement(node, typing=False)
        return self

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
            self.executed += [ImportTarget(alias.name) for alias in node.names]
        else:
            self.executed += imports_of(node, self.package).values()

    def _definition(self, node: ast.stmt, typing: bool) -> None:
        unit = unit_of(node, self.package)
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
