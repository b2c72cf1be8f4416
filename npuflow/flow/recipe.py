"""Recipes: TOML files that say what to build, with `extends`, `--set`, library
tables and a place for every key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from npuflow.base.errors import NpuflowError, RecipeError, meant
from npuflow.base.tables import (
    Config,
    Fault,
    Location,
    Locator,
    Range,
    hints,
    read,
    registry_fields,
    table_of,
)
from npuflow.base.tables_toml import path_of
from npuflow.flow.memory import size
from npuflow.flow.recipe_components import family, split
from npuflow.flow.recipe_files import KeyOverride, RecipeSource, load_sources, parse_set
from npuflow.flow.recipe_sweep import TABLE as SWEEP
from npuflow.flow.recipe_sweep import faults as sweep_faults

if TYPE_CHECKING:
    from npuflow.flow.recipe_alike import AlikeTables

__all__ = ["BuildTable", "KeyOverride", "Recipe", "load", "parse_set"]

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class BuildTable(Config, table="build"):
    """Where and how to build; nothing here can change a product."""

    out: Location | None = None
    """Folder of the products and the lock, relative to the recipe; `out/NAME` beside the recipe if absent."""
    cache: Location | None = None
    """Folder of the cache; the flag --cache and the environment's NPUFLOW_CACHE come before it."""
    cache_size: str | None = None
    """What the cache may hold, as `20GB`: builds remove what was not used for longest, and nothing that a
    running build uses. The environment's NPUFLOW_CACHE_SIZE comes before it; no limit if absent."""
    remote: str | None = None
    """A shared cache behind the local one: a folder or an fsspec URL."""
    remote_mode: Literal["off", "read", "read-write"] = "read-write"
    """What the remote cache is used for."""
    remote_push: Literal["made", "used"] = "made"
    """What a build uploads: what it made, or all that it used, also what the local cache held already."""
    remote_size: str | None = None
    """What the remote cache may hold, as `500GB`: looked at by builds that upload, once an hour; no limit if
    absent."""
    jobs: Annotated[int, Range(1)] | None = None
    """Steps that run at once; as many as there are cores if absent."""
    memory: str | None = None
    """What the steps that run at once may take together, by what their stages declare:
    `8GB`; the machine's if absent."""
    scheduler: str = "threads"
    """`threads` (in the build's own process, and processes for long stages of pure Python), `processes`,
    `processes:N`, or the address of a dask scheduler such as `tcp://host:port`."""
    dashboard: bool | None = None
    """Clusters that a build starts have dask's dashboard, whose address is printed; if absent, clusters of
    processes alone, as its start takes half a second of a short build. It needs bokeh."""

    def check(self) -> Iterable[Fault]:
        for name in ("memory", "cache_size", "remote_size"):
            try:
                size(getattr(self, name) or "1GB")
            except ValueError as fault:
                yield Fault(name, str(fault), code="NF-RECIPE-024")


SETTINGS: tuple[type[Config], ...] = (BuildTable,)


