"""Dataclasses as nested lists, field by field, and back: how costs travel between steps of a build."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def packed(value: Any) -> Any:
    """Lists and scalars; dataclasses lose their field names."""
    if is_dataclass(value):
        kind: Any = type(value)
        return [packed(getattr(value, name)) for name in _names(kind)]
    return [packed(v) for v in value] if isinstance(value, (tuple, list)) else value


def unpacked(kind: Any, data: Any) -> Any:
    """What `packed` has made of a value of a type: dataclasses, tuples, optional values and scalars."""
    if data is None or not isinstance(data, list):
        return data
    if is_dataclass(kind):
        made: Any = kind
        hints = _hints(made)
        return made(*(unpacked(hints[name], row) for name, row in zip(_names(made), data, strict=True)))
    if get_origin(kind) in (Union, UnionType):
        return unpacked(next(k for k in get_args(kind) if k is not type(None)), data)
    inner = get_args(kind)
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(unpacked(inner[0], row) for row in data)
    return tuple(unpacked(k, row) for k, row in zip(inner, data, strict=True))


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.init)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)
