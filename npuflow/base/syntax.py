"""Python's own parser, one thread at a time.

CPython up to 3.11 counts the depth of the tree that it converts for all threads together and raises
"SystemError: AST constructor recursion depth mismatch" when two of them convert at once
(python/cpython issue 106905). Libraries parse as well, numpy each header of a file: then it is parsed again.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_ONE = threading.Lock()


_TRIES = 5


def module(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """The tree of a module. Raises what `ast.parse` does."""
    return _alone(lambda: ast.parse(source, filename=filename))


def expression(source: str) -> ast.Expression:
    """The tree of one expression. Raises what `ast.parse` does."""
    return _alone(lambda: ast.parse(source, mode="eval"))


def _alone(parse: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        with _ONE, suppress(SystemError):
            return parse()
    return parse()
