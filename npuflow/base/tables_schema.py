"""JSON Schema of recipe tables, and what each key means, taken from the code that declares it."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from npuflow.base import syntax
from npuflow.base.registry import Registry
from npuflow.base.tables_files import FilePath, Location
from npuflow.base.tables_types import Config, Doc, Range, hints, instead, options_class, registry_fields

_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def table_schema(cls: type[Config], within: tuple[type[Config], ...] = ()) -> dict[str, Any]:
    """The JSON Schema of one table, options of registry entries included. `within`: the tables around it; an
    entry whose own options name entries of its registry is not described inside itself again.
    """
    within = (*within, cls)
    texts = field_docs(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in fields(cls):  # type: ignore[arg-type]
        entry = type_schema(hints(cls)[field.name], within)
        if texts.get(field.name):
            entry["description"] = texts[field.name]
        default = default_of(field)
        if default is MISSING and not instead(hints(cls)[field.name]):
            required.append(field.name)
        elif default is not MISSING and default is not None:
            entry["default"] = plain(default)
        properties[field.name] = entry
    for registry in registry_fields(cls).values():
        for name in sorted(registry.names()):
            kind = options_class(registry, name)
            if kind is not None and name not in properties:
                properties[name] = table_schema(kind, within) if kind not in within else {"type": "object"}
    about = inspect.cleandoc(cls.__doc__ or "")
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    # a dataclass without docstring gets its signature as one
    if about and not about.startswith(f"{cls.__name__}("):
        schema["description"] = about
    if required:
        schema["required"] = required
    return schema


def type_schema(kind: Any, within: tuple[type[Config], ...] = ()) -> dict[str, Any]:
    """The JSON Schema of one field's type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if kind in (FilePath, Location):
        return {"type": "string"}
    if origin is Annotated:
        return _annotated(args[0], args[1:], within)
    if origin in (Union, types.UnionType):
        inner = [type_schema(a, within) for a in args if a is not type(None)]
        return inner[0] if len(inner) == 1 else {"anyOf": inner}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": type_schema(args[0], within)}
        size = len(args)
        return {
            "type": "array",
            "prefixItems": [type_schema(a, within) for a in args],
            "minItems": size,
            "maxItems": size,
        }
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(args[1], within)}
    if isinstance(kind, type) and issubclass(kind, Config):
        return table_schema(kind, within)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [m.value for m in kind]}
    return {}


def _annotated(inner: Any, marks: tuple[Any, ...], within: tuple[type[Config], ...]) -> dict[str, Any]:
    schema = type_schema(inner, within)
    place = schema["items"] if schema.get("type") == "array" and "items" in schema else schema
    for mark in marks:
        if isinstance(mark, Registry):
            place["enum"] = sorted(mark.names())
        elif isinstance(mark, Range):
            place.update({"minimum": mark.low} if mark.low is not None else {})
            place.update({"maximum": mark.high} if mark.high is not None else {})
        elif isinstance(mark, Doc):
            schema["description"] = mark.text
    return schema


def default_of(field: Any) -> Any:
    """A field's default value, MISSING if the key is required."""
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def plain(value: Any) -> Any:
    """A default as TOML and JSON would write it."""
    if isinstance(value, Config):
        stated = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
        return {name: plain(one) for name, one in stated.items() if one is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, FilePath | Location):
        return value.text
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    return value


def field_docs(cls: type[Config]) -> dict[str, str]:
    """What each key means: its `Doc`, else the string under it, else the comment behind or above it."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Config) and base is not Config:
            found.update(_source_docs(base))
    for name, kind in hints(cls).items():
        marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
        for mark in marks:
            if isinstance(mark, Doc):
                found[name] = mark.text
    return {name: found[name] for name in hints(cls) if name in found}


_SOURCE_DOCS: dict[type, dict[str, str]] = {}


def _source_docs(cls: type) -> Mapping[str, str]:
    """What the class body says of its own fields; read once for each class."""
    if cls not in _SOURCE_DOCS:
        _SOURCE_DOCS[cls] = _read_docs(cls)
    return _SOURCE_DOCS[cls]


def _read_docs(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # a class made at run time has no source
        return {}
    comments = {
        token.start[0]: token.string.lstrip("#: ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa", "# fmt"))
    }
    found: dict[str, str] = {}
    lines = source.splitlines()
    body = next(n for n in syntax.module(source).body if isinstance(n, ast.ClassDef)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else None
            )
            if isinstance(text, str):
                found[node.target.id] = inspect.cleandoc(text)
            elif (node.end_lineno or 0) in comments:
                found[node.target.id] = comments[node.end_lineno or 0]
            else:
                first = node.lineno
                while first - 1 in comments and lines[first - 2].lstrip().startswith("#"):
                    first -= 1
                if first < node.lineno:
                    found[node.target.id] = " ".join(comments[n] for n in range(first, node.lineno))
    return found
