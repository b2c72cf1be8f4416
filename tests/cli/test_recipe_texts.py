"""Recipes that npuflow writes (`new`, `show recipe`) parse, load, and are the same recipe."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest

from npuflow.base.tables import (
    Config,
    Location,
    Words,
    canonical,
    hints,
    options_class,
    read,
    registry_fields,
    table_of,
)
from npuflow.base.tables_schema import default_of, type_schema
from npuflow.base.tables_types import FilePath
from npuflow.base.tables_write import document
from npuflow.cli import _new, _show_recipe
from npuflow.cli._engine import known_tables
from npuflow.flow.recipe import SETTINGS, Recipe, load
from npuflow.flow.stage import STAGES, steps_of

HERE = Path(__file__).resolve().parent.parent.parent
RECIPES = [p for p in sorted((HERE / "recipes").glob("*.toml")) if "\n[components." not in p.read_text()]
FASHION = HERE / "examples/fashion/fashion.onnx"
MODELS = sorted(p for p in (HERE / "examples").rglob("*.onnx"))
# what recipes of the repository take from packages that need not be installed
STAND_IN = [f'model.path="{FASHION}"', "data.source=random", "data.count=4"]


def everything(recipe: Recipe) -> dict[str, Any]:
    """Every table that the recipe states or that has no required key, in the form that enters keys, with its
    locations.
    """
    found: dict[str, Any] = {}
    known = [*known_tables(STAGES), *SETTINGS]
    for cls in known:
        read_as, _ = recipe.read(cls, known)
        if read_as is not None:
            found[f"{table_of(cls)} as {cls.__name__}"] = (
                canonical(read_as),
                [str(p) for p in places(read_as)],
            )
    return found


def places(value: Any) -> Iterator[Path | str]:
    if isinstance(value, Location):
        yield value.text if value.text == "random" else value.path
    elif isinstance(value, Config):
        for name in hints(type(value)):
            yield from places(getattr(value, name))


def clean(recipe: Recipe) -> None:
    faults = recipe.faults(known_tables(STAGES), ())
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_show_recipe_is_the_recipe(path: Path, tmp_path: Path) -> None:
    sets = list(STAND_IN)
    if load(path).has("evaluate"):
        sets.append("evaluate.source=random")
    text = _show_recipe.text(path, sets)
    copy = path.with_name(f"{path.stem}.toml")  # relative paths are those of the recipe's folder
    shown = tmp_path / copy.name
    shown.write_text(text)
    before, after = load(path, sets), load(shown)
    clean(after)
    assert set(tomllib.loads(text)) >= {name for name in before.tables if name != "sweep"}
    moved = {
        name: (table, [p.replace(str(path.parent), str(tmp_path)) for p in at])
        for name, (table, at) in everything(before).items()
    }
    found = everything(after)
    for name, (table, at) in moved.items():
        assert found[name][0] == table, name
        assert [Path(p).name for p in found[name][1]] == [Path(p).name for p in at], name


def uncommented(text: str) -> str:
    """The template with every key and table in effect."""
    return re.sub(r"(?m)^# (?=\[+[a-z_.]+\]+$|[A-Za-z_]+ = )", "", text)


@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
def test_new_writes_a_recipe_of_defaults(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)                        # paths of tables without a file are relative to it
    text = _new.text(str(model), tmp_path, STAGES)
    (tmp_path / "new.toml").write_text(text)
    new = load(tmp_path / "new.toml")
    clean(new)
    bare = load(None, tables={key: new.tables[key] for key in ("target", "model", "data")})
    assert everything(new) == everything(bare)
    switches = {stage.when for stage in steps_of(STAGES).values()}
    assert not switches & set(new.tables), "these tables turn steps on that a build by default leaves out"


def test_every_key_of_the_template_can_be_uncommented(tmp_path: Path) -> None:
    text = _new.text(str(FASHION), tmp_path, STAGES)
    found = tomllib.loads(uncommented(text))
    for cls in known_tables(STAGES):
        header = table_of(cls)
        if header.split(".")[0] == "target":
            continue
        table: Any = found
        for part in header.split("."):
            table = table[part]
        missing = [f.name for f in fields(cls) if f.name not in table]  # type: ignore[arg-type]
        assert not missing, f"[{header}] lacks {missing}"


# --- every table that a stage declares, and every option of every registry entry, generically


def filled(cls: type[Config], tmp_path: Path) -> Config | None:
    """An instance with every required key given; None where a value cannot be made up."""
    given: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        kind = hints(cls)[field.name]
        default = default_of(field)
        if default is not None and not _missing(default):
            continue
        sample = _sample(kind, tmp_path)
        if sample is not None:
            given[field.name] = sample
    made, faults = read(cls, given)
    if faults:  # optional keys that exclude each other: the required ones alone
        needed = {f.name for f in fields(cls) if _missing(default_of(f))}  # type: ignore[arg-type]
        made, faults = read(cls, {k: v for k, v in given.items() if k in needed})
    assert not faults or not given, faults
    return made


def _missing(default: Any) -> bool:
    from dataclasses import MISSING

    return default is MISSING


def _sample(kind: Any, tmp_path: Path) -> Any:
    if FilePath in (kind, *getattr(kind, "__args__", ())):
        file = tmp_path / "a file"
        file.write_text("x")
        return str(file)
    schema = type_schema(kind)
    schema = schema["anyOf"][0] if "anyOf" in schema else schema
    if schema.get("enum"):
        return schema["enum"][-1]
    low = schema.get("minimum", 1)
    kinds = {
        "string": 'a "name" of\nit',
        "integer": max(1, int(low)),
        "number": max(1e-7, low),
        "boolean": True,
        "array": ["a name"] if schema.get("items", {}).get("type") == "string" else None,
    }
    return kinds.get(schema.get("type", ""))


CLASSES = sorted(known_tables(STAGES), key=lambda cls: (table_of(cls), cls.__name__))


@pytest.mark.parametrize("cls", [*CLASSES, *SETTINGS], ids=lambda cls: f"{table_of(cls)}-{cls.__name__}")
def test_every_table_is_written_as_it_is_read(cls: type[Config], tmp_path: Path) -> None:
    variants = [filled(cls, tmp_path)]
    for name, registry in registry_fields(cls).items():
        for entry in registry.names():
            if (
                hints(cls)[name] is not None
                and variants[0] is not None
                and isinstance(getattr(variants[0], name), str)
            ):
                raw = tomllib.loads("\n".join(document([(variants[0], "t")])))["t"]
                options = options_class(registry, entry)
                made, faults = read(
                    cls,
                    {k: v for k, v in raw.items() if not isinstance(v, dict) or k in hints(cls)}
                    | {name: entry},
                )
                assert not faults or options is not None
                variants.append(made)
    for made in filter(None, variants):
        text = "\n".join(document([(made, table_of(cls))], None))
        table: Any = tomllib.loads(text)
        for part in table_of(cls).split("."):
            table = table[part]
        again, faults = read(cls, table)
        assert not faults and again is not None, text
        assert canonical(again) == canonical(made)


def test_all_tables_together_are_one_document(tmp_path: Path) -> None:
    made = [(one, table_of(cls)) for cls in CLASSES if (one := filled(cls, tmp_path)) is not None]
    found = tomllib.loads("\n".join(document(made)))
    for _, header in made:
        table: Any = found
        for part in header.split("."):
            table = table[part]
        assert isinstance(table, dict)


@dataclass(frozen=True)
class Inner(Config):
    bits: int = 8


@dataclass(frozen=True)
class Outer(Config, table="both"):
    inner: Inner = Inner()
    name: str = "a"


@dataclass(frozen=True)
class Other(Config, table="both"):
    name: str = "a"
    more: float = 1e22
    where: Annotated[Location, Words("random")] | None = None


@dataclass(frozen=True)
class Within(Config, table="both.inner"):
    bits: int = 8
    seed: int = 3


def test_classes_that_share_a_table_write_it_once() -> None:
    text = "\n".join(document([(Outer(), "both"), (Other(), "both"), (Within(), "both.inner")]))
    assert tomllib.loads(text) == {"both": {"name": "a", "more": 1e22, "inner": {"bits": 8, "seed": 3}}}
    assert text.count("name = ") == 1 and text.count("[both]") == 1


def test_a_word_that_is_no_path_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/base.toml").write_text('[data]\nsource = "random"\n')
    (tmp_path / "net.toml").write_text(
        f'extends = "sub/base.toml"\ntarget = "edge-4t"\n[model]\npath = "{FASHION}"\n'
    )
    assert 'source = "random"' in _show_recipe.text(tmp_path / "net.toml")
