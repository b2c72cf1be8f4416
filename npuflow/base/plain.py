"""Values as JSON has them, and back by their types: dataclasses, tuples, mappings, optional values, enums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def plain(value: Any, rows: bool = False) -> Any:
    """Lists, mappings and scalars. A dataclass is a mapping of its fields, or a list of them where `rows`; a
    named tuple is a list."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, Enum)):
        return value
    if is_dataclass(value):
        kind: Any = type(value)
        found = {name: plain(getattr(value, name), rows) for name in names_of(kind)}
        return list(found.values()) if rows else found
    if isinstance(value, Mapping):
        return {key: plain(one, rows) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one, rows) for one in value]
    return value.value if isinstance(value, Enum) else value


def typed(kind: Any, data: Any, rows: bool = False) -> Any:
    """What `plain` has made of a value of that type. `TypeError` or `ValueError`: it is no such value."""
    return _reader(kind, rows)(data)


@cache
def names_of(kind: Any) -> tuple[str, ...]:
    """The fields that make a dataclass."""
    return tuple(one.name for one in fields(kind) if one.init)


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, or of a named tuple's."""
    return get_type_hints(kind)


@cache
def _reader(kind: Any, rows: bool) -> Callable[[Any], Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(inner[0], rows)
    if origin in (Union, UnionType):
        return partial(_either, tuple(one for one in inner if one is not type(None)), rows)
    if kind is float:
        return _real
    if is_dataclass(kind):
        return partial(_made, kind, rows)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return partial(_listed, kind, tuple(hints_of(kind).values()), rows)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_mapped, _reader(inner[1], rows))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if origin is tuple and inner[-1:] != (Ellipsis,):
            return partial(_listed, None, inner, rows)
        return partial(_repeated, list if origin is list else tuple, _reader(inner[0], rows))
    return _same


def _same(data: Any) -> Any:
    return data


def _real(data: Any) -> Any:
    """A number that a person may have written without a point."""
    return float(data) if type(data) is int else data


def _made(kind: Any, rows: bool, data: Any) -> Any:
    hints, names = hints_of(kind), names_of(kind)
    if rows:
        return kind(*map(_typed_row, (hints[name] for name in names), _list(data, len(names))))
    if not isinstance(data, Mapping):
        raise TypeError(f"{kind.__name__} wants a mapping, not {data!r:.40}")
    if unknown := data.keys() - set(names):
        raise TypeError(f"{kind.__name__} has no field {min(unknown)!r}")
    return kind(**{name: _reader(hints[name], False)(data[name]) for name in names if name in data})


def _typed_row(kind: Any, data: Any) -> Any:
    return _reader(kind, True)(data)


def _list(data: Any, count: int | None = None) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise TypeError(f"there is {data!r:.40} where a list should be")
    if count is not None and len(data) != count:
        raise ValueError(f"a list has {len(data)} elements instead of {count}")
    return data


def _listed(kind: Any, inner: tuple[Any, ...], rows: bool, data: Any) -> Any:
    found = tuple(_reader(one, rows)(row) for one, row in zip(inner, _list(data, len(inner)), strict=True))
    return found if kind is None else kind(*found)


def _repeated(kind: Callable[[Any], Any], inner: Callable[[Any], Any], data: Any) -> Any:
    return kind(map(inner, _list(data)))


def _mapped(inner: Callable[[Any], Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise TypeError(f"there is {data!r:.40} where a mapping should be")
    return {key: inner(one) for key, one in data.items()}


def _either(kinds: tuple[Any, ...], rows: bool, data: Any) -> Any:
    """None, or a value of one of the types; of several dataclasses the one that has just these fields."""
    if data is None or len(kinds) == 1:
        return None if data is None else _reader(kinds[0], rows)(data)
    if isinstance(data, Mapping):
        for kind in kinds:
            if is_dataclass(kind) and data.keys() == set(names_of(kind)):  # type: ignore[arg-type]
                return _made(kind, rows, data)
    return data
