"""Reading a recipe's files: `extends`, library tables such as `target = "NAME"`, and `--set` on top."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli

from npuflow.base.errors import InputError, NpuflowError, RecipeError, UsageError, Where, meant, suggestion
from npuflow.base.paths import kind_of, not_a_file
from npuflow.base.tables_files import resolve
from npuflow.base.tables_toml import KeyPath, Locator, Origin, parse, parse_json
from npuflow.flow import recipe_components as parts
from npuflow.flow.recipe_components import Component

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class RecipeSource:
    """A file whose text took part in a recipe."""

    path: Path
    shown: str
    is_library: bool = False


@dataclass(frozen=True)
class KeyOverride:
    """One `--set a.b=value`; its relative paths start from the working directory, as
    the shell completes them."""

    keys: tuple[str, ...]
    value: Any
    text: str
    place: Origin | None = None
    """Where a file writes it, if one does."""

    @property
    def origin(self) -> Origin:
        return self.place or Origin(f"--set {self.text}", None, Path.cwd())


def parse_set(text: str) -> KeyOverride:
    """`table.key=value`: the value in TOML, or a bare word taken as a string."""
    left, equals, right = text.partition("=")
    hint = "--set table.key=value, for example --set calibrate.method=kl"
    if not equals or not left.strip():
        raise UsageError(f'--set "{text}" has no "="', hint=hint, code="NF-USAGE-055")
    try:
        keys, _ = _single(tomli.loads(f"{left} = 0"))
    except (tomli.TOMLDecodeError, RecursionError):
        raise UsageError(
            f'--set "{text}": "{left.strip()}" is not a key', hint=hint, code="NF-USAGE-056",
        ) from None
    try:
        value = tomli.loads(f"value = {right.strip()}")
        found = value["value"] if list(value) == ["value"] else right
    except tomli.TOMLDecodeError:
        found = right.strip()
    return KeyOverride(keys, found, text)


def _single(table: Mapping[str, Any]) -> tuple[tuple[str, ...], Any]:
    """The dotted path of a document with one key."""
    keys: list[str] = []
    value: Any = table
    while isinstance(value, Mapping):
        (key,) = value
        keys.append(key)
        value = value[key]
    return tuple(keys), value


def library_folders() -> dict[str, Path]:
    """Tables whose content can be a named file: `target` comes from the package folder `targets/`."""
    found = {}
    for folder in sorted(PACKAGE.glob("*s")):
        if next(folder.glob("*.toml"), None) is not None:
            found[folder.name.removesuffix("s")] = folder
    return found


def load_sources(
    file: Path | None,
    tables: Mapping[str, Any],
    overrides: Sequence[KeyOverride],
    libraries: Mapping[str, Path] | None,
    part: tuple[str, Path | None] = ("", None),
) -> tuple[dict[str, Any], Locator, list[RecipeSource], dict[str, NpuflowError]]:
    """The merged tables of a recipe, where each key comes from, every file read, and
    library tables that name none. `part`: the component that is meant, and where outputs go."""
    reading = _Reading(library_folders() if libraries is None else libraries)
    merged, origins = reading.file(file, ()) if file is not None else (_copy(tables), {})
    if file is not None and (part[0] or parts.TABLE in merged):
        own = [o for o in overrides if o.keys[0] == parts.TABLE]
        overrides = [o for o in overrides if o not in own]
        merged, origins = reading.component(file, merged, origins, own, part)
    tops = [o for o in overrides if len(o.keys) == 1]
    for override in [*tops, *(o for o in overrides if len(o.keys) > 1)]:
        if len(override.keys) > 1:
            reading.expand(merged, origins)
        reading.apply(merged, origins, override)
    reading.expand(merged, origins)
    if reading.faults:
        raise RecipeError(reading.faults)
    default = Origin(None, None, Path.cwd())
    if file is not None:
        default = Origin(shown_path(file), None, file.resolve().parent)
    return merged, Locator(origins, (), default), reading.sources, reading.lost


def components_of(file: Path, overrides: Sequence[KeyOverride]) -> dict[str, Component]:
    """The components of a recipe, each behind those that it reads; none of any other recipe."""
    reading = _Reading({})
    merged, origins = reading.file(file, ())
    return reading.components(file, merged, origins, [o for o in overrides if o.keys[0] == parts.TABLE])


def shown_path(path: Path) -> str:
    """A path as messages show it: relative to the working directory when below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


