"""What a piece of code refers to: global names and imports with their attribute
chains, by Python's scoping rules.

Attributes whose object is known only while running are *mentions*, as text: `name` is read, `name(2)` is
called with two arguments, `name(*)` with any number, `=name` is declared by a class or set on `self`.
`root:name` is an attribute of a global name, `self:name` one of the object itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from npuflow.base import syntax
from npuflow.base.code_normal import PARTS


class ImportTarget(NamedTuple):
    """The target of an import, absolute: a module, and a name in it for `from module import name`."""

    module: str
    name: str | None = None


class Reference(NamedTuple):
    """A use of a global name, or of what a local import brought, with the attributes that follow.

    `how` is "call" or "subscript" when that directly follows; `const` is the first argument or index if it is
    a constant string. "maybe" is a name that a class body binds, but perhaps only after reading the global;
    "given" is a name in the annotation of a parameter or of a field, or in a class's keywords.
    """

    root: str | ImportTarget
    attrs: tuple[str, ...] = ()
    how: str = "use"
    const: str | None = None
    line: int = 0


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Lambda,
            ast.Global, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping}


def imports_of(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, ImportTarget]:
    """Bound name -> target of an import statement in a module of `package`; a star binds "*"."""
    if isinstance(node, ast.Import):
        bound = {alias.asname or alias.name.partition(".")[0]: alias for alias in node.names}
        return {name: ImportTarget(alias.name if alias.asname else name) for name, alias in bound.items()}
    module = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join(parts[: len(parts) - node.level + 1])
        module = f"{base}.{module}" if module else base
    return {alias.asname or alias.name: ImportTarget(module, alias.name) for alias in node.names}


_SELF = ("self", "cls")
_BY_NAME = ("getattr", "hasattr", "attrgetter", "methodcaller")


def _arguments(node: ast.Call) -> str:
    """How many arguments a call has, for a mention."""
    spread = any(isinstance(arg, ast.Starred) for arg in node.args)
    spread = spread or any(word.arg is None for word in node.keywords)
    return "(*)" if spread else f"({len(node.args) + len(node.keywords)})"


def declared(node: ast.ClassDef) -> set[str]:
    """The fields and properties that a class body declares: what instances have that is no method."""
    found: set[str] = set()
    for one in node.body:
        single = [one.target] if isinstance(one, ast.AnnAssign) else []
        targets = one.targets if isinstance(one, ast.Assign) else single
        found.update(target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(one, ast.FunctionDef) and reads(one):
            found.add(one.name)
    return found


def reads(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method is used without a call: it has a decorator that may make a property of it."""
    plain = ("classmethod", "staticmethod", "abstractmethod", "overload", "override")
    return any(getattr(mark, "attr", getattr(mark, "id", "")) not in plain for mark in node.decorator_list)


