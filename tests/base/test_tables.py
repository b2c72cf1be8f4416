"""Recipe tables: what they accept, what they say when they do not, and the form that enters keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from npuflow.base import tables, tables_types
from npuflow.base.registry import Registry
from npuflow.base.tables import (
    Config,
    Doc,
    Fault,
    FilePath,
    Location,
    Range,
    canonical,
    parse,
    read,
    schema,
    table_of,
)


class Entries(Registry):
    """A registry of these entries; it notes what was really loaded."""

    def __init__(self, **entries: Any) -> None:
        self.entries, self.loaded = entries, set[str]()

    def names(self) -> list[str]:
        return list(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> Any:
        self.loaded.add(name)
        return self.entries[name]


@dataclass(frozen=True)
class PercentileOptions(Config):
    percent: Annotated[float, Range(50, 100)] = 99.99


@dataclass(frozen=True)
class NeedyOptions(Config):
    limit: int


class Percentile:
    Options = PercentileOptions


class Needy:
    Options = NeedyOptions


METHODS = Entries(mse=object, percentile=Percentile, kl=object, needy=Needy)


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Bits(Config):
    bits: Annotated[int, Range(2, 16)] = 8  # width of the integers
    per: Literal["tensor", "channel"] = "tensor"


@dataclass(frozen=True)
class Scale(Config):
    factor: float


@dataclass(frozen=True, slots=True)
class Everything(Config, table="outer.everything"):
    """One of each."""

    name: str = "n"
    """What it is called."""
    flag: bool = False
    number: float = 0.5
    side: Side = Side.LEFT
    method: Annotated[str, METHODS] = "mse"
    weights: Bits = field(default_factory=Bits)
    steps: tuple[Bits | Scale, ...] = ()
    pair: tuple[int, int] = (1, 2)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    limit: int | None = None
    wide: Annotated[int | Literal["auto"], Doc("a number or auto")] = "auto"
    file: FilePath | None = None
    source: Location | None = None

    def check(self) -> Iterable[Fault]:
        if self.pair[0] > self.pair[1]:
            yield Fault(
                "pair", "the first is larger", because=f"{self.pair[0]} > {self.pair[1]}", hint="swap them"
            )


def faults_of(text: str, cls: type[Config] = Everything, base: Path | None = None) -> list[str]:
    table, at = parse(text, "r.toml", base or Path())
    made, faults = read(cls, table, at)
    assert (made is None) == bool(faults)
    return [f"{f.where.line}:{f.where.key}: {f.message} | {f.because} | {f.hint}" for f in faults]


def good(text: str, base: Path | None = None) -> Everything:
    table, at = parse(text, "r.toml", base or Path())
    made, faults = read(Everything, table, at)
    assert made is not None, faults
    return made


def test_table_names_come_from_classes() -> None:
    assert table_of(PercentileOptions) == "percentile_options"
    assert table_of(Everything) == "outer.everything"  # although `slots` makes the class a second time


def test_all_defaults() -> None:
    assert good("") == Everything()


def test_coercions_keep_one_meaning_one_form() -> None:
    one = good("number = 1\nlimit = 3.0\npair = [1.0, 2]")
    two = good("number = 1.0\nlimit = 3\npair = [1, 2.0]")
    assert json.dumps(canonical(one)) == json.dumps(canonical(two))
    assert type(one.number) is float
    assert type(one.limit) is int


def test_every_fault_at_once_with_line_key_and_remedy() -> None:
    found = faults_of(
        """
