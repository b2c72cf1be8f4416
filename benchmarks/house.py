"""The structure of the code in numbers: rooms, circles, importers, parameters, a value's way through a stage.

    python benchmarks/house.py [FOLDER]

FOLDER is a checkout, this one without it, so that one script counts two commits. All is read from
the syntax of `npuflow/`; nothing of it is imported. What each row counts:

- circles: folders that import each other, directly or around, also inside functions and for types alone
- one importer: files that one other file of the package imports, outside folders of plug-ins
- parameters: functions with more than seven, `self` and `cls` not counted
- rooms of compiled kernels: `isa`, `kernels`, `whole` and `statistics/kernels.py` (before: `engine/opcodes`,
  `sim`, `execute`, `export_c` and `calibrate/kernels.py`), whose loops take arrays and strides one by one
- Protocols: classes that derive from typing.Protocol. One only avoids an import if a single class of the
  package has all its methods and fields: that class could be named instead. Those in the `__init__.py` of a
  folder of plug-ins are its contract, which plug-ins of other packages meet or are given, and avoid none
- decibels: files with functions that take ten or twenty times a logarithm to the base of ten
- sessions: functions that make an InferenceSession of onnxruntime's, not the package's own
- integer graphs: calls of `Candidate`, which is all that a quantised graph is built from
- walk: the functions of the package that a stage function reaches, followed call by call in the order of the
  source, each once. A stop is a stay in one file before another is entered; rooms are the folders entered.
  A method is that of the object's class where annotations say which (see `house_types.py`), of a Protocol's
  where one class has its form; elsewhere it is followed where one class of the package alone has a method of
  that name, and the file imports that class's file or lies beside it. Entries of registries and functions
  that are handed on are not followed.
- of one parameter: the same, followed only where a call or a property has the parameter or a part of it, as
  an argument or as its object
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from house_types import Types

KERNELS = re.compile(
    r"\.(isa|kernels|whole)\.|statistics\.kernels|engine\.(opcodes|sim|execute|export_c)\.|calibrate\.kernels"
)
PLUGINS = {
    "ops",
    "rules",
    "calibrators",
    "rounders",
    "strategies",
    "frontends",
    "metrics",
    "exchange",
    "heads",
}
PLUGINS |= {"isa", "opcodes", "stages", "cli", "targets"}
MOST = 7
LONGEST = 400                             # lines of a file
Function = ast.FunctionDef | ast.AsyncFunctionDef


class House:
    """The package's files, parsed, with what they import and define."""

    def __init__(self, root: Path) -> None:
        self.package = root / "npuflow"
        self.trees = {
            self.name(path): ast.parse(path.read_text()) for path in sorted(self.package.rglob("*.py"))
        }
        self.files = {self.name(path): path for path in sorted(self.package.rglob("*.py"))}
        self.imports = {name: self._imported(name) for name in self.trees}
        self.functions = {
            f"{name}.{node.name}": node
            for name, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, Function)
        }
        self.home = {name: name.rpartition(".")[0] for name in self.functions}       # a function's file
        self.methods: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.trees.items():
            for one in tree.body:
                for node in one.body if isinstance(one, ast.ClassDef) else ():
                    if isinstance(node, Function):
                        self.functions[f"{name}.{one.name}.{node.name}"] = node
                        self.home[f"{name}.{one.name}.{node.name}"] = name
        self.bindings = cache(self._bindings)
        self.types = Types(self)
        for name in self.types.classes:
            for one in self.types.classes[name].body if not self.types.is_protocol(name) else ():
                if isinstance(one, Function):
                    self.methods[one.name].append(f"{name}.{one.name}")

    def name(self, path: Path) -> str:
        parts = path.relative_to(self.package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def room(self, module: str) -> str:
        """The folder of a module."""
        return str(self.files[module].parent.relative_to(self.package.parent))

    def _bindings(self, module: str) -> dict[str, str]:
        """Name in a file -> what of the package it is, by the file's imports at any depth."""
        found = {}
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("npuflow"):
                found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return found

    def _imported(self, module: str) -> set[str]:
        found = set()
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                members = {f"{node.module}.{alias.name}" for alias in node.names} & set(self.files)
                found |= members or {node.module or ""}
        return found & set(self.files) - {module}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other."""
    reach = {name: set(found) for name, found in edges.items()}
    for middle in edges:
        for name in edges:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    rings = {
        tuple(sorted(a for a in edges if a in reach[b] and b in reach[a])) for b in edges if b in reach[b]
    }
    return [list(ring) for ring in sorted(rings)]


def room_circles(house: House) -> list[list[str]]:
    edges: dict[str, set[str]] = {house.room(name): set() for name in house.files}
    for name, found in house.imports.items():
        edges[house.room(name)] |= {house.room(one) for one in found if one != "npuflow"} - {
            house.room(name)
        }
    edges.pop("npuflow", None)
    return circles({room: found - {"npuflow"} for room, found in edges.items()})


def one_importer(house: House) -> dict[str, str]:
    """Files that one other imports, with that one."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, found in house.imports.items():
        for one in found:
            importers[one].add(name)
    return {
        name: next(iter(importers[name]))
        for name, path in house.files.items()
        if len(importers[name]) == 1 and path.name != "__init__.py" and not PLUGINS & set(name.split("."))
    }


def lines_of(house: House, module: str) -> int:
    return len(house.files[module].read_text().splitlines())


def parameters(node: Function) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len(given) - (bool(given) and given[0].arg in ("self", "cls"))


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def containing(house: House, last: str) -> list[str]:
    """Functions that call something whose last name is `last`."""
    return [n for n, f in house.functions.items() if any(c.split(".")[-1] == last for _, c in calls(f))]


def sessions(house: House) -> list[str]:
    """Functions that make a session, without those of files that import the package's class of that name."""
    found = containing(house, "InferenceSession")
    own = {module for module in house.files if "InferenceSession" in house.bindings(module)}
    return [one for one in found if not any(one.startswith(f"{module}.") for module in own)]


def decibel_files(house: House) -> set[str]:
    """Files in which ten or twenty is multiplied by something that has a logarithm."""
    return {
        name
        for name, tree in house.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        if any(isinstance(one, ast.Constant) and one.value in (10, 20) for one in ast.walk(node.left))
        if any(text.split(".")[-1] == "log10" for _, text in calls(node.right))
    }


def called(house: House, function: str) -> Iterator[str]:
    """Functions of the package that a function calls, in the order of the source."""
    for _, target in targets(house, function):
        yield target


def targets(house: House, function: str) -> Iterator[tuple[ast.Call, str]]:
    """The same, each with its call."""
    module, types = house.home[function], house.types
    names = types.names(function)
    found = sorted(calls(house.functions[function]), key=lambda one: (one[0].lineno, one[0].col_offset))
    for call, text in found:
        target = types.full(module, text)
        if target not in house.functions and isinstance(call.func, ast.Attribute):
            kind = types.of(call.func.value, module, names)
            if kind.name:
                target = types.method(kind.name, call.func.attr)
            else:
                named = house.methods.get(call.func.attr, [])
                if len(named) == 1 and known(house, module, named[0]) and target not in types.classes:
                    target = named[0]
        if target in types.classes:
            target = types.method(target, "__init__")
        if target in house.functions:
            yield call, target


def known(house: House, module: str, function: str) -> bool:
    """Whether a file imports that of a function, or lies beside it."""
    other = house.home[function]
    return other in house.imports[module] or house.room(other) == house.room(module)


def walk(house: House, start: str) -> tuple[int, set[str]]:
    """Stops and rooms of the walk from a function."""
    visited: set[str] = set()
    stays: list[str] = []

    def enter(function: str) -> None:
        visited.add(function)
        module = house.home[function]
        if not stays or stays[-1] != module:
            stays.append(module)
        for target in called(house, function):
            if target not in visited and compiler(target):
                enter(target)
                if stays[-1] != module:
                    stays.append(module)

    sys.setrecursionlimit(10_000)
    enter(start)
    return len(stays), {house.room(one) for one in stays}


def compiler(function: str) -> bool:
    """Whether a walk goes on into a function."""
    return function.split(".")[1] not in ("base", "flow", "hw", "ir", "onnx", *PLUGINS - {"stages"})


def parameter_walk(house: House, start: str, parameter: str) -> tuple[int, set[str]]:
    """Stops and rooms of one parameter's walk from a function: calls and properties whose object it is, or
    that are handed it or a part of it, each function once for a parameter of its own. Objects that are made
    of it are not followed."""
    visited: set[tuple[str, str]] = set()
    stays: list[str] = []

    def enter(function: str, name: str) -> None:
        visited.add((function, name))
        module, held = house.home[function], holders(house.functions[function], name)
        if not stays or stays[-1] != module:
            stays.append(module)
        found = [(target, one) for call, target in targets(house, function)
                 for one in sorted(handed(house, call, target, held))]
        for target, taken in (*found, *properties(house, function, held)):
            if (target, taken) not in visited and compiler(target):
                enter(target, taken)
                if stays[-1] != module:
                    stays.append(module)

    sys.setrecursionlimit(10_000)
    enter(start, parameter)
    return len(stays), {house.room(one) for one in stays}


def holders(function: Function, name: str) -> set[str]:
    """Names in a function that mean a parameter, or a part of it."""
    found = {name}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and means(node.value, found):
            names = (one for target in node.targets for one in ast.walk(target))
            found |= {one.id for one in names if isinstance(one, ast.Name)}
    return found


def means(node: ast.expr, held: set[str]) -> bool:
    """Whether an expression is one of these names or a part of it."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return isinstance(node, ast.Name) and node.id in held


def handed(house: House, call: ast.Call, target: str, held: set[str]) -> set[str]:
    """The parameters of a function that a call gives what one of these names means."""
    taking = house.functions[target].args
    given = [one.arg for one in [*taking.posonlyargs, *taking.args]]
    method = given[:1] in (["self"], ["cls"])
    pairs = [(one.arg, one.value) for one in call.keywords]
    pairs += list(zip(given[method:], call.args, strict=False))
    if method and isinstance(call.func, ast.Attribute):
        pairs.append((given[0], call.func.value))
    known = {*given, *(one.arg for one in taking.kwonlyargs)}
    return {name for name, value in pairs if name in known and means(value, held)}


def properties(house: House, function: str, held: set[str]) -> Iterator[tuple[str, str]]:
    """Properties of the package that a function reads of what these names mean, with their parameter."""
    module, types = house.home[function], house.types
    for node in ast.walk(house.functions[function]):
        if isinstance(node, ast.Attribute) and means(node.value, held):
            kind = types.of(node.value, module, types.names(function))
            found = types.method(kind.name, node.attr) if kind.name else ""
            if found and house.functions[found].decorator_list:
                yield found, "self"


def longest_walk(house: House, start: str) -> tuple[int, int, str]:
    """Of the parameters of a stage: stops and rooms of the longest walk, and whose it is."""
    node = house.functions[start]
    given = [one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    walks = [(*parameter_walk(house, start, one), one) for one in given]
    stops, rooms, name = max(walks, key=lambda found: (found[0], found[2]))
    return stops, len(rooms), name


def avoiding(house: House) -> list[str]:
    """Protocols that only avoid an import."""
    types = house.types
    return [
        name
        for name in types.classes
        if types.is_protocol(name) and not contract(house, types.module[name])
        if len(types.having(name)) == 1
    ]


def contract(house: House, module: str) -> bool:
    """Whether a file is that of a plug-in folder's contract."""
    return house.files[module].name == "__init__.py" and bool(PLUGINS & set(module.split(".")))


def rows(house: House) -> Iterator[tuple[str, str]]:
    lines = sum(lines_of(house, name) for name in house.files)
    yield "files / lines of npuflow/", f"{len(house.files):,} / {lines:,}"
    yield "folders in circles", str(sum(map(len, room_circles(house))))
    yield "loose files of engine/", str(len([*(house.package / "engine").glob("*.py")]))
    single = one_importer(house)
    entries = {name for name, other in single.items() if {"cli", "stages", "apps"} & set(other.split("."))}
    long = {one for one, other in single.items() if lines_of(house, one) + lines_of(house, other) > LONGEST}
    yield "files with one importer, outside plug-ins", str(len(single))
    yield "of these, behind a command, a stage or an app", str(len(entries))
    yield f"of the others, with their importer over {LONGEST} lines", str(len(long - entries))
    wide = [
        f"{name}.{node.name}"
        for name, tree in house.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and parameters(node) > MOST
    ]
    yield f"functions with more than {MOST} parameters", str(len(wide))
    yield "of these, stages", str(sum(name.split(".")[1] == "stages" for name in wide))
    yield "of these, in rooms of compiled kernels", str(sum(bool(KERNELS.search(name)) for name in wide))
    yield "Protocols", str(sum(map(house.types.is_protocol, house.types.classes)))
    yield "of these, that only avoid an import", str(len(avoiding(house)))
    yield "files that compute decibels", str(len(decibel_files(house)))
    yield "functions that make a session", str(len(sessions(house)))
    texts = (text for tree in house.trees.values() for _, text in calls(tree))
    yield "places that assemble a candidate", str(sum(one.split(".")[-1] == "Candidate" for one in texts))
    for stage in ("precision", "verdict", "quantize", "tiling"):
        stops, rooms = walk(house, f"npuflow.stages.{stage}.{stage}")
        yield f"walk from the stage {stage}: stops, rooms", f"{stops}, {len(rooms)}"
        stops, passed, name = longest_walk(house, f"npuflow.stages.{stage}.{stage}")
        yield "of one parameter, the longest: stops, rooms, which", f"{stops}, {passed}, `{name}`"


if __name__ == "__main__":
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parent.parent
    for name, value in rows(House(root)):
        print(f"| {name} | {value} |")
