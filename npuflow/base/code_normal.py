"""Syntax without its looks: a canonical encoding of a syntax tree that every Python version agrees on."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Iterable

import xxhash

from npuflow.base.digest import ALGORITHM, encode

_DROPPED = {"ctx", "type_comment", "kind", "type_ignores"}


def syntax_digest(nodes: Iterable[ast.AST], skip: Callable[[ast.AST], bool] = lambda node: False) -> str:
    """The digest of statements: no positions, comments, docstrings, `pass` or empty
    fields; `skip` leaves nodes out."""
    out = bytearray()
    for node in nodes:
        _node(node, out, skip)
    return f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(out)}"


def inert(node: object) -> bool:
    """Statements that do nothing: docstrings and other lone constants, `pass`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _node(node: ast.AST, out: bytearray, skip: Callable[[ast.AST], bool]) -> None:
    out += b"("
    _text(type(node).__name__, out)
    for name in node._fields:
        if name in _DROPPED:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = _pieces(value) if isinstance(node, ast.JoinedStr) else value
            value = [
                part for part in value if not (inert(part) or (isinstance(part, ast.AST) and skip(part)))
            ]
        if (value is None and not isinstance(node, ast.Constant)) or value == []:
            continue
        _text(name, out)
        if isinstance(value, ast.AST):
            _node(value, out, skip)
        elif isinstance(value, list):
            _list(value, out, skip)
        else:
            _leaf(value, out)
    out += b")"


def _list(values: list[object], out: bytearray, skip: Callable[[ast.AST], bool]) -> None:
    out += b"["
    for value in values:
        if isinstance(value, ast.AST):
            _node(value, out, skip)
        else:
            _leaf(value, out)
    out += b"]"


def _leaf(value: object, out: bytearray) -> None:
    if isinstance(value, complex):
        out += b"c" + encode([value.real, value.imag])
    elif value is Ellipsis:
        out += b"E"
    else:
        out += encode(value)


def _text(text: str, out: bytearray) -> None:
    raw = text.encode()
    out += struct.pack(">H", len(raw))
    out += raw


def _pieces(values: list[object]) -> list[object]:
    """The parts of an f-string with neighbouring literals joined and empty ones gone:
    versions split them differently."""
    joined: list[object] = []
    for value in values:
        last = joined[-1] if joined else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if isinstance(last, ast.Constant) and isinstance(last.value, str):
                joined[-1] = ast.Constant(last.value + value.value)
            elif value.value:
                joined.append(value)
        else:
            joined.append(value)
    return joined
