"""Which class an expression is of, as far as annotations say: what `house.py` follows method calls by.

Read are annotations of parameters, results and fields, classes that are called, and what a method assigns
to `self`. Unions of several classes, type variables and objects that nothing is said of have no class here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

Function = ast.FunctionDef | ast.AsyncFunctionDef
ELEMENTS = {"list", "Sequence", "Iterable", "Iterator", "Collection", "Generator"}
ELEMENTS |= {"set", "frozenset", "deque", "Set"}
VALUES = {"dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict", "MappingProxyType"}
INNER = {"Annotated", "ClassVar", "Final", "Optional", "View"}
SAME = {"sorted", "list", "tuple", "set", "frozenset", "reversed", "iter", "deque", "replace", "copy"}
ONE = {"next", "min", "max"}


BINDING = (
    ast.AnnAssign, ast.Assign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.With,
    ast.AsyncWith,
)


class Package(Protocol):
    """What is asked of the package's files."""

    trees: Mapping[str, ast.Module]
    functions: Mapping[str, Function]

    def bindings(self, module: str) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Kind:
    """`name`: a class of the package, of which this is an object, or with `itself` the class. `each`: what
    elements, values of a mapping, or results of a function are; `parts`: those of a tuple."""

    name: str = ""
    itself: bool = False
    each: Kind | None = None
    parts: tuple[Kind, ...] = ()

    def element(self) -> Kind:
        same = self.parts and all(one == self.parts[0] for one in self.parts)
        return self.each or (self.parts[0] if same else NOTHING)


NOTHING = Kind()
Names = dict[str, Kind]


