"""`npuflow zoo`: a row for every recipe of a folder on every target, errors among them, and nothing twice."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from commandline import Ran, fresh
from onnx import parser

from npuflow.base.errors import Interrupted
from npuflow.cli import _zoo, main
from npuflow.cli._zoo_page import ZooRow, page

NETS = {
    "line": "d = Gemm(f, w, b) y = Relu(d)",
    "wave": "d = Gemm(f, w, b) y = Tanh(d)",
}
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,3] y) {{
    c = Conv<pads=[1,1,1,1]>(x, k) f = Flatten(c) {0} }}"""
BASE = """target = "edge-4t"
[precision]
strategy = "none"
[correct]
bias = "off"
[verdict]
advice = false
[program]
graph = false
[tiling]
level = 1
[simulate]
samples = 1
[data]
source = "python:zoo_made.py:samples"
count = 16
[evaluate]
source = "python:zoo_made.py:samples"
count = 12
metric = "top1"
[sweep]
target = ["edge-4t", "bm1684x"]
"""
SAMPLES = """import numpy as np
def samples():
    rng = np.random.default_rng(0)
    for i in range(24):
        yield f"{i}", rng.normal(size=(1, 2, 4, 4)).astype(np.float32), i % 3
def odd():
    for name, sample, _ in samples():
        yield name, sample / (name != "3")
"""
ODD = 'source = "python:zoo_made.py:odd"\n'
ABSENT = 'extends = "_base.toml"\n[model]\npath = "pkg:no-such-thing==1.2:no_such_thing/net.onnx"\n'
Zoo = Callable[..., Ran]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks, one of broken samples, and one of a package that is not there; built once."""
    folder, rng = tmp_path_factory.mktemp("zoo") / "nets", np.random.default_rng(1)
    folder.mkdir()
    (folder / "_base.toml").write_text(BASE)
    (folder / "zoo_made.py").write_text(SAMPLES)
    for name, text in NETS.items():
        proto = parser.parse_model(TEXT.format(text))
        for key, shape in (("k", (4, 2, 3, 3)), ("w", (64, 3)), ("b", (3,))):
            held = rng.normal(size=shape).astype(np.float32) / 4
            proto.graph.initializer.append(onnx.numpy_helper.from_array(held, key))
        onnx.save_model(proto, str(folder / f"{name}.onnx"))
        (folder / f"{name}.toml").write_text(f'extends = "_base.toml"\n[model]\npath = "{name}.onnx"\n')
    (folder / "odd.toml").write_text('extends = "line.toml"\n[data]\nnonfinite = "error"\n' + ODD)
    (folder / "absent.toml").write_text(ABSENT)
    return folder


@pytest.fixture(scope="module")
def first(place: Path) -> Ran:
    """The first run, in a process of its own: what other tests have loaded into this one is no part of it."""
    out, cache = place.parent / "first", place.parent / "cache"
    return fresh("zoo", str(place), "--cache", str(cache), "--out", str(out))


@pytest.fixture
def zoo(place: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Zoo]:
    def call(*words: str, of: Path = place) -> Ran:
        capfd.readouterr()
        code = main(["zoo", str(of), "--cache", str(place.parent / "cache"), *words])
        out, err = capfd.readouterr()
        assert "Traceback" not in err, err
        return Ran(code, out, err)

    yield call


def table(page: str) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of the page by network and target."""
    head, _, *rows = [line for line in page.splitlines() if line.startswith("| ")]
    names, *cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in (head, *rows)]
    return {(row[0], row[1]): dict(zip(names, row, strict=True)) for row in cells}


def test_rows_are_built_failed_or_not_installed(zoo: Zoo, tmp_path: Path) -> None:
    words = ("--targets", "edge-4t", "--only", "absent,line,odd", "--cache", str(tmp_path / "cache"))
    done = zoo("--out", str(tmp_path), *words)
    assert done.code == 1 and "3 rows: 1 not installed, 1 built, 1 failed (1 built now" in done.out
    said = (tmp_path / "zoo.md").read_text()
    rows = table(said)
    assert list(rows) == [(network, "edge-4t") for network in ("absent", "line", "odd")]
    assert rows["line", "edge-4t"]["score"] == "top1" and float(rows["line", "edge-4t"]["SQNR, dB"]) > 20
    assert re.search(r"^\d+\. NF-DATA-\d+ .*not finite", said, re.M)
    assert "pip install no-such-thing==1.2" in said