name = 3
flag = "yes"
number = true
side = "up"
method = "percentil"
pair = [1]
wide = "aut"
limitt = 4
[weights]
bits = 17
per = "chanel"
[sizes]
image = ["a", 2]
[[steps]]
bits = 4
[[steps]]
bit = 4
"""
    )
    text = "\n".join(found)
    assert '2:name: expected a string, got 3 |  | "3", in quotes' in text
    assert '3:flag: expected true or false, got "yes"' in text
    assert "4:number: expected a number, got true" in text
    assert '5:side: "up" is not allowed | allowed: left, right' in text
    assert '6:method: "percentil" is not allowed | allowed: kl, mse, needy, percentile | "percentile"' in text
    assert "7:pair: expected 2 values, got 1" in text
    assert '8:wide: "aut" is not allowed | allowed: auto | "auto"' in text
    assert '9:limitt: unknown key "limitt"' in text and '| "limit"' in text
    assert "11:weights.bits: 17 is out of range |  | 2 to 16" in text
    assert '12:weights.per: "chanel" is not allowed | allowed: tensor, channel | "channel"' in text
    assert '14:sizes.image[0]: expected an integer, got "a"' in text
    assert '18:steps[1].bit: unknown key "bit"' in text  # of two possible tables, the nearer one speaks
    assert len(found) == 12


def test_required_keys_are_named() -> None:
    assert faults_of("", Scale) == ['None:factor: "factor" is missing |  | a number']


def test_a_check_of_the_table_has_a_place() -> None:
    assert faults_of("pair = [3, 1]") == ["1:pair: the first is larger | 3 > 1 | swap them"]


def test_selected_options_reach_the_stage_and_the_key() -> None:
    made = good('method = "percentile"\npercentile = { percent = 99 }')
    assert made.options == PercentileOptions(99.0)
    assert canonical(made)["options"] == {"method": {"percent": 99.0}}
    assert good('method = "percentile"').options == PercentileOptions()
    assert Everything(method="percentile").options == PercentileOptions()
    assert Everything().options is None


def test_unselected_options_are_a_fault_unless_another_place_selects() -> None:
    text = "percentile = { percent = 99 }"
    assert 'the options of "percentile" have no effect' in faults_of(text)[0]
    table, at = parse(f'method = "mse"\n{text}', "r.toml", Path())
    place = replace(at.origins["method",], override=True)
    made, wrong = read(Everything, table, replace(at, origins={**at.origins, ("method",): place}))
    assert made is not None and not wrong
    assert canonical(made) == canonical(good('method = "mse"'))
    assert faults_of("percentile = { percnt = 99 }") != []
    assert "has no options" in faults_of("kl = { x = 1 }")[0]
    assert 'needy.limit: "limit" is missing' in faults_of("needy = {}")[0]


@dataclass(frozen=True)
class Several(Config):
    tried: tuple[Annotated[str, METHODS], ...] = ("mse", "percentile")
    by_kind: dict[str, Annotated[str, METHODS]] = field(default_factory=dict)


def test_a_list_of_names_has_no_options() -> None:
    assert 'unknown key "percentile"' in faults_of("percentile = { percent = 99.0 }", Several)[0]
    assert set(schema(Several)["properties"]) == {"tried", "by_kind"}
    assert [name for _, name in tables.selections(Several(by_kind={"a": "kl"}))] == [
        "mse",
        "percentile",
        "kl",
    ]


def test_names_are_known_without_loading_entries() -> None:
    METHODS.loaded.clear()
    good('method = "kl"')
    assert METHODS.loaded == set()


def test_two_tables_in_one_place_have_two_keys() -> None:
    """A union tells its tables apart in the key even if their contents agree."""

    @dataclass(frozen=True)
    class A(Config):
        x: int = 1

    @dataclass(frozen=True)
    class B(Config):
        x: int = 1

    @dataclass(frozen=True)
    class Both(Config):
        one: A | B = field(default_factory=A)

    tables_types._HINTS[Both] = {"one": A | B}
    assert canonical(Both(A())) != canonical(Both(B()))


def test_files_are_relative_to_their_recipe_and_known_by_content(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    (tmp_path / "b.bin").write_bytes(b"abc")
    first, second = good('file = "a.bin"', tmp_path), good('file = "./b.bin"', tmp_path)
    assert first.file is not None
    assert first.file.path == tmp_path / "a.bin"
    assert Path(first.file).read_bytes() == b"abc"
    assert canonical(first) == canonical(second)
    (tmp_path / "b.bin").write_bytes(b"abd")
    assert canonical(first) != canonical(good('file = "b.bin"', tmp_path))
    assert list(tables.files(first)) == [first.file]


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (line,) = faults_of('file = "modle.onnx"', base=tmp_path)
    assert line.startswith('1:file: no file "modle.onnx" | looked at') and '"model.onnx"' in line
    assert "is a folder" in faults_of('file = "."', base=tmp_path)[0]


def test_package_files_need_no_import() -> None:
    import sys

    made = good('file = "pkg:email/mime/text.py"')
    assert made.file is not None and made.file.path.is_file()
    assert "not installed" in faults_of('file = "pkg:no_such_package_here/x.onnx"')[0]
    assert "not a package file" in faults_of('file = "pkg:email"')[0]
    assert good('file = "pkg:some-mail==1.0:email/mime/text.py"').file.path == made.file.path
    absent = faults_of('file = "pkg:some-net==2.1:no_such_package_here/x.onnx"')[0]
    assert "pip install some-net==2.1" in absent
    assert "single module" in faults_of('file = "pkg:this/x"')[0]
    assert "this" not in sys.modules


def test_locations_take_no_part_in_keys(tmp_path: Path) -> None:
    made = good('source = "images/*.jpg"', tmp_path)
    assert made.source is not None
    assert made.source.path == tmp_path / "images/*.jpg"
    assert canonical(made) == canonical(good(""))


def test_schema_says_what_read_enforces() -> None:
    found = schema(Everything)
    json.dumps(found)
    assert found["additionalProperties"] is False
    properties = found["properties"]
    assert properties["name"]["description"] == "What it is called."
    assert properties["method"]["enum"] == ["kl", "mse", "needy", "percentile"]
    assert properties["percentile"]["properties"]["percent"]["maximum"] == 100
    assert properties["weights"]["properties"]["bits"] == {
        "type": "integer", "minimum": 2, "maximum": 16, "default": 8, "description": "width of the integers",
    }
    assert properties["side"] == {"enum": ["left", "right"], "default": "left"}
    assert properties["wide"]["description"] == "a number or auto"
    assert schema(Scale)["required"] == ["factor"]


CHOOSERS = Entries(mse=object)


@dataclass(frozen=True)
class Chooser(Config):
    """Options of an entry that names entries of its own registry."""

    of: Annotated[str, CHOOSERS] = "mse"


class Choosing:
    Options = Chooser


@dataclass(frozen=True)
class Chosen(Config):
    method: Annotated[str, CHOOSERS] = "chooser"


CHOOSERS.entries["chooser"] = Choosing


def test_an_entry_whose_options_name_its_own_registry_has_a_schema_that_ends() -> None:
    found = schema(Chosen)["properties"]["chooser"]
    assert found["properties"]["of"]["enum"] == ["chooser", "mse"]
    assert found["properties"]["chooser"] == {"type": "object"}
