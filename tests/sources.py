"""The package's source files as tests of their form read them: parsed, with their floor and their imports."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "npuflow"
FILES = sorted(PACKAGE.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    found = _trees().get(path)
    return ast.parse(path.read_text()) if found is None else found


@cache
def _trees() -> dict[Path, ast.Module]:
    """All files, parsed once. They stay to the end: the collector neither looks through them nor is called by
    their millions of nodes."""
    gc.collect()
    gc.disable()
    try:
        return {path: ast.parse(path.read_text()) for path in FILES}
    finally:
        gc.freeze()
        gc.enable()


@cache
def walk(tree: ast.AST) -> Sequence[ast.AST]:
    """All nodes of a tree, listed once for all tests that look through it."""
    return list(ast.walk(tree))


def floor(path: Path) -> str:
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def room_of(parts: Sequence[str]) -> str:
    """The room of a module, by its name below the package: each product of `apps` is one of its own."""
    inner = len(parts) > 1 and parts[0] == "apps" and (PACKAGE / "apps" / parts[1]).is_dir()
    return "/".join(parts[: 1 + inner]) if parts and (PACKAGE / parts[0]).is_dir() else ""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, *, deferred: bool = True) -> tuple[tuple[str, int], ...]:
    """Every module a file imports, also inside functions unless `deferred` is false; with its line."""
    return tuple(_imports(path, deferred))


def _imports(path: Path, deferred: bool) -> Iterator[tuple[str, int]]:
    tree = parsed(path)
    own = name_of(path).split(".")
    package = own if path.name == "__init__.py" else own[:-1]
    for node in walk(tree) if deferred else nodes(tree, deferred):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            # `from npuflow import flow` and `from npuflow.search import plan` name modules too.
            yield from (
                (f"{module}.{alias.name}", node.lineno)
                for alias in node.names
                if module.startswith("npuflow")
            )


def nodes(tree: ast.AST, deferred: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not deferred and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if not deferred and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from nodes(node, deferred)


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