def _quoted(node: ast.AST) -> Iterator[str]:
    """The strings of an annotation that stand for types: not the values of a Literal, nor what Annotated
    adds to a type."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and node.value.isprintable():
            yield node.value
        return
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Subscript):
        name = getattr(node.value, "attr", getattr(node.value, "id", ""))
        if name == "Literal":
            return
        if name == "Annotated" and isinstance(node.slice, ast.Tuple):
            parts = [node.slice.elts[0]]
    for part in parts:
        yield from _quoted(part)


class _Scope:
    """The local names of a function, lambda, comprehension or class, and which of them are imports."""

    def __init__(self, is_class: bool = False) -> None:
        self.is_class = is_class
        self.names: set[str] = set()
        self.globals: set[str] = set()
        self.imports: dict[str, list[ImportTarget]] = {}


Bodies = dict[int, tuple[dict[Reference, None], set[str]]]
"""What was found in bodies of functions of one tree, by the identity of their arguments: the tree must
outlive it."""


class References(ast.NodeVisitor):
    """Collects the references of the nodes it visits, and the attributes that they mention."""

    def __init__(self, package: str, bodies: Bodies | None = None) -> None:
        """`bodies` saves visiting a function again that is part of several pieces of code."""
        self.package = package
        self._bodies = bodies
        self.found: dict[Reference, None] = {}
        self.mentions: set[str] = set()
        self.scopes: list[_Scope] = []
        self._plain = "use"
        """What a name is that is neither called nor indexed, where it stands."""

    def visit(self, node: ast.AST) -> None:
        visitor = _VISITORS.get(type(node))
        if visitor is not None:
            visitor(self, node)
        else:
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for name in PARTS[type(node)]:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                self.visit(value)
            elif type(value) is list:
                for one in value:
                    if isinstance(one, ast.AST):
                        self.visit(one)

    # ***** names and chains *****

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._chain(node, ())

    def visit_Attribute(self, node: ast.Attribute) -> None:
        attrs: list[str] = []
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            attrs.append(base.attr)
            base = base.value
        on_self = isinstance(base, ast.Name) and base.id == "self" and len(attrs) == 1
        if on_self and isinstance(node.ctx, ast.Store):
            self.mentions.add(f"={attrs[0]}")
        self._mention(base, attrs)
        if isinstance(base, ast.Name):
            self._chain(base, tuple(reversed(attrs)))
        else:
            self.visit(base)

    def _mention(self, base: ast.expr, attrs: list[str], how: str = "") -> None:
        """Note a chain of attributes, the last one first; `how` it is called."""
        above = isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super"
        name = base.id if isinstance(base, ast.Name) else "self" if above else ""
        root = name if name in _SELF or (name and self._is_global(name)) else ""
        if attrs:
            names = [attrs[0] + how, *attrs[1:]]
            names[-1] = f"{root}:{names[-1]}" if root else names[-1]
            self.mentions.update(names)

    def _is_global(self, name: str) -> bool:
        """Whether a name is the module's, or that of a module imported here."""
        for scope in reversed(self.scopes):
            if scope.is_class and scope is not self.scopes[-1]:
                continue
            if name in scope.globals:
                return True
            if name in scope.names or name in scope.imports:
                return False
        return True

    def visit_Subscript(self, node: ast.Subscript) -> None:
        index = node.slice
        const = index.value if isinstance(index, ast.Constant) and isinstance(index.value, str) else None
        if not self._marked(node.value, "subscript", const):
            self.visit(node.value)
        self.visit(index)

    def visit_Call(self, node: ast.Call) -> None:
        first = node.args[0] if node.args else None
        const = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in _BY_NAME:
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            self.mentions.update(name for text in texts if isinstance(text, str) for name in text.split("."))
        if not self._marked(node.func, "call", const, _arguments(node)):
            self.visit(node.func)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    def _marked(self, node: ast.expr, how: str, const: str | None, arguments: str = "") -> bool:
        """Note a call or index of a name or attribute chain; False if `node` is something else."""
        attrs: list[str] = []
        while isinstance(node, ast.Attribute):
            attrs.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            if attrs and arguments:
                self._mention(node, attrs, arguments)
                self.visit(node)
                return True
            return False
        self._mention(node, attrs, arguments)
        self._chain(node, tuple(reversed(attrs)), how, const)
        return True

    def _chain(
        self, name: ast.Name, attrs: tuple[str, ...], how: str | None = None, const: str | None = None
    ) -> None:
        how = how or self._plain
        for scope in reversed(self.scopes):
            if scope.is_class and scope is not self.scopes[-1]:
                continue  # methods do not see their class's names
            if name.id in scope.globals:
                break
            if name.id in scope.imports:
                for target in scope.imports[name.id]:
                    self.found.setdefault(Reference(target, attrs, how, const, name.lineno))
                return
            if name.id in scope.names:
                if scope.is_class:  # `x = x` in a class body reads the global
                    self.found.setdefault(Reference(name.id, attrs, "maybe", None, name.lineno))
                return
        self.found.setdefault(Reference(name.id, attrs, how, const, name.lineno))

    # ***** scopes *****

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(part)
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        self._plain, outer = "given", self._plain
        for arg in every:
            self._annotation(arg.annotation if arg else None)
        self._plain = outer
        self._annotation(node.returns)
        self._function(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(part)
        self._function(node.args, [node.body])

    def _function(self, args: ast.arguments, body: Iterable[ast.AST]) -> None:
        if self._bodies is None or not all(scope.is_class for scope in self.scopes):
            self._body(args, body)
            return
        # functions do not see the names of classes around them: what is in one is the same in and outside
        found = self._bodies.get(id(args))
        if found is None:
            inner = References(self.package)
            inner._body(args, body)
            found = self._bodies[id(args)] = inner.found, inner.mentions
        self.found.update(found[0])
        self.mentions |= found[1]

    def _body(self, args: ast.arguments, body: Iterable[ast.AST]) -> None:
        scope = _Scope()
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        scope.names.update(arg.arg for arg in every if arg)
        body = list(body)
        for node in body:
            self._bind(node, scope)
        self.scopes.append(scope)
        for node in body:
            self.visit(node)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases):
            self.visit(part)
        self._plain, outer = "given", self._plain
        for keyword in node.keywords:
            self.visit(keyword)
        self._plain = outer
        scope = _Scope(is_class=True)
        self.mentions.update(f"={name}" for name in declared(node))
        for statement in node.body:
            self._bind(statement, scope)
        self.scopes.append(scope)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        scope = _Scope()
        for generator in node.generators:
            scope.names.update(n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name))
        self.visit(node.generators[0].iter)  # evaluated outside
        self.scopes.append(scope)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _bind(self, node: ast.AST, scope: _Scope) -> None:
        """Note what `node` binds in its own function scope: nested functions, classes and
        comprehensions have theirs."""
        waiting = [node]
        while waiting:  # the most frequent nodes first: every node of every function passes here
            node = waiting.pop()
            kind = type(node)
            if isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    scope.names.add(node.id)
                continue
            if kind in _BINDING:
                if self._binds(node, scope):
                    continue
            elif kind in _COMPREHENSIONS:
                inner = (one.target for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
                # a walrus binds around its comprehension
                scope.names.update(target.id for target in inner if isinstance(target, ast.Name))
                continue
            for name in PARTS[kind]:
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    waiting.append(value)
                elif type(value) is list:
                    waiting += [one for one in value if isinstance(one, ast.AST)]

    def _binds(self, node: ast.AST, scope: _Scope) -> bool:
        """Note the names that one node binds by itself; True if what is inside it has a scope of its own."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.names.add(node.name)
                return True
            case ast.Import() | ast.ImportFrom():
                for name, target in imports_of(node, self.package).items():
                    scope.imports.setdefault(name, []).append(target)
                return True
            case ast.Lambda():
                return True
            case ast.Global():
                scope.globals.update(node.names)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                scope.names.add(node.name)
            case ast.MatchMapping() if node.rest:
                scope.names.add(node.rest)
        return False

    # ***** annotations *****

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._plain, outer = "given" if self.scopes and self.scopes[-1].is_class else self._plain, self._plain
        self._annotation(node.annotation)
        self._plain = outer
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _annotation(self, node: ast.expr | None) -> None:
        """An annotation, including those written as strings."""
        if node is None:
            return
        self.visit(node)
        for text in _quoted(node):
            try:
                quoted = syntax.expression(text).body
            except SyntaxError:
                continue
            self._annotation(quoted)

    def visit_Import(self, node: ast.Import) -> None:
        """Imports bind names (see `_bind`); it is the uses of the names that count."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """See `visit_Import`."""


_VISITORS = {
    getattr(ast, name[6:]): visitor for name, visitor in vars(References).items() if name.startswith("visit_")
}
"""How nodes of a kind are visited; without a look-up by name for each."""