@pytest.mark.slow
def test_every_network_on_every_target_is_a_row(first: Ran, place: Path) -> None:
    assert first.code == 1 and "8 rows: 2 not installed, 4 built, 2 failed (4 built now" in first.out
    out = place.parent / "first"
    page = (out / "zoo.md").read_text()
    rows = table(page)
    assert list(rows) == [(n, t) for n in ("absent", "line", "odd", "wave") for t in ("edge-4t", "bm1684x")]
    built = rows["line", "bm1684x"]
    assert built["score"] == "top1" and 0 <= float(built["program"]) <= 1 >= float(built["float"])
    assert float(built["SQNR, dB"]) > 20 and float(built["energy, uJ"]) > 0 and float(built["gap"]) >= 1
    assert "4 networks, 2 targets: 4 of 8 rows built." in page and "2 failed." in page
    number = rows["odd", "edge-4t"]["warnings"].removeprefix("**failed** ").partition(",")[0]
    assert re.search(rf"^{number}\. NF-DATA-\d+ .*not finite", page, re.M)
    assert {rows["absent", t]["warnings"] for t in ("edge-4t", "bm1684x")} == {"**not installed** 1"}
    assert "pip install no-such-thing==1.2" in page
    drawn = ElementTree.parse(out / "zoo.svg")
    assert "wave on edge-4t" in ElementTree.tostring(drawn.getroot(), "unicode")


@pytest.mark.slow
def test_a_second_run_needs_nothing_of_the_cache_and_writes_the_same_page(
    first: Ran, place: Path, tmp_path: Path
) -> None:
    cache = place.parent / "cache"
    (cache / "records").rename(cache / "put-aside")
    try:
        again = fresh("zoo", str(place), "--cache", str(cache), "--out", str(tmp_path), "--json")
    finally:
        shutil.rmtree(cache / "records", ignore_errors=True)
        (cache / "put-aside").rename(cache / "records")
    *rows, last = again.lines
    assert (last["rows"], last["ran"], last["failed"], last["absent"]) == (8, 0, 2, 2)
    expected = ("not installed", "built", "failed", "built")
    assert [row["status"] for row in rows] == [status for status in expected for _ in range(2)]
    assert rows[2]["figures"]["simulate.different"] == 0 and rows[2]["score_name"] == "top1"
    assert (tmp_path / "zoo.md").read_text() == (place.parent / "first" / "zoo.md").read_text()


@pytest.mark.slow
def test_targets_and_networks_are_chosen_by_name(zoo: Zoo, first: Ran, place: Path, tmp_path: Path) -> None:
    done = zoo("--out", str(tmp_path), "--targets", "bm1684x", "--only", "li*,wave")
    assert done.code == 0 and list(table((tmp_path / "zoo.md").read_text())) == [
        ("line", "bm1684x"), ("wave", "bm1684x"),
    ]
    alone = zoo("--out", str(tmp_path), "--targets", "bm1684x", "--json", of=place / "wave.toml")
    assert [line.get("network") for line in alone.lines] == ["wave", None]


@pytest.mark.slow
def test_a_change_builds_its_network_again_and_no_other(
    zoo: Zoo, first: Ran, place: Path, tmp_path: Path
) -> None:
    words = ("--out", str(tmp_path), "--only", "line,wave", "--targets", "edge-4t", "--json")
    assert zoo(*words).code == 0
    recipe = place / "wave.toml"
    text = recipe.read_text()
    try:
        recipe.write_text(text + '[calibrate]\nmethod = "minmax"\n')
        assert zoo(*words).lines[-1]["ran"] == 1
    finally:
        recipe.write_text(text)


@pytest.mark.slow
def test_an_interrupt_keeps_the_rows_that_are_done(
    zoo: Zoo, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _zoo.build

    def stops(one: _zoo.ZooBuild, settings: Any) -> bool:
        if one.row.network == "odd":
            raise Interrupted("interrupted", hint="again")
        return real(one, settings)

    monkeypatch.setattr(_zoo, "build", stops)
    assert zoo("--out", str(tmp_path)).code == 130
    rows = table((tmp_path / "zoo.md").read_text())
    assert {rows["line", name]["score"] for name in ("edge-4t", "bm1684x")} == {"top1"} and len(rows) == 8
    assert {rows[name, "edge-4t"]["warnings"] for name in ("odd", "wave")} == {"**not reached**"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "lime"], 'there is no recipe "lime"'),
        (["--targets", "edge-4"], 'there is no target "edge-4"'),
        (["--targets", "edge-4t,edge-4t"], "names one twice"),
        (["--set", "data"], "--set"),
    ],
)
def test_what_options_name_is_told_before_anything_is_built(zoo: Zoo, words: list[str], said: str) -> None:
    done = zoo(*words, "--json")
    assert done.code == 2 and said in done.err
    assert [json.loads(line)["event"] for line in done.out.splitlines()] == ["error"]


def test_a_folder_without_recipes_is_an_error(zoo: Zoo, tmp_path: Path) -> None:
    done = zoo(of=tmp_path)
    assert done.code == 2 and "no recipes in" in done.err and "NF-USAGE-420" in done.err


def row(network: str, score: float, *notes: str) -> ZooRow:
    return ZooRow(network, "edge-4t", "built", {"evaluate": {"top1": score, "float": 0.9}}, notes=list(notes))


def test_the_page_counts_scores_that_fell_and_warnings_of_those_that_did_not() -> None:
    rows = [row("a", 0.9), row("b", 0.895, "far"), row("c", 0.8, "worse"), row("d", 0.8)]
    assert (
        "Of 4 scores that are shares, 2 are at most one point below the float network's, 1 of them with a "
        "warning all the same; 2 are lower, 1 of them with a warning, without one d on edge-4t."
    ) in page(rows, picture=False)