@dataclass
class Recipe:
    """A loaded recipe: plain tables, where each key was written, and the files they came from."""

    path: Path | None
    name: str
    tables: dict[str, Any]
    at: Locator
    sources: tuple[RecipeSource, ...] = ()
    overrides: tuple[KeyOverride, ...] = ()
    lost: Mapping[str, NpuflowError] = field(default_factory=dict)
    """Library tables that name no library, with the fault: `faults` reports it among the others."""
    family: Path | None = None
    """Of a component: where the output folders of all components of its recipe are."""
    alike: AlikeTables | None = field(default=None, repr=False)
    """What recipes of one sweep share."""
    _read: dict[type[Config], tuple[Any, list[NpuflowError]]] = field(default_factory=dict, repr=False)

    @property
    def folder(self) -> Path:
        return self.path.parent if self.path is not None else Path()

    @property
    def out_dir(self) -> Path:
        """Where products and the lock go."""
        if self.family is not None:
            return self.family / self.name
        chosen = self.build.out
        return chosen.path if chosen is not None else self.folder / "out" / self.name

    @property
    def build(self) -> BuildTable:
        found, faults = self.read(BuildTable)
        if found is None:
            raise RecipeError(faults)
        return found

    def table(self, dotted: str) -> Mapping[str, Any] | None:
        """The table of that dotted path, None if the recipe has none (an empty one is not None)."""
        found: Any = self.tables
        for key in dotted.split("."):
            if not isinstance(found, Mapping) or key not in found:
                return None
            found = found[key]
        return found if isinstance(found, Mapping) else {}

    def has(self, dotted: str) -> bool:
        return self.table(dotted) is not None

    def read(self, cls: type[C], known: Iterable[type[Config]] = ()) -> tuple[C | None, list[NpuflowError]]:
        """The table of `cls`, typed, or its faults; keys that only other `known`
        classes declare are passed over."""
        if cls not in self._read:
            if self.alike is None:
                self._read[cls] = self._fresh(cls, tuple(known))
            else:
                self._read[cls] = self.alike.read(
                    cls, self.tables, self.at, lambda: self._fresh(cls, tuple(known))
                )
        return self._read[cls]

    def _fresh(self, cls: type[C], known: tuple[type[Config], ...]) -> tuple[C | None, list[NpuflowError]]:
        dotted = table_of(cls)
        keys = dotted.split(".")
        raw: Any = self.tables
        for key in keys:
            raw = raw.get(key, {}) if isinstance(raw, Mapping) else {}
        if isinstance(raw, Mapping):
            foreign = _entries([k for k in known if table_of(k) == dotted and k is not cls]) - _entries([cls])
            raw = {key: value for key, value in raw.items() if key not in foreign}
        return read(cls, raw, self.at.child(*keys), sorted(_declared(dotted, known)))

    def readable(self, cls: type[C], known: Iterable[type[Config]]) -> C | None:
        """The table of `cls` without the keys that are at fault; None where it is no table without them."""
        found, faults = self.read(cls, known)
        keys = table_of(cls).split(".")
        raw = self.table(table_of(cls))
        if found is not None or raw is None:
            return found
        paths = [path_of(fault.where.key)[len(keys) :] for fault in faults if fault.where.key]
        bad = {path[0] for path in paths if path}
        own = {key: value for key, value in raw.items() if key in hints(cls)}
        for kept in (_without(own, paths), {key: value for key, value in own.items() if key not in bad}):
            found = read(cls, kept, self.at.child(*keys), ())[0]
            if found is not None:
                return found
        return None

    def faults(
        self, known: Iterable[type[Config]], required: Iterable[type[Config]] | None = None
    ) -> list[NpuflowError]:
        """Every fault of the recipe: unknown tables and keys, and all that reading the known tables finds.

        `required` are the classes to read even when the recipe lacks their table
        (those of the stages that will run).
        """
        classes = tuple(dict.fromkeys([*known, *SETTINGS]))
        need = set(classes if required is None else required)
        found = [*self.lost.values(), *_unknown_tables(self, classes)]
        for cls in classes:
            if table_of(cls).partition(".")[0] in self.lost:
                continue  # what the library would have said is not known
            if cls in need or self.has(table_of(cls)):
                found += self.read(cls, classes)[1]
        return sorted(_distinct(found), key=_order)


def load(
    path: str | Path | None,
    sets: Sequence[str | KeyOverride] = (),
    *,
    tables: Mapping[str, Any] | None = None,
    libraries: Mapping[str, Path] | None = None,
    lenient: bool = False,
    out: Path | None = None,
) -> Recipe:
    """Read a recipe file (or plain `tables`), what it extends, its library tables,
    and apply `--set` overrides. "RECIPE.toml#COMPONENT" is one of its components; `out`: where those of all
    recipes are put.

    `lenient` leaves it to `Recipe.faults` to report a library table that names none,
    with all that is wrong besides.
    """
    overrides = tuple(parse_set(text) if isinstance(text, str) else text for text in sets)
    file, component = split(path) if path is not None else (None, "")
    merged, at, sources, lost = load_sources(file, tables or {}, overrides, libraries, (component, out))
    if lost and not lenient:
        raise RecipeError(tuple(lost.values()))
    name = component or (file.stem if file is not None else "recipe")
    place = family(file, merged, at, out) if file is not None and component else None
    return Recipe(
        file.resolve() if file is not None else None, name, merged, at, tuple(sources), overrides, lost, place
    )


