"""Code closures of small packages that a test writes."""

from __future__ import annotations

from collections.abc import Callable

from npuflow.base import code
from npuflow.base.code import Closure

Write = Callable[..., None]


def run(name: str = "run") -> Closure:
    return code.definition_closure("pk.stage", name)


def closure_of(write: Write, text: str, more: dict[str, str] | None = None) -> Closure:
    write({"pk/__init__.py": "", **(more or {}), "pk/stage.py": text})
    return run()
