"""The drawing of the task graph: rows, arrows, states."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from commandline import Npuflow

from npuflow.cli._graph import layers, ordered, routed

NEEDS = {"a": set[str](), "b": {"a"}, "c": {"b"}, "d": {"a", "c"}, "e": {"c"}}
SVG = "{http://www.w3.org/2000/svg}"


def states(path: Path) -> dict[str, str]:
    """Stage -> what its box says."""
    texts = [one.text or "" for one in ET.parse(path).getroot().iter(f"{SVG}text")]
    return {
        name: texts[index + 1]
        for index, name in enumerate(texts)
        if name in ("words", "tally", "total", "page")
    }


def test_a_stage_stands_below_what_it_needs() -> None:
    assert layers(NEEDS) == [["a"], ["b"], ["c"], ["d", "e"]]


def test_an_arrow_has_a_place_in_every_row_that_it_passes() -> None:
    rows = layers(NEEDS)
    found = routed(rows, NEEDS)
    routes = {(route[0], route[-1]): route for route in found}
    assert set(routes) == {(source, name) for name, mine in NEEDS.items() for source in mine}
    assert [len(route) for route in (routes["a", "d"], routes["c", "e"])] == [4, 2]
    assert [len(row) for row in rows] == [1, 2, 2, 2]
    assert sorted(map(sorted, ordered(rows, found))) == sorted(map(sorted, rows))


def test_plan_draws_what_it_would_do(npuflow: Npuflow, project: Path) -> None:
    assert npuflow("plan", "words.toml", "--graph", "out/g.svg").code == 0
    before = states(project / "out/g.svg")
    assert set(before) == {"words", "tally", "total", "page"} and before["words"] == "2 to run"
    npuflow("build", "words.toml")
    npuflow("plan", "words.toml", "--graph", "g.svg")
    assert states(project / "g.svg") == {
        "words": "2 in the cache", "tally": "2 in the cache", "total": "in the cache", "page": "in the cache",
    }
    arrows = list(ET.parse(project / "g.svg").getroot().iter(f"{SVG}path"))
    assert len(arrows) == 3, "what another input needs already has no arrow of its own"


def test_a_build_draws_what_it_did_beside_the_products(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    assert states(project / "out/words/graph.svg")["page"] == "ran"
    npuflow("build", "words.toml", "--force", "total")
    again = states(project / "out/words/graph.svg")
    assert again["words"] == "2 in the cache" and again["total"] == "ran"


@pytest.mark.parametrize(
    ("args", "code"), [(("words.toml", "words.toml"), "NF-USAGE-070"), (("words.toml",), "NF-USAGE-071")]
)
def test_a_drawing_that_cannot_be(npuflow: Npuflow, project: Path, args: tuple[str, ...], code: str) -> None:
    (project / "taken").write_text("")
    ran = npuflow("plan", *args, "--graph", "taken/g.svg")
    assert ran.code == 2 and code in ran.err
