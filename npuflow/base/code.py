"""The code part of a key: a digest of every definition that a function can statically reach."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuflow.base.digest import digest


@dataclass(frozen=True)
class Closure:
    """What a piece of code consists of: definitions and data files by digest, libraries by version."""

    digest: str
    definitions: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def closure(target: Any) -> Closure:
    """The closure of a function or class."""
    target = inspect.unwrap(target)
    return entry_closure(target.__module__, target.__qualname__)


def entry_closure(module: str, attribute: str | None = None, facets: tuple[str, ...] = ()) -> Closure:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    definitions = {module: digest(ast.dump(tree))}
    return Closure(digest(definitions), definitions)
