"""Syntax without its looks: a canonical encoding of a syntax tree that every Python version agrees on."""

from __future__ import annotations

import ast
import functools
import struct
from collections.abc import Iterable

import xxhash

from npuflow.base.digest import ALGORITHM, encode

_DROPPED = {"ctx", "type_comment", "kind", "type_ignores"}


Encoded = dict[int, bytes]
"""What was encoded of one tree, by the identity of its statements: the tree must outlive it."""


def syntax_digest(nodes: Iterable[ast.AST], known: Encoded | None = None) -> str:
    """The digest of statements: no positions, comments, docstrings, `pass` or empty
    fields. `known` saves encoding a statement again that is part of several digests."""
    out = bytearray()
    for node in nodes:
        found = known.get(id(node)) if known is not None else None
        if found is not None:
            out += found
        else:
            _node(node, out, known)
    return f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(out)}"


def inert(node: object) -> bool:
    """Statements that do nothing: docstrings and other lone constants, `pass`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


class _Parts(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of every kind of node that may hold nodes of interest, listed on first use."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        found = self[kind] = tuple(name for name in kind._fields if name not in {*_DROPPED, "id", "attr"})
        return found


class _Layouts(dict[type[ast.AST], tuple[bytes, tuple[tuple[str, bytes], ...]]]):
    """How every kind of node begins, and its fields that count, each with its own beginning."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
        names = (name for name in kind._fields if name not in _DROPPED)
        found = self[kind] = b"(" + _text(kind.__name__), tuple((name, _text(name)) for name in names)
        return found


PARTS, _LAYOUTS = _Parts(), _Layouts()


def _node(node: ast.AST, out: bytearray, known: Encoded | None = None) -> None:
    kind = type(node)
    head, names = _LAYOUTS[kind]
    out += head
    for name, field in names:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            out += field
            _node(value, out)
        elif type(value) is list:
            parts = _pieces(value) if kind is ast.JoinedStr else value
            parts = [part for part in parts if not inert(part)]
            if parts:
                out += field
                _list(parts, out, known)
        elif value is not None or kind is ast.Constant:
            out += field
            _leaf(value, out)
    out += b")"


def _list(values: list[object], out: bytearray, known: Encoded | None) -> None:
    out += b"["
    for value in values:
        if known is not None and isinstance(value, ast.stmt):
            if id(value) not in known:
                inner = bytearray()
                _node(value, inner)
                known[id(value)] = bytes(inner)
            out += known[id(value)]
        elif isinstance(value, ast.AST):
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
