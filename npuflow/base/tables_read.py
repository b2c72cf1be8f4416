"""From TOML values to typed tables: coercion, and every fault with its place, reason and remedy."""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from npuflow.base.errors import NpuflowError, RecipeError, meant
from npuflow.base.registry import Registry
from npuflow.base.tables_files import FilePath, Location, existing_file
from npuflow.base.tables_toml import Locator
from npuflow.base.tables_types import (
    Config,
    MayBeFolder,
    Range,
    hints,
    instead,
    options_class,
    registry_fields,
)

C = TypeVar("C", bound=Config)
BAD: Any = object()


def read_table(
    cls: type[C], table: Mapping[str, Any], at: Locator, also: Collection[str]
) -> tuple[C | None, list[NpuflowError]]:
    """An instance of `cls`, or all faults of the table."""
    faults: list[NpuflowError] = []
    found = _table(cls, table, at, faults, also)
    return (None, faults) if found is BAD else (found, faults)


def _fault(
    faults: list[NpuflowError], at: Locator, message: str, because: str = "", hint: str = "", *, code: str
) -> Any:
    faults.append(RecipeError(message, where=at.where(), because=because, hint=hint, code=code))
    return BAD


def _table(
    cls: type[C], table: Any, at: Locator, faults: list[NpuflowError], also: Collection[str] = ()
) -> Any:
    if not isinstance(table, Mapping):
        return _fault(
            faults, at, f"expected a table, got {_name(table)}", hint=f"keys: {', '.join(hints(cls))}",
            code="NF-RECIPE-010",
        )
    before = len(faults)
    kinds = hints(cls)
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name in table:
            values[field.name] = _value(kinds[field.name], table[field.name], at.child(field.name), faults)
        elif (other := instead(kinds[field.name])) in table:
            values[field.name] = _value(kinds[field.name], table[other], at.child(other), faults)
        elif field.default is MISSING and field.default_factory is MISSING:
            _fault(
                faults, at.child(field.name), f'"{field.name}" is missing', hint=wanted(kinds[field.name]),
                code="NF-RECIPE-007",
            )
    given = _options(cls, table, values, at, faults)
    keys = [*kinds, *(key for key in also if key not in kinds)]
    for key in table:
        if key not in keys and key not in given:
            entries = [name for registry in registry_fields(cls).values() for name in registry.names()]
            near = meant(key, [*keys, *entries] if isinstance(table[key], Mapping) else keys)
            because = f"allowed: {', '.join(keys) or 'nothing'}"
            _fault(faults, at.child(key), f'unknown key "{key}"', because, near, code="NF-RECIPE-008")
    if len(faults) > before:
        return BAD
    return _checked(cls, values, given, at, faults)


def _checked(
    cls: type[C], values: dict[str, Any], given: dict[str, Any], at: Locator, out: list[NpuflowError]
) -> Any:
    """The instance, its selected options attached, after its own cross-field check."""
    made = cls(**values)
    chosen: dict[str, Any] = {}
    for name in registry_fields(cls):
        entry = getattr(made, name)
        if isinstance(entry, str) and entry in given:
            chosen[name] = given[entry]
    if chosen:
        made.__dict__["_options"] = chosen
    before = len(out)
    for fault in made.check():
        place = at.child(*fault.field.split(".")) if fault.field else at
        _fault(out, place, fault.message, fault.because, fault.hint, code=fault.code)
    _unselected(made, given, at, out)
    return BAD if len(out) > before else made


def _unselected(made: Config, given: Collection[str], at: Locator, out: list[NpuflowError]) -> None:
    """A fault for every table of options whose entry no field selects. A file may keep the options of several
    entries where another one, `--set` or a sweep selects."""
    registries = registry_fields(type(made))
    for key in given:
        owners = [name for name, registry in registries.items() if key in registry]
        if not owners or any(getattr(made, name) == key for name in owners):
            continue
        name, table = owners[0], at.child(key)
        said, written = at.child(name).origin(), table.origin()
        if said.override or said.file != written.file:
            continue
        chosen = getattr(made, name)
        because = f'{name} is "{chosen}"' if chosen is not None else f"{name} is left out"
        _fault(
            out, table, f'the options of "{key}" have no effect', because,
            f'{name} = "{key}", or leave the table out', code="NF-RECIPE-124",
        )


def _options(
    cls: type[C], table: Mapping[str, Any], values: Mapping[str, Any], at: Locator, faults: list[NpuflowError]
) -> dict[str, Any]:
    """The sub-tables of registry entries, read by its own `Options`; those not selected are only checked."""
    found: dict[str, Any] = {}
    kinds = hints(cls)
    for key, value in table.items():
        if key in kinds or not isinstance(value, Mapping):
            continue
        for registry in registry_fields(cls).values():
            if key in registry:
                kind = options_class(registry, key)
                if kind is None:
                    message = f'"{key}" has no options'
                    found[key] = None if not value else _fault(
                        faults, at.child(key), message, hint="remove the table", code="NF-RECIPE-009", )
                else:
                    found[key] = _table(kind, value, at.child(key), faults)
    return found