@dataclass
class Types:
    """The classes of a package by full name, with their bases, and what annotations say."""

    house: Package
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    module: dict[str, str] = field(default_factory=dict)                # of a class
    _fields: dict[tuple[str, str], Kind] = field(default_factory=dict)
    _known: dict[str, Names] = field(default_factory=dict)
    _assigned: dict[str, dict[str, list[tuple[str, ast.expr]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for module, tree in self.house.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes[f"{module}.{node.name}"] = node
                    self.module[f"{module}.{node.name}"] = module
        self.members, self.having = cache(self._members), cache(self._having)

    # --- names
    def full(self, module: str, text: str) -> str:
        """The full name of what a dotted name means in a file, through files that offer it again."""
        head, _, rest = text.partition(".")
        name = self.house.bindings(module).get(head, f"{module}.{head}") + (f".{rest}" if rest else "")
        for _ in range(5):
            if name in self.classes or name in self.house.functions:
                return name
            owner, _, last = name.rpartition(".")
            if owner not in self.house.trees or last not in self.house.bindings(owner):
                return name
            name = self.house.bindings(owner)[last]
        return name

    def lineage(self, name: str) -> Iterator[str]:
        """A class and its bases of the package."""
        yield name
        for base in self.classes[name].bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            found = self.full(self.module[name], ast.unparse(plain))
            if found in self.classes:
                yield from self.lineage(found)

    def is_protocol(self, name: str) -> bool:
        texts = (ast.unparse(base).partition("[")[0] for base in self.classes[name].bases)
        return any(text in ("Protocol", "typing.Protocol") for text in texts)

    # --- Protocols
    def fits(self, name: str, protocol: str) -> bool:
        """Whether a class has all that a Protocol has, and its methods take as many arguments."""
        wanted = self.members(protocol)
        if not wanted <= self.members(name):
            return False
        pairs = ((self.written(name, one), self.written(protocol, one)) for one in wanted)
        return all(_takes(mine, theirs) for mine, theirs in pairs if theirs and not theirs.decorator_list)

    def written(self, name: str, method: str) -> Function | None:
        """A method of a class as it is written, there or in a base."""
        found = (self.house.functions.get(f"{one}.{method}") for one in self.lineage(name))
        return next((one for one in found if one is not None), None)

    def _members(self, name: str) -> set[str]:
        """Names that a class has: methods, fields, and what its methods assign to `self`."""
        found: set[str] = set()
        for one in self.lineage(name):
            for node in self.classes[one].body:
                if isinstance(node, Function):
                    found.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
                elif isinstance(node, ast.Assign):
                    found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            for node in ast.walk(self.classes[one]):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found |= {node.attr} if ast.unparse(node.value) == "self" else set()
        return found

    def _having(self, protocol: str) -> list[str]:
        """Classes of the package that have a Protocol's form, without those that inherit it."""
        fitting = {name for name in self.classes if not self.is_protocol(name) and self.fits(name, protocol)}
        return sorted(one for one in fitting if not fitting & set([*self.lineage(one)][1:]))

    def method(self, owner: str, name: str) -> str:
        """The full name of a method of an object; of a Protocol whose form one class has, the method of that
        class. "" for none that is written in the package."""
        if self.is_protocol(owner):
            found = self.having(owner)
            if len(found) != 1:
                return ""
            owner = found[0]
        for one in self.lineage(owner):
            if f"{one}.{name}" in self.house.functions:
                return f"{one}.{name}"
        return ""

    # --- annotations
    def annotation(self, module: str, node: ast.expr | None, own: str = "") -> Kind:
        """What an annotation says; `own`: the class that it stands in, for Self."""
        if node is None:
            return NOTHING
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotation(module, ast.parse(node.value, mode="eval").body, own)
        if isinstance(node, ast.BinOp):
            sides = [self.annotation(module, one, own) for one in (node.left, node.right)]
            known = {one for one in sides if one != NOTHING}
            return known.pop() if len(known) == 1 else NOTHING
        if isinstance(node, ast.Subscript):
            return self._subscripted(module, node, own)
        text = ast.unparse(node)
        if text in ("Self", "typing.Self"):
            return Kind(own)
        name = self.full(module, text)
        return Kind(name) if name in self.classes else NOTHING

    def _subscripted(self, module: str, node: ast.Subscript, own: str) -> Kind:
        outer = ast.unparse(node.value).rpartition(".")[2]
        if outer == "Literal":
            return NOTHING
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = parts[:1] if outer == "Annotated" else parts
        kinds = [self.annotation(module, one, own) for one in parts]
        if outer in ELEMENTS or (outer == "tuple" and ast.unparse(parts[-1]) == "..."):
            return Kind(each=kinds[0])
        if outer == "tuple":
            return Kind(parts=tuple(kinds))
        if outer in VALUES or outer == "Callable":
            return Kind(each=kinds[-1])
        if outer == "type":
            return Kind(kinds[0].name, itself=True)
        if outer in INNER:
            return kinds[0]
        return self.annotation(module, node.value, own)

    def result(self, function: str, owner: str = "") -> Kind:
        """What a function gives; `owner`: the class of the object whose method it is."""
        node = self.house.functions[function]
        home = self._home(function)
        return self.annotation(home, node.returns, owner or self._class(function))

    def _class(self, function: str) -> str:
        found = function.rpartition(".")[0]
        return found if found in self.classes else ""

    def _home(self, function: str) -> str:
        own = self._class(function)
        return self.module[own] if own else function.rpartition(".")[0]

    # --- fields
    def _assignments(self, name: str) -> dict[str, list[tuple[str, ast.expr]]]:
        """What methods of a class assign to `self`: by field the methods and the expressions."""
        if name not in self._assigned:
            found: dict[str, list[tuple[str, ast.expr]]] = {}
            for method in self.classes[name].body:
                for node in ast.walk(method) if isinstance(method, Function) else ():
                    for target, value in _assigned(node):
                        own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
                        if own and isinstance(target, ast.Attribute):
                            found.setdefault(target.attr, []).append((f"{name}.{method.name}", value))
            self._assigned[name] = found
        return self._assigned[name]

    def field(self, owner: str, name: str) -> Kind:
        """What an attribute of an object is."""
        if (owner, name) not in self._fields:
            self._fields[owner, name] = NOTHING     # where it is defined by itself
            self._fields[owner, name] = self._field(owner, name)
        return self._fields[owner, name]

    def _field(self, owner: str, name: str) -> Kind:
        for one in self.lineage(owner):
            module = self.module[one]
            for node in ast.walk(self.classes[one]):
                if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in (name, f"self.{name}"):
                    return self.annotation(module, node.annotation, owner)
            for node in self.classes[one].body:
                if isinstance(node, Function) and node.name == name and node.decorator_list:
                    return self.annotation(module, node.returns, owner)
            for method, value in self._assignments(one).get(name, ()):
                found = self.of(value, module, self.names(method))
                if found != NOTHING:
                    return found
        return NOTHING

    # --- expressions
    def names(self, function: str) -> Names:
        """What names in a function are."""
        if function not in self._known:
            found = self._known[function] = dict[str, Kind]()
            node, module, own = self.house.functions[function], self._home(function), self._class(function)
            given = [*node.args.posonlyargs, *node.args.args]
            for one in (*given, *node.args.kwonlyargs):
                found[one.arg] = self.annotation(module, one.annotation, own)
            if (more := node.args.vararg) is not None:
                found[more.arg] = Kind(each=self.annotation(module, more.annotation, own))
            if own and given and given[0].annotation is None:
                found[given[0].arg] = Kind(own, itself=given[0].arg == "cls")
            for one in sorted((n for n in ast.walk(node) if isinstance(n, BINDING)), key=_place):
                self._bound(one, module, found, own)
        return self._known[function]

    def _bound(self, node: ast.AST, module: str, names: Names, own: str) -> None:
        """Take up what a statement says of names."""
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = self.annotation(module, node.annotation, own)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            _put(node.target, self.of(node.iter, module, names).element(), names)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                kind = self.of(item.context_expr, module, names)
                if item.optional_vars is not None:
                    _put(item.optional_vars, kind if kind.name else kind.element(), names)
        else:
            for target, value in _assigned(node):
                _put(target, self.of(value, module, names), names)

    def of(self, node: ast.expr, module: str, names: Names) -> Kind:
        """What an expression is."""
        if isinstance(node, ast.Name):
            return names.get(node.id) or self._plain(module, node.id)
        if isinstance(node, ast.Attribute):
            held = self.of(node.value, module, names)
            return self.field(held.name, node.attr) if held.name else self._plain(module, ast.unparse(node))
        if isinstance(node, ast.Call):
            return self._called(node, module, names)
        if isinstance(node, ast.Subscript):
            return self._taken(node, self.of(node.value, module, names))
        if isinstance(node, ast.IfExp):
            return self._first([node.body, node.orelse], module, names)
        if isinstance(node, ast.BoolOp):
            return self._first(node.values, module, names)
        if isinstance(node, ast.Await | ast.Starred | ast.NamedExpr):
            return self.of(node.value, module, names)
        if isinstance(node, ast.Tuple):
            return Kind(parts=tuple(self.of(one, module, names) for one in node.elts))
        if isinstance(node, ast.List | ast.Set):
            return Kind(each=self._first(node.elts, module, names))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return Kind(each=self.of(node.elt, module, self._inside(node, module, names)))
        if isinstance(node, ast.DictComp):
            return Kind(each=self.of(node.value, module, self._inside(node, module, names)))
        return NOTHING

    def _inside(self, node: ast.AST, module: str, names: Names) -> Names:
        inner = dict(names)
        for one in getattr(node, "generators", ()):
            _put(one.target, self.of(one.iter, module, inner).element(), inner)
        return inner

    def _first(self, nodes: list[ast.expr], module: str, names: Names) -> Kind:
        kinds = (self.of(one, module, names) for one in nodes)
        return next((one for one in kinds if one != NOTHING), NOTHING)

    def _plain(self, module: str, text: str) -> Kind:
        name = self.full(module, text)
        return Kind(name, itself=True) if name in self.classes else NOTHING

    @staticmethod
    def _taken(node: ast.Subscript, held: Kind) -> Kind:
        if isinstance(node.slice, ast.Slice):
            return held
        if held.parts and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return held.parts[node.slice.value] if node.slice.value < len(held.parts) else NOTHING
        return held.element()

    def _called(self, node: ast.Call, module: str, names: Names) -> Kind:
        text = ast.unparse(node.func)
        last = text.rpartition(".")[2]
        first = self.of(node.args[0], module, names) if node.args else NOTHING
        if last == "cast" and len(node.args) == 2:
            return self.annotation(module, node.args[0])
        if text in SAME or text.endswith(".replace"):
            return first
        if text in ONE:
            return first.element()
        if text == "enumerate":
            return Kind(each=Kind(parts=(NOTHING, first.element())))
        if text == "zip":
            return Kind(each=Kind(parts=tuple(self.of(one, module, names).element() for one in node.args)))
        if isinstance(node.func, ast.Attribute):
            held = self.of(node.func.value, module, names)
            if held.name:
                found = self.method(held.name, last)
                return self.result(found, held.name) if found else self.field(held.name, last).element()
            if held.each is not None:
                return {
                    "values": held, "copy": held, "items": Kind(each=Kind(parts=(NOTHING, held.each))),
                    "get": held.each, "pop": held.each, "setdefault": held.each,
                }.get(last, NOTHING)
        if isinstance(node.func, ast.Name) and node.func.id in names:
            kind = names[node.func.id]
            return Kind(kind.name) if kind.itself else kind.element()
        name = self.full(module, text)
        if name in self.classes:
            return Kind(name)
        return self.result(name) if name in self.house.functions else NOTHING


def _takes(mine: Function | None, theirs: Function) -> bool:
    """Whether a function can be called with all positional arguments of another."""
    if mine is None:
        return False
    own = [*mine.args.posonlyargs, *mine.args.args]
    given = len(theirs.args.posonlyargs) + len(theirs.args.args)
    return len(own) - len(mine.args.defaults) <= given and (given <= len(own) or mine.args.vararg is not None)


def _place(node: ast.AST) -> tuple[int, int]:
    at = node.iter if isinstance(node, ast.comprehension) else node
    return at.lineno, at.col_offset


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment with what they are given, pairs of tuples each by itself."""
    if isinstance(node, ast.NamedExpr):
        yield node.target, node.value
    for target in node.targets if isinstance(node, ast.Assign) else ():
        value = node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        if both and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _put(target: ast.expr, kind: Kind, names: Names) -> None:
    """A target's names, with what they are given."""
    if isinstance(target, ast.Name):
        if kind != NOTHING or target.id not in names:
            names[target.id] = kind
    elif isinstance(target, ast.Tuple):
        parts = kind.parts if len(kind.parts) == len(target.elts) else [kind.element()] * len(target.elts)
        for one, part in zip(target.elts, parts, strict=True):
            _put(one, part, names)
