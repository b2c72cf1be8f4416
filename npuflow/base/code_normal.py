"""Syntax without its looks: a canonical encoding of a syntax tree that every Python version agrees on."""

from __future__ import annotations

import ast
import functools
import struct
from collections.abc import Iterable

import xxhash

from npuflow.base.digest import ALGORITHM, encode

_DROPPED = {"ctx", "type_comment", "kind", "type_ignores"}


def syntax_digest(nodes: Iterable[ast.AST]) -> str:
    """The digest of statements: no positions, comments, docstrings, `pass` or empty
    fields."""
    out = bytearray()
    for node in nodes:
        _node(node, out)
    return f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(out)}"


def inert(node: object) -> bool:
    """Statements that do nothing: docstrings and other lone constants, `pass`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _node(node: ast.AST, out: bytearray) -> None:
    out += b"("
    out += _text(type(node).__name__)
    for name in node._fields:
        if name in _DROPPED:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = _pieces(value) if isinstance(node, ast.JoinedStr) else value
            value = [part for part in value if not inert(part)]
        if (value is None and not isinstance(node, ast.Constant)) or value == []:
            continue
        out += _text(name)
        if isinstance(value, ast.AST):
            _node(value, out)
        elif isinstance(value, list):
            _list(value, out)
        else:
            _leaf(value, out)
    out += b")"


def _list(values: list[object], out: bytearray) -> None:
    out += b"["
    for value in values:
        if isinstance(value, ast.AST):
            _node(value, out)
        else:
            _leaf(value, out)
    out += b"]"


def _leaf(value: object, out: bytearray) -> None:
    if type(value) is str:
        out += _string(value)
    elif isinstance(value, complex):
        out += b"c" + encode([value.real, value.imag])
    elif value is Ellipsis:
        out += b"E"
    else:
        out += encode(value)


@functools.lru_cache(1 << 16)
def _string(text: str) -> bytes:
    return encode(text)


@functools.cache
def _text(text: str) -> bytes:
    """A name of the syntax itself: of a kind of node, or of a field."""
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


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
