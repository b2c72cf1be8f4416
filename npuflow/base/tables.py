"""Recipe tables as frozen dataclasses: all that stages and the build system need of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from npuflow.base.errors import NpuflowError
from npuflow.base.tables_files import FilePath, Location
from npuflow.base.tables_toml import Locator, parse
from npuflow.base.tables_types import (
    Config,
    Doc,
    EntryConfig,
    Fault,
    Instead,
    MayBeFolder,
    Range,
    Unkeyed,
    Words,
    canonical,
    files,
    hints,
    instead,
    options_class,
    registry_fields,
    registry_of,
    selections,
    table_of,
)

__all__ = [
    "Config", "Doc", "EntryConfig", "Fault", "FilePath", "Instead", "Location", "Locator",
    "MayBeFolder", "Range", "Unkeyed", "Words", "canonical", "files", "hints", "instead",
    "options_class", "parse", "read", "registry_fields", "registry_of", "schema", "selections", "table_of",
]

C = TypeVar("C", bound=Config)


def read(
    cls: type[C], table: Mapping[str, Any], at: Locator | None = None, also: Collection[str] = ()
) -> tuple[C | None, list[NpuflowError]]:
    """An instance of `cls` from a recipe table, or every fault the table has; keys
    in `also` are someone else's."""
    from npuflow.base.tables_read import read_table

    return read_table(cls, table, at or Locator(), also)


def schema(cls: type[Config]) -> dict[str, Any]:
    """The JSON Schema of a table."""
    from npuflow.base.tables_schema import table_schema

    return table_schema(cls)
