"""Python's own parser, one thread at a time.

CPython up to 3.11 counts the depth of the tree that it converts for all threads together and raises
"SystemError: AST constructor recursion depth mismatch" when two of them convert at once
(python/cpython issue 106905).
"""

from __future__ import annotations

import ast
import threading

_ONE = threading.Lock()


def module(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """The tree of a module. Raises what `ast.parse` does."""
    with _ONE:
        return ast.parse(source, filename=filename)


def expression(source: str) -> ast.Expression:
    """The tree of one expression. Raises what `ast.parse` does."""
    with _ONE:
        return ast.parse(source, mode="eval")
