"""A recipe with every default written out and the place of what it did not say itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from npuflow.base.tables import Config, hints, table_of
from npuflow.base.tables_write import document, dotted_header
from npuflow.cli._engine import known_tables, plan, recipe, stages
from npuflow.flow.recipe import SETTINGS, Recipe
from npuflow.flow.recipe_files import shown_path


def text(path: Path, sets: Sequence[str] | None = None) -> str:
    """The recipe as one TOML document that builds the same."""
    loaded = recipe(path, sets)
    steps = plan(loaded)
    running = {
        cls for step in steps for cls in map(type, (*step.configs.values(), *step.listing_configs.values()))
    }
    return "\n".join(_document(loaded, known_tables(stages()), running)).rstrip() + "\n"


def _document(loaded: Recipe, known: Sequence[type[Config]], running: set[type[Config]]) -> Iterator[str]:
    yield f"# {loaded.path.name if loaded.path else loaded.name}, with every default"
    yield ""
    own = shown_path(loaded.path) if loaded.path else None
    on: list[tuple[Config, str]] = []
    off: list[str] = []
    for cls in sorted([*known, *SETTINGS], key=lambda cls: _rank(cls, loaded)):
        header = table_of(cls)
        found, _ = loaded.read(cls, known)
        if found is None or not (cls in running or cls in SETTINGS or loaded.has(header)):
            off.append(header)
        else:
            on.append((found, header))
    yield from document(on, loaded.folder, lambda header, name: _note(loaded, header, name, own))
    written = {header for _, header in on}
    for header in dict.fromkeys(name for name in off if name not in written):
        yield f"# [{dotted_header(header)}] is absent: the stages that it switches on do not run"


def _rank(cls: type[Config], loaded: Recipe) -> tuple[int, str, int]:
    """Tables in the recipe's own order, then the others by name, settings last; of one table the largest
    class first.
    """
    order = list(loaded.tables)
    top = table_of(cls).split(".")[0]
    place = order.index(top) if top in order else len(order) + (cls in SETTINGS)
    return place, table_of(cls), -len(hints(cls))


def _note(loaded: Recipe, header: str, name: str, own: str | None) -> str:
    """Where a key that this recipe does not say itself comes from."""
    keys = [*header.split("."), *name.split(".")]
    found: Any = loaded.tables
    for part in keys:
        if not isinstance(found, Mapping) or part not in found:
            return "default"
        found = found[part]
    origin = loaded.at.child(*keys).origin()
    if origin.file is None or origin.file == own:
        return ""
    return f"{origin.file}:{origin.line}" if origin.line else origin.file
