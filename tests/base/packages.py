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


DAMAGES = ("cut", "flip", "other maker", "empty", "no text")
"""What may happen to a memo's file."""


def damaged(data: bytes, how: str) -> bytes:
    """A memo's file after one of `DAMAGES`."""
    return {
        "cut": data[:-5],
        "flip": data[:200] + bytes([data[200] ^ 1]) + data[201:],
        "other maker": b"y" + data[1:],
        "empty": b"",
        "no text": b"\xff" * 40,
    }[how]