def _value(kind: Any, value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    """One value as `kind`, or BAD with its faults noted."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _annotated(kind, value, at, faults)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), value, at, faults)
    if origin is Literal:
        allowed = get_args(kind)
        if any(value == a and type(value) is type(a) for a in allowed):
            return value
        return _choice(value, [str(a) for a in allowed], at, faults)
    if origin is tuple:
        return _tuple(get_args(kind), value, at, faults)
    if origin is dict:
        return _dict(get_args(kind)[1], value, at, faults)
    if isinstance(kind, type) and issubclass(kind, Config):
        return _table(kind, value, at, faults)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {m.value: m for m in kind}
        found = members.get(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        return found if found is not None else _choice(value, [str(m) for m in members], at, faults)
    if kind in (FilePath, Location):
        return _path(kind, value, at, faults)
    return _scalar(kind, value, at, faults)


def _scalar(kind: Any, value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is kind:
        return value
    quoted = f'"{value}", in quotes' if kind is str and isinstance(value, int | float) else ""
    return _fault(
        faults, at, f"expected {wanted(kind)}, got {_name(value)}", hint=quoted, code="NF-RECIPE-010", )


def _path(
    kind: Any, value: Any, at: Locator, faults: list[NpuflowError], folders: MayBeFolder | None = None
) -> Any:
    if not isinstance(value, str) or not value:
        hint = '"relative/to/this/file" or "pkg:NAME/FILE"'
        return _fault(faults, at, f"expected a path, got {_name(value)}", hint=hint, code="NF-RECIPE-010")
    if kind is Location:
        return Location(value, at.base)
    try:
        return existing_file(value, at.base, folders.names if folders is not None else None)
    except NpuflowError as error:
        return _fault(faults, at, error.message, error.because, error.hint, code=error.code)


def _annotated(kind: Any, value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    inner, *marks = get_args(kind)
    folders = next((mark for mark in marks if isinstance(mark, MayBeFolder)), None)
    if folders is not None:
        return _path(inner, value, at, faults, folders)
    found = _value(inner, value, at, faults)
    if found is BAD:
        return BAD
    for mark in marks:
        if isinstance(mark, Registry):
            bad = [
                v
                for v in (found if isinstance(found, tuple) else (found,))
                if isinstance(v, str) and v not in mark
            ]
            if bad:
                return _choice(bad[0], sorted(mark.names()), at, faults)
        numbers = found if isinstance(found, tuple) else (found,)
        if isinstance(mark, Range) and any(isinstance(n, int | float) and n not in mark for n in numbers):
            return _fault(faults, at, f"{_name(value)} is out of range", hint=str(mark), code="NF-RECIPE-011")
    return found


def _union(members: Sequence[Any], value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    """The first member that takes the value as it is; then the first that takes it at all."""
    plain = [m for m in members if m is not type(None)]
    exact = [m for m in plain if type(value) is m]
    attempts: list[list[NpuflowError]] = []
    for member in [*exact, *plain]:
        mine: list[NpuflowError] = []
        found = _value(member, value, at, mine)
        if found is not BAD:
            return found
        attempts.append(mine)
    alike = [a for m, a in zip([*exact, *plain], attempts, strict=True) if _same_shape(m, value)]
    if len(plain) == 1 or alike:
        fewest = min(map(len, alike or attempts))
        # Of several tables that could have been meant, the one that nearly fits speaks.
        faults.extend(next(mine for mine in alike or attempts if len(mine) == fewest))
        return BAD
    kinds = " or ".join(dict.fromkeys(wanted(m) for m in plain))
    return _fault(faults, at, f"expected {kinds}, got {_name(value)}", code="NF-RECIPE-010")


def _same_shape(kind: Any, value: Any) -> bool:
    """Whether `value` was plainly meant as a `kind`, so that only this kind's faults are worth telling."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    base = get_origin(kind) or kind
    if isinstance(value, Mapping):
        return base is dict or (isinstance(base, type) and issubclass(base, Config))
    if isinstance(value, list):
        return base is tuple
    return bool(base is type(value)) or (isinstance(value, str) and base is Literal)


def _tuple(args: Sequence[Any], value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    if not isinstance(value, list | tuple):
        return _fault(
            faults,
            at, f"expected an array, got {_name(value)}", hint=f"[{_name(value)}]", code="NF-RECIPE-010",
        )
    if len(args) == 2 and args[1] is Ellipsis:
        kinds = [args[0]] * len(value)
    elif len(args) != len(value):
        return _fault(faults, at, f"expected {len(args)} values, got {len(value)}", code="NF-RECIPE-010")
    else:
        kinds = list(args)
    found = [_value(k, v, at.child(i), faults) for i, (k, v) in enumerate(zip(kinds, value, strict=True))]
    return BAD if any(f is BAD for f in found) else tuple(found)


def _dict(kind: Any, value: Any, at: Locator, faults: list[NpuflowError]) -> Any:
    if not isinstance(value, Mapping):
        return _fault(faults, at, f"expected a table, got {_name(value)}", code="NF-RECIPE-010")
    found = {key: _value(kind, inner, at.child(key), faults) for key, inner in value.items()}
    return BAD if any(f is BAD for f in found.values()) else found


def _choice(value: Any, allowed: Sequence[str], at: Locator, faults: list[NpuflowError]) -> Any:
    near = meant(value, allowed) if isinstance(value, str) else ""
    return _fault(
        faults,
        at, f"{_name(value)} is not allowed", f"allowed: {', '.join(allowed)}", near, code="NF-RECIPE-012",
    )


def _name(value: Any) -> str:
    """A value as its writer would recognise it, kept short."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "an array"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    FilePath: "a file",
    Location: "a path",
}


def wanted(kind: Any) -> str:
    """What a type asks for, in the words of a recipe's writer."""
    if kind in _NAMES:
        return _NAMES[kind]
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *marks = get_args(kind)
        for mark in marks:
            if isinstance(mark, Range):
                return (
                    f"{wanted(inner)} {mark}"
                    if mark.low is not None or mark.high is not None
                    else wanted(inner)
                )
            if isinstance(mark, Registry):
                return "one of " + ", ".join(sorted(mark.names()))
        return wanted(inner)
    if origin in (Union, types.UnionType):
        return " or ".join(wanted(a) for a in get_args(kind) if a is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(kind))
    if origin is tuple:
        return "an array"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(m.value) for m in kind)
    return "a table"