Origins = dict[KeyPath, Origin]


class _Reading:
    """One recipe being read: the files so far and the faults so far."""

    def __init__(self, libraries: Mapping[str, Path]) -> None:
        self.libraries = libraries
        self.sources: list[RecipeSource] = []
        self.faults: list[NpuflowError] = []
        self.lost: dict[str, NpuflowError] = {}
        """Library table, or what its file extends -> why its content is not known;
        all else can still be checked."""

    def file(
        self, path: Path, chain: tuple[Path, ...], library: bool = False
    ) -> tuple[dict[str, Any], Origins]:
        """A file's tables merged over those of what it extends."""
        real = path.resolve()
        shown = shown_path(path)
        if real in chain:
            loop = " -> ".join(p.name for p in (*chain[chain.index(real) :], real))
            raise RecipeError(
                "a recipe extends itself", where=Where(file=shown), because=loop, code="NF-RECIPE-027",
            )
        read = parse_json if real.suffix == ".json" else parse
        table, at = read(_text(real, shown), shown, real.parent)
        self.sources.append(RecipeSource(real, shown, library))
        origins: Origins = dict(at.origins)
        parents = table.pop("extends", [])
        merged: dict[str, Any] = {}
        places: Origins = {}
        for name in (
            [parents] if isinstance(parents, str) else parents if isinstance(parents, list) else [parents]
        ):
            where = at.child("extends")
            if not isinstance(name, str):
                fault = RecipeError(
                    '"extends" must be a path',
                    where=where.where(), hint='extends = "base.toml"', code="NF-RECIPE-028",
                )
                self.faults.append(fault)
                continue
            found = self._parent(name, where, real, library)
            if found is not None:
                inherited, theirs = self.file(found, (*chain, real), library)
                merge(merged, places, inherited, theirs)
        merge(merged, places, table, origins)
        return merged, places

    def components(
        self, file: Path, merged: dict[str, Any], origins: Origins, overrides: Sequence[KeyOverride]
    ) -> dict[str, Component]:
        """The components that `[components]` names, with what `--set` says of them."""
        for override in overrides:
            self.apply(merged, origins, override)
        if parts.TABLE not in merged:
            return {}
        at = Locator(origins, (), Origin(shown_path(file), None, file.resolve().parent))
        return parts.components(merged[parts.TABLE], at.child(parts.TABLE))

    def component(
        self, file: Path, merged: dict[str, Any], origins: Origins, overrides: Sequence[KeyOverride],
        part: tuple[str, Path | None],
    ) -> tuple[dict[str, Any], Origins]:
        """The tables of one component: of the recipe that it names, over them those beside `[components]`,
        over them its own."""
        name, out = part
        shown = shown_path(file)
        at = Locator(origins, (), Origin(shown, None, file.resolve().parent))
        every = self.components(file, merged, origins, overrides)
        if not name:
            raise parts.needs_a_name(shown, every, at)
        one = parts.chosen(every, name, shown)
        tables, places = self._recipe_of(one)
        shared = {key: value for key, value in merged.items() if key != parts.TABLE}
        merge(tables, places, shared, {k: o for k, o in origins.items() if k[:1] != (parts.TABLE,)})
        own = parts.own_tables(one)
        mine = {k[2:]: o for k, o in origins.items() if k[:2] == (parts.TABLE, name) and k[2:]}
        merge(tables, places, own, {k: o for k, o in mine.items() if k[0] not in parts.OWN})
        added = parts.tables_of(every, one, tables, parts.family(file, merged, at, out))
        at_inputs, at_function = one.at.child("inputs").origin(), one.at.child(parts.HANDS_ON).origin()
        merge(tables, places, added, {
            (table, key): at_function if table == "component" else at_inputs
            for table, keys in added.items() for key in keys
        })
        return tables, places

    def _recipe_of(self, one: Component) -> tuple[dict[str, Any], Origins]:
        """The tables of the recipe that a component names; none where it names none."""
        stated, at = one.table.get("recipe"), one.at.child("recipe")
        if stated is None:
            return {}, {}
        if not isinstance(stated, str):
            self.faults.append(RecipeError(
                '"recipe" must be a path', where=at.where(), hint=parts.EXAMPLE, code="NF-RECIPE-180",
            ))
            return {}, {}
        path = self._path_of(self._existing(stated, at, [p.name for p in at.base.glob("*.toml")]), "")
        tables, places = self.file(path, ()) if path is not None else ({}, {})
        if parts.TABLE in tables and path is not None:
            self.faults.append(parts.needs_a_name(shown_path(path), tables.pop(parts.TABLE), at))
        return parts.placeless(tables), places

    def _parent(self, name: str, at: Locator, child: Path, library: bool) -> Path | None:
        near = [p for p in child.parent.glob("*.toml") if p != child]
        if library and not name.endswith(".toml"):      # a file beside, or one that comes with npuflow
            shipped = [p for folder in self.libraries.values() for p in sorted(folder.glob("*.toml"))]
            found = next((p for p in (*near, *shipped) if p.stem == name), None)
            if found is not None:
                return found
            known = sorted({p.stem for p in (*near, *shipped)})
            because = f"no {name}.toml lies beside it, and none comes with npuflow"
            hint, message = suggestion(name, known), f'there is no "{name}" to extend'
            self.lost[f"extends {name}"] = RecipeError(
                message, where=at.where(), because=because, hint=hint, code="NF-RECIPE-029",
            )
            return None
        beside = self._existing(name, at, [p.name for p in near])
        return self._path_of(beside, f"extends {name}" if library else "")

    def _existing(self, name: str, at: Locator, near: Sequence[str]) -> Path | RecipeError:
        try:
            path = resolve(name, at.base)
        except InputError as error:
            return RecipeError(
                error.message, where=at.where(), because=error.because, hint=error.hint, code=error.code
            )
        if path.is_file():
            return path
        message, because = not_a_file(path, name)
        hint = "name a file" if kind_of(path) else suggestion(path.name, near)
        return RecipeError(message, where=at.where(), because=because, hint=hint, code="NF-RECIPE-003")

    def _path_of(self, found: Path | RecipeError, lost: str) -> Path | None:
        """The file; else its fault is kept: `lost` names what is not known for it,
        without a name the recipe is not."""
        if isinstance(found, Path):
            return found
        if lost:
            self.lost[lost] = found
        else:
            self.faults.append(found)
        return None

    def expand(self, merged: dict[str, Any], origins: Origins) -> None:
        """Replace `target = "NAME"` and `[target] extends = "NAME"` by that library
        file, the recipe's keys over it."""
        for table, folder in self.libraries.items():
            value = merged.get(table)
            own = value if isinstance(value, dict) else {}
            name = value if isinstance(value, str) else own.pop("extends", None)
            if name is None:
                continue
            at = Locator(origins, (table,) if isinstance(value, str) else (table, "extends"))
            merged[table], theirs = self._library(name, at, folder, table)
            mine = {k[1:]: v for k, v in origins.items() if k[:1] == (table,) and len(k) > 1}
            merge(merged[table], theirs, own, mine)
            here = origins.get((table,))
            for path in [p for p in origins if p[:1] == (table,)]:
                del origins[path]
            origins.update({(table, *path): origin for path, origin in theirs.items()})
            if here is not None:
                origins[(table,)] = here

    def _library(self, name: Any, at: Locator, folder: Path, table: str) -> tuple[dict[str, Any], Origins]:
        names = sorted(p.stem for p in folder.glob("*.toml"))
        if not isinstance(name, str):
            self.lost[table] = RecipeError(
                f'"{table}" must be a name or a path',
                where=at.where(), hint=", ".join(names), code="NF-RECIPE-030",
            )
            return {}, {}
        if "/" in name or name.endswith(".toml") or name.startswith("pkg:"):
            path = self._path_of(self._existing(name, at, ()), table)
        elif (folder / f"{name}.toml").is_file():
            path = folder / f"{name}.toml"
        else:
            path, because = None, f"known: {', '.join(names)}; or give a path that ends in .toml"
            message, near = f'no {table} "{name}"', meant(name, names)
            self.lost[table] = RecipeError(
                message, where=at.where(), because=because, hint=near, code="NF-RECIPE-031",
            )
        return self.file(path, (), library=True) if path is not None else ({}, {})

    def apply(self, merged: dict[str, Any], origins: Origins, override: KeyOverride) -> None:
        """One `--set`: the value replaces what was there, tables included."""
        place = merged
        for depth, key in enumerate(override.keys[:-1]):
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                path = ".".join(override.keys[: depth + 1])
                message, because = f'--set {override.text}: "{path}" is not a table', f"it is {inner!r}"
                self.faults.append(UsageError(message, because=because, code="NF-USAGE-057"))
                return
            place = inner
        place[override.keys[-1]] = _copy(override.value)
        for old in [p for p in origins if p[: len(override.keys)] == override.keys]:
            del origins[old]
        origins[override.keys] = replace(override.origin, override=True)


