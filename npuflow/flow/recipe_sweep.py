"""The `[sweep]` table of a recipe: keys with their values, every combination a point."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from npuflow.base.errors import NpuflowError, RecipeError
from npuflow.base.tables_toml import Locator, Origin, dotted
from npuflow.flow.recipe_files import KeyOverride, parse_set

TABLE = "sweep"
EXAMPLE = '"target.memory.local_bytes" = [131072, 262144]'


@dataclass(frozen=True)
class SweepAxis:
    """A key and the values that it takes; a value that is a table sets the keys in it together."""

    key: str
    values: tuple[Any, ...]
    origin: Origin | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One combination: what it sets, and how its products' folder is called."""

    values: Mapping[str, Any]
    overrides: tuple[KeyOverride, ...]
    name: str


def faults(table: Any, at: Locator) -> list[NpuflowError]:
    """What is wrong with a `[sweep]` table."""
    return _axes(table, at)[1]


def axes(table: Any, at: Locator) -> list[SweepAxis]:
    """The axes of a `[sweep]` table, in its order; all of its faults at once."""
    found, wrong = _axes(table, at)
    if wrong:
        raise RecipeError(wrong)
    return found


def _axes(table: Any, at: Locator) -> tuple[list[SweepAxis], list[NpuflowError]]:
    if not isinstance(table, Mapping):
        return [], [RecipeError(
            f'"{TABLE}" must be a table',
            where=at.where(), hint=f"[{TABLE}]\n{EXAMPLE}", code="NF-RECIPE-026",
        )]
    found: list[SweepAxis] = []
    wrong: list[NpuflowError] = []
    for keys, value in _leaves(table):
        place, key = at.child(*keys), ".".join(keys)
        if not isinstance(value, list) or not value:
            because = f"it is {value!r}"
            wrong.append(RecipeError(
                "expected a list of values",
                where=place.where(), because=because, hint=EXAMPLE, code="NF-RECIPE-035",
            ))
        elif len({repr(v) for v in value}) < len(value):
            wrong.append(RecipeError(
                "a value appears twice",
                where=place.where(), because=f"the values are {value!r}", code="NF-RECIPE-036",
            ))
        elif key.partition(".")[0] in (TABLE, "extends"):
            wrong.append(RecipeError(
                f'"{key}" cannot be swept', where=place.where(), hint=EXAMPLE, code="NF-RECIPE-037",
            ))
        else:
            found.append(SweepAxis(key, tuple(value), place.origin()))
    return found, wrong


def _leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """`"a.b" = [...]` and `a.b = [...]` alike."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def points(axes: Sequence[SweepAxis]) -> list[SweepPoint]:
    """The product of all axes, the last one fastest."""
    found, names = [], set[str]()
    for combination in product(*(axis.values for axis in axes)):
        values = {axis.key: value for axis, value in zip(axes, combination, strict=True)}
        overrides = [
            o for axis, value in zip(axes, combination, strict=True) for o in _overrides(axis, value)
        ]
        name = stem = "_".join(_word(axis.key, value) for axis, value in zip(axes, combination, strict=True))[
            :150
        ]
        while name in names:
            name = f"{stem}_{len(names)}"
        names.add(name)
        found.append(SweepPoint(values, tuple(overrides), name))
    return found


def _overrides(axis: SweepAxis, value: Any) -> Iterator[KeyOverride]:
    keys = parse_set(f"{axis.key}=0").keys
    for deeper, leaf in _leaves(value) if isinstance(value, Mapping) else [((), value)]:
        yield KeyOverride((*keys, *deeper), leaf, f"{dotted((*keys, *deeper))}={leaf}", axis.origin)


def _word(key: str, value: Any) -> str:
    """A part of a folder's name: strings and files by themselves, numbers behind the
    last word of their key."""
    if isinstance(value, str):
        return re.sub(r"[^\w.+-]+", "-", Path(value).stem if value.endswith(".toml") else value)
    shown = (
        "-".join(f"{k}-{v}" for k, v in value.items())
        if isinstance(value, Mapping)
        else f"{key.rpartition('.')[2]}-{value}"
    )
    return re.sub(r"[^\w.+-]+", "-", shown).strip("-")
