"""Recipes as files: extends, overrides, library tables, unknown names, and places of faults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from npuflow.base.errors import NpuflowError, RecipeError, UsageError
from npuflow.base.tables import Config, FilePath
from npuflow.flow.recipe import Recipe, load, parse_set
from npuflow.flow.recipe_sweep import EXAMPLE


@dataclass(frozen=True)
class Model(Config):
    path: FilePath


@dataclass(frozen=True)
class Calibrate(Config):
    method: str = "mse"
    batches: int = 8


@dataclass(frozen=True)
class CalibrateMore(Config, table="calibrate"):
    extra: int = 0


@dataclass(frozen=True)
class Deep(Config, table="calibrate.deep"):
    x: int = 0


@dataclass(frozen=True)
class Numerics(Config, table="chip.numerics"):
    acc_bits: int = 32
    modes: tuple[str, ...] = ()


KNOWN = (Model, Calibrate, CalibrateMore, Deep, Numerics)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"net")
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def lines(faults: list[NpuflowError]) -> list[str]:
    return [f"{f.where.file}:{f.where.line} {f.where.key}: {f.message} -> {f.hint}" for f in faults]


def chips(folder: Path) -> dict[str, Path]:
    write(
        folder / "chips/small.toml",
        'name = "small"\n[numerics]\nacc_bits = 24\nmodes = ["a"]\n[other]\nx = 1\n',
    )
    write(folder / "chips/tiny.toml", 'extends = "small"\n[numerics]\nacc_bits = 16\n')
    return {"chip": folder / "chips"}


def get(recipe: Recipe, cls: type[Config]) -> Config:
    found, faults = recipe.read(cls, KNOWN)
    assert found is not None, lines(faults)
    return found


def test_a_recipe_knows_its_name_and_output(folder: Path) -> None:
    recipe = load(write(folder / "r/kws.toml", '[model]\npath = "../net.onnx"\n'))
    assert (recipe.name, recipe.out_dir) == ("kws", folder / "r/out/kws")
    assert recipe.faults(KNOWN) == []
    model = get(recipe, Model)
    assert isinstance(model, Model) and model.path.path == folder / "net.onnx"
    assert load(write(folder / "r/b.toml", '[build]\nout = "x"\n')).out_dir == folder / "r/x"


def test_tables_may_be_shared_by_classes(folder: Path) -> None:
    recipe = load(write(folder / "a.toml", "[calibrate]\nbatches = 2\nextra = 3\n[calibrate.deep]\nx = 4\n"))
    assert recipe.faults(KNOWN, required=()) == []
    assert get(recipe, Calibrate) == Calibrate(batches=2)
    assert [get(recipe, c) for c in (CalibrateMore, Deep)] == [CalibrateMore(3), Deep(4)]


def test_every_fault_of_every_table_at_once(folder: Path) -> None:
    text = (
        'calibrat = 1\n[modle]\n[model]\npath = "nt.onnx"\n[calibrate]\nmethd = 1\nbatches = "x"\n'
        '[chip]\nnumrics = {}\n[build]\njobs = 0\n[sweep]\n"a" = 3\n'
    )
    recipe = load(write(folder / "a.toml", text), libraries={})
    assert lines(recipe.faults(KNOWN)) == [
        'a.toml:1 calibrat: unknown key "calibrat" -> "calibrate"',
        'a.toml:2 modle: unknown table [modle] -> "model"',
        f'a.toml:4 model.path: no file "nt.onnx" -> "net.onnx" in {folder}',
        'a.toml:6 calibrate.methd: unknown key "methd" -> "method"',
        'a.toml:7 calibrate.batches: expected an integer, got "x" -> ',
        'a.toml:9 chip.numrics: unknown key "numrics" -> "numerics"',
        "a.toml:11 build.jobs: 0 is out of range -> at least 1",
        f'a.toml:13 sweep.a: expected a list of values -> {EXAMPLE}',
    ]


def test_names_that_are_allowed_are_listed_once(folder: Path) -> None:
    """In the reason; the remedy is the nearest one, where one is near."""
    text = "[zzzz]\n[calibrate]\nqqqq = 1\n[chip.numerics]\nacc_bit = 1\n"
    recipe = load(write(folder / "a.toml", text), libraries={})
    faults = {fault.where.key: fault for fault in recipe.faults(KNOWN, required=())}
    for key in ("zzzz", "calibrate.qqqq"):
        assert "calibrate" in faults[key].because or "method" in faults[key].because
        assert faults[key].hint == ""
    assert faults["chip.numerics.acc_bit"].hint == '"acc_bits"'


def test_an_unknown_table_that_an_option_sets_is_the_options(folder: Path) -> None:
    recipe = load(write(folder / "a.toml", "[calibrate]\nbatches = 2\n"), ["tilng.level=1"])
    (fault,) = recipe.faults(KNOWN, required=())
    assert (fault.where.file, fault.where.key) == ("--set tilng.level=1", "tilng.level")


def test_extends_merges_tables_and_keeps_places(folder: Path) -> None:
    write(
        folder / "base/base.toml",
        '[model]\npath = "../net.onnx"\n[calibrate]\nmethod = "kl"\nbatches = "many"\n',
    )
    recipe = load(write(folder / "a.toml", 'extends = "base/base.toml"\n[calibrate]\nmethod = "mse"\n'))
    assert lines(recipe.faults(KNOWN)) == [
        'base/base.toml:5 calibrate.batches: expected an integer, got "many" -> '
    ]
    assert recipe.tables["calibrate"]["method"] == "mse"
    model = get(recipe, Model)
    # relative to the base, which wrote it
    assert isinstance(model, Model) and model.path.path == folder / "net.onnx"
    assert [s.shown for s in recipe.sources] == ["a.toml", "base/base.toml"]


def test_extends_in_order_and_without_loops(folder: Path) -> None:
    write(folder / "one.toml", "[calibrate]\nbatches = 1\nextra = 1\n")
    write(folder / "two.toml", "[calibrate]\nbatches = 2\n")
    recipe = load(write(folder / "a.toml", 'extends = ["one.toml", "two.toml"]\n'))
    assert recipe.tables["calibrate"] == {"batches": 2, "extra": 1}
    write(folder / "x.toml", 'extends = "y.toml"')
    write(folder / "y.toml", 'extends = "x.toml"')
    with pytest.raises(RecipeError, match=r"extends itself.*x.toml -> y.toml -> x.toml"):
        load(folder / "x.toml")
    with pytest.raises(RecipeError, match=r'no file "tow.toml".*line=1.*two.toml'):
        load(write(folder / "b.toml", 'extends = "tow.toml"'))


def test_overrides_parse_toml_or_take_a_word() -> None:
    assert parse_set("a.b=3").value == 3
    assert parse_set("a.b = [1, 2]").value == [1, 2]
    assert parse_set('a."b.c"=kl').keys == ("a", "b.c")
    assert parse_set("a=images/*.jpg").value == "images/*.jpg"
    assert parse_set('a="3"').value == "3"
    assert parse_set("a={x=1}").value == {"x": 1}
    assert parse_set("a=").value == ""
    for bad in ("a", "=3", "a b=3", "[x]=3", "a\nb=3"):
        with pytest.raises(UsageError):
            parse_set(bad)


def test_overrides_replace_and_are_named_in_faults(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder / "r/a.toml", '[calibrate]\nmethod = "kl"\n')
    recipe = load(path, ["calibrate.batches=x", "model.path=net.onnx"])
    assert lines(recipe.faults(KNOWN)) == [
        '--set calibrate.batches=x:None calibrate.batches: expected an integer, got "x" -> '
    ]
    model = get(recipe, Model)
    assert isinstance(model, Model) and model.path.path == folder / "net.onnx"  # from the working directory
    with pytest.raises(RecipeError, match=r"calibrate.method.* is not a table"):
        load(path, ["calibrate.method.deep=1"])


def test_library_tables(folder: Path) -> None:
    libraries = chips(folder)
    recipe = load(write(folder / "a.toml", 'chip = "tiny"\n'), libraries=libraries)
    assert recipe.faults(KNOWN, required=()) == []
    assert get(recipe, Numerics) == Numerics(16, ("a",))
    text = '[chip]\nextends = "tiny"\n[chip.numerics]\nmodes = []\n'
    over = load(write(folder / "b.toml", text), libraries=libraries)
    assert get(over, Numerics) == Numerics(16, ())
    path = load(write(folder / "c.toml", 'chip = "chips/small.toml"\n'), libraries=libraries)
    assert get(path, Numerics) == Numerics(24, ("a",))
    assert path.sources[-1].is_library
    swept = load(folder / "a.toml", ["chip.numerics.acc_bits=20", "chip=small"], libraries=libraries)
    assert get(swept, Numerics) == Numerics(20, ("a",))


def test_library_faults_have_places(folder: Path) -> None:
    libraries = chips(folder)
    with pytest.raises(RecipeError, match=r'no chip "smal".*file=a.toml line=1 key=chip.*try "small"'):
        load(write(folder / "a.toml", 'chip = "smal"\n'), libraries=libraries)
    write(folder / "chips/bad.toml", "[numerics]\nacc_bits = 'x'\nmods = 1\n")
    recipe = load(write(folder / "a.toml", '[chip]\nextends = "bad"\nnumrics = {}\n'), libraries=libraries)
    assert lines(recipe.faults(KNOWN, required=())) == [
        'a.toml:3 chip.numrics: unknown key "numrics" -> "numerics"',
        'chips/bad.toml:2 chip.numerics.acc_bits: expected an integer, got "x" -> ',
        'chips/bad.toml:3 chip.numerics.mods: unknown key "mods" -> "modes"',
    ]


def test_files_that_are_no_recipes(folder: Path) -> None:
    write(folder / "kws.toml", "")
    with pytest.raises(RecipeError, match=r'no recipe "kw.toml".*try "kws.toml"'):
        load("kw.toml")
    with pytest.raises(RecipeError, match="is a folder"):
        load(folder)
    (folder / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="not text"):
        load("bin.toml")
    with pytest.raises(RecipeError, match=r"not valid TOML.*line=2"):
        load(write(folder / "t.toml", "[a]\nb = \n"))
    if os.geteuid() != 0:
        (folder / "kws.toml").chmod(0)
        with pytest.raises(RecipeError, match="cannot be read"):
            load("kws.toml")


def test_line_ends_of_other_systems(folder: Path) -> None:
    (folder / "w.toml").write_bytes(b"[calibrate]\r\nbatches = 'x'\r\n")
    (line,) = lines(load("w.toml").faults(KNOWN, required=()))
    assert line.startswith("w.toml:2 calibrate.batches")


def test_a_library_that_is_not_there_hides_no_other_fault(folder: Path) -> None:
    """What the library would have said is not asked for; everything else is reported at once."""
    chips = {"chip": folder / "chips"}
    write(folder / "chips/one.toml", "[numerics]\nacc_bits = 24\n")
    path = write(
        folder / "r.toml",
        'chip = "two"\n[model]\npath = "gone.onnx"\n[calibrate]\nbatches = "x"\n[calibrat]\n',
    )
    with pytest.raises(RecipeError, match='no chip "two"'):
        load(path, libraries=chips)
    found = lines(load(path, libraries=chips, lenient=True).faults(KNOWN))
    assert [line.partition(": ")[0] for line in found] == [
        "r.toml:1 chip", "r.toml:3 model.path", "r.toml:5 calibrate.batches", "r.toml:6 calibrat",
    ]
    assert not any("numerics" in line for line in found)