PROGRAMS = (".npu",)
MODELS = (".onnx", ".tflite", ".pt", ".pt2", ".pb", ".h5", ".hdf5", ".keras", ".caffemodel")


def _no_text(path: Path, shown: str, byte: int) -> RecipeError:
    """A program or a model in place of a recipe, or a damaged recipe."""
    for kind, suffixes, hint in (
        ("program", PROGRAMS, "name the recipe that it was built from"),
        ("model", MODELS, f"npuflow new {shown} writes a recipe for it"),
    ):
        if path.suffix.lower() in suffixes:
            return RecipeError(f'"{shown}" is a {kind}, not a recipe', hint=hint, code="NF-RECIPE-081")
    because = f"byte {byte} is not UTF-8"
    return RecipeError(
        "the recipe is not text", where=Where(file=shown), because=because, code="NF-RECIPE-033",
    )


def _text(path: Path, shown: str) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        hint = suggestion(path.name, near) if near else "npuflow new MODEL.onnx writes one"
        raise RecipeError(
            f'no recipe "{shown}"', because=f"looked at {path}", hint=hint, code="NF-RECIPE-032",
        ) from None
    except IsADirectoryError:
        raise RecipeError(
            f'"{shown}" is a folder', hint="name a .toml file in it", code="NF-RECIPE-002",
        ) from None
    except UnicodeDecodeError as error:
        raise _no_text(path, shown, error.start) from None
    except OSError as error:
        raise RecipeError(
            f'"{shown}" cannot be read', because=error.strerror or str(error), code="NF-RECIPE-034",
        ) from None


def merge(
    into: dict[str, Any], places: Origins, other: Mapping[str, Any], theirs: Mapping[KeyPath, Origin]
) -> None:
    """Lay `other` over `into`: tables are merged key by key, everything else is replaced."""
    replaced: list[KeyPath] = []
    _merge(into, other, (), replaced)
    for old in replaced:
        for path in [p for p in places if p[: len(old)] == old]:
            del places[path]
    places.update(theirs)


def _merge(into: dict[str, Any], other: Mapping[str, Any], path: KeyPath, replaced: list[KeyPath]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value, (*path, key), replaced)
        else:
            if key in into:
                replaced.append((*path, key))
            into[key] = _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value