def _without(table: Mapping[str, Any], paths: Iterable[Sequence[str | int]]) -> dict[str, Any]:
    """A table without the keys at these paths, however deep; elements of arrays keep their places."""
    kept: dict[str, Any] = deepcopy(dict(table))
    for path in paths:
        place: Any = kept
        for key in path[:-1]:
            inside = isinstance(place, dict) and key in place
            inside = inside or (isinstance(place, list) and isinstance(key, int) and key < len(place))
            place = place[key] if inside else None
        if path and isinstance(place, dict):
            place.pop(path[-1], None)
    return kept


@lru_cache(maxsize=1024)
def _declared(dotted: str, known: tuple[type[Config], ...]) -> frozenset[str]:
    """The keys that `known` classes declare directly below a table: fields, and
    first names of deeper tables."""
    keys: set[str] = set()
    for cls in known:
        other = table_of(cls)
        if other == dotted:
            keys |= set(hints(cls))
        elif other.startswith(dotted + "."):
            keys.add(other[len(dotted) + 1 :].split(".")[0])
    return frozenset(keys)


def _entries(classes: Iterable[type[Config]]) -> set[str]:
    """The names of registry entries whose option tables may stand in a table of these classes."""
    return {
        name for cls in classes for registry in registry_fields(cls).values() for name in registry.names()
    }


def _unknown_tables(recipe: Recipe, classes: tuple[type[Config], ...]) -> list[NpuflowError]:
    """Top-level names nobody declares, and stray keys in tables that exist only as
    parents of declared ones."""
    paths = {table_of(cls) for cls in classes}
    parents = {path.rsplit(".", n)[0] for path in paths for n in range(1, path.count(".") + 1)} - paths
    top = sorted({path.split(".")[0] for path in paths})
    found: list[NpuflowError] = []
    for name, value in recipe.tables.items():
        at = _stated(recipe.at.child(name), value)
        if name == SWEEP:
            found += sweep_faults(value, recipe.at.child(name))
        elif name not in top:
            kind = "table" if isinstance(value, Mapping) else "key"
            shown = f"[{name}]" if kind == "table" else f'"{name}"'
            because, near = f"known tables: {', '.join(top)}", meant(name, top)
            found.append(RecipeError(
                f"unknown {kind} {shown}", where=at.where(), because=because, hint=near, code="NF-RECIPE-025",
            ))
        elif not isinstance(value, Mapping) and name not in paths:
            found.append(RecipeError(
                f'"{name}" must be a table', where=at.where(), hint=f"[{name}]", code="NF-RECIPE-026",
            ))
    for parent in sorted(parents):
        allowed = sorted(_declared(parent, classes))
        at = recipe.at.child(*parent.split("."))
        for key in recipe.table(parent) or {}:
            if key not in allowed and at.child(key).origin().file not in recipe_library_files(recipe):
                because, near = f"allowed: {', '.join(allowed)}", meant(key, allowed)
                where = at.child(key).where()
                found.append(RecipeError(
                    f'unknown key "{key}"', where=where, because=because, hint=near, code="NF-RECIPE-008",
                ))
    return found


def _stated(at: Locator, value: Any) -> Locator:
    """The place of a table, or of the first key in it where no file writes its
    header (`--set table.key=...`)."""
    while at.path not in at.origins and isinstance(value, Mapping) and value:
        key, value = next(iter(value.items()))
        at = at.child(key)
    return at


def recipe_library_files(recipe: Recipe) -> set[str]:
    """The library files (targets) in play; they may hold tables that the stages at hand do not read."""
    return {source.shown for source in recipe.sources if source.is_library}


def _distinct(faults: Iterable[NpuflowError]) -> list[NpuflowError]:
    """Two classes over one table find the same fault twice."""
    return list({(f.where, f.message): f for f in faults}.values())


def _order(fault: NpuflowError) -> tuple[str, int, str]:
    return (fault.where.file or "", fault.where.line or 0, fault.where.key or "")
