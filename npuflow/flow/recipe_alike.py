"""Typed tables that recipes of one sweep share: each is read once, however many points have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npuflow.base.errors import NpuflowError
from npuflow.base.tables import Config, Locator, table_of

Mark = tuple[Any, ...]
Read = tuple[Any, list[NpuflowError]]


class AlikeTables:
    """Tables without faults that were read of recipes, all for the same stages. Equal ones are one object."""

    def __init__(self) -> None:
        self._read: dict[tuple[type[Config], int], Read] = {}
        self._numbers: dict[Mark, int] = {}
        self._at: Locator | None = None
        self._of: dict[str, int] = {}

    def read(
        self, cls: type[Config], tables: Mapping[str, Any], at: Locator, fresh: Callable[[], Read]
    ) -> Read:
        """The table of `cls` as it was read of a recipe with an equal one, else by `fresh`. `tables`, `at`:
        all tables of the recipe, and where its keys were written."""
        key = cls, self._number(tables, at, table_of(cls))
        found = self._read.get(key)
        if found is None:
            found = fresh()
            if found[0] is not None:
                self._read[key] = found
        return found

    def _number(self, tables: Mapping[str, Any], at: Locator, table: str) -> int:
        """Equal for recipes that have a table with the same values, of the same types, written in the same
        places: relative paths and some faults depend on these."""
        if self._at is not at:                # another recipe than the last one
            self._at, self._of = at, {}
        if table not in self._of:
            keys = tuple(table.split("."))
            value: Any = tables
            for key in keys:
                value = value.get(key) if isinstance(value, Mapping) else value
            depth = len(keys)
            places = tuple(
                (path, place) for path, place in at.origins.items()
                if path[:depth] == keys[: len(path)]                  # of what encloses it too
            )
            # as text, since 1, 1.0 and true are equal
            mark = table, repr(value), at.default, places
            self._of[table] = self._numbers.setdefault(mark, len(self._numbers))
        return self._of[table]
