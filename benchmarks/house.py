"""The structure of the code in numbers: rooms, circles, importers, parameters, a value's way through a stage.

    python benchmarks/house.py [FOLDER]

FOLDER is a checkout, this one without it, so that one script counts two commits. All is read from
the syntax of `npuflow/`; nothing of it is imported. What each row counts:

- circles: folders that import each other, directly or around, also inside functions and for types alone
- one importer: files that one other file of the package imports, outside folders of plug-ins
- parameters: functions with more than seven, `self` and `cls` not counted
- rooms of compiled kernels: `isa`, `kernels`, `whole` and `statistics/kernels.py` (before: `engine/opcodes`,
  `sim`, `execute`, `export_c` and `calibrate/kernels.py`), whose loops take arrays and strides one by one
- Protocols: classes that derive from typing.Protocol
- decibels: files with functions that take ten or twenty times a logarithm to the base of ten
- sessions: functions that make an InferenceSession of onnxruntime's, not the package's own
- integer graphs: calls of `Candidate`, which is all that a quantised graph is built from
- walk: the functions of the package that a stage function reaches, followed call by call in the order of the
  source, each once. A stop is a stay in one file before another is entered; rooms are the folders entered.
  Calls through attributes are followed where one class of the package alone has a method of that name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

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
        self.methods: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.trees.items():
            for one in tree.body:
                for node in one.body if isinstance(one, ast.ClassDef) else ():
                    if isinstance(node, Function):
                        self.functions[f"{name}.{one.name}.{node.name}"] = node
                        self.methods[node.name].append(f"{name}.{one.name}.{node.name}")

    def name(self, path: Path) -> str:
        parts = path.relative_to(self.package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def room(self, module: str) -> str:
        """The folder of a module."""
        return str(self.files[module].parent.relative_to(self.package.parent))

    def bindings(self, module: str) -> dict[str, str]:
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


def one_importer(house: House) -> list[str]:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, found in house.imports.items():
        for one in found:
            importers[one].add(name)
    return [
        name
        for name, path in house.files.items()
        if len(importers[name]) == 1 and path.name != "__init__.py" and not PLUGINS & set(name.split("."))
    ]


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


def walk(house: House, start: str) -> tuple[int, set[str]]:
    """Stops and rooms of the walk from a function."""
    visited: set[str] = set()
    stays: list[str] = []
    order = sorted(house.files, key=len, reverse=True)

    def home(function: str) -> str:
        return next(module for module in order if function.startswith(module + "."))

    def enter(function: str) -> None:
        visited.add(function)
        module = home(function)
        if not stays or stays[-1] != module:
            stays.append(module)
        bound = house.bindings(module)
        for call, text in calls(house.functions[function]):
            head, _, rest = text.partition(".")
            target = bound.get(head, f"{module}.{head}") + (f".{rest}" if rest else "")
            if target not in house.functions and f"{target}.__init__" in house.functions:
                target = f"{target}.__init__"
            if target not in house.functions and isinstance(call.func, ast.Attribute):
                named = house.methods.get(call.func.attr, [])
                target = named[0] if len(named) == 1 else ""
            if target in house.functions and target not in visited and compiler(target):
                enter(target)
                if stays[-1] != module:
                    stays.append(module)

    def compiler(function: str) -> bool:
        return function.split(".")[1] not in ("base", "flow", "hw", "ir", "onnx", *PLUGINS - {"stages"})

    sys.setrecursionlimit(10_000)
    enter(start)
    return len(stays), {house.room(one) for one in stays}


def rows(house: House) -> Iterator[tuple[str, str]]:
    lines = sum(len(path.read_text().splitlines()) for path in house.files.values())
    yield "files / lines of npuflow/", f"{len(house.files):,} / {lines:,}"
    yield "folders in circles", str(sum(map(len, room_circles(house))))
    yield "loose files of engine/", str(len([*(house.package / "engine").glob("*.py")]))
    yield "files with one importer, outside plug-ins", str(len(one_importer(house)))
    wide = [
        f"{name}.{node.name}"
        for name, tree in house.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and parameters(node) > MOST
    ]
    yield f"functions with more than {MOST} parameters", str(len(wide))
    yield "of these, stages", str(sum(name.split(".")[1] == "stages" for name in wide))
    yield "of these, in rooms of compiled kernels", str(sum(bool(KERNELS.search(name)) for name in wide))
    protocols = [
        c
        for tree in house.trees.values()
        for c in ast.walk(tree)
        if isinstance(c, ast.ClassDef)
        and any(re.fullmatch(r"(typing\.)?Protocol(\[.*\])?", ast.unparse(base)) for base in c.bases)
    ]
    yield "Protocols", str(len(protocols))
    yield "files that compute decibels", str(len(decibel_files(house)))
    yield "functions that make a session", str(len(sessions(house)))
    called = (text for tree in house.trees.values() for _, text in calls(tree))
    yield "places that assemble a candidate", str(sum(one.split(".")[-1] == "Candidate" for one in called))
    for stage in ("precision", "verdict", "quantize", "tiling"):
        stops, rooms = walk(house, f"npuflow.stages.{stage}.{stage}")
        yield f"walk from the stage {stage}: stops, rooms", f"{stops}, {len(rooms)}"


if __name__ == "__main__":
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parent.parent
    for name, value in rows(House(root)):
        print(f"| {name} | {value} |")
