"""The figure of the task graph: arrows and states."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from commandline import Npuflow

SVG = "{http://www.w3.org/2000/svg}"


def states(path: Path) -> dict[str, str]:
    """Stage -> what its box says."""
    titles = [one.text or "" for one in ET.parse(path).getroot().iter(f"{SVG}title")]
    return dict(title.split(": ", 1) for title in titles if ": " in title)  # type: ignore[misc]


def drawn(path: Path) -> dict[str, str]:
    """The same, of the script that a build writes for its report."""
    head, text = path.read_text().split(" = ", 1)
    assert head == "window.npuflowGraph"
    boxes = json.loads(text.rstrip(";\n"))["data"]["values"]
    return {box["text"]: box["below"] for box in boxes}


def test_plan_draws_what_it_would_do(npuflow: Npuflow, project: Path) -> None:
    assert npuflow("plan", "words.toml", "--graph", "out/g.svg").code == 0
    before = states(project / "out/g.svg")
    assert set(before) == {"words", "tally", "total", "page"} and "never" in before["words"]
    npuflow("build", "words.toml")
    npuflow("plan", "words.toml", "--graph", "g.svg")
    assert states(project / "g.svg") == {
        "words": "2 in the cache", "tally": "2 in the cache", "total": "in the cache", "page": "in the cache",
    }
    marks = list(ET.parse(project / "g.svg").getroot().iter(f"{SVG}g"))
    arrows = [m for m in marks if "mark-line" in m.get("class", "")]
    assert len(arrows) == 3, "what another input needs already has no arrow of its own"


def test_a_build_leaves_what_it_did_for_its_report(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    assert drawn(project / "out/words/graph.js")["page"] == "ran"
    npuflow("build", "words.toml", "--force", "total")
    again = drawn(project / "out/words/graph.js")
    assert again["words"] == "2 in the cache" and again["total"] == "ran"


@pytest.mark.parametrize(
    ("args", "code"), [(("words.toml", "words.toml"), "NF-USAGE-070"), (("words.toml",), "NF-USAGE-025")]
)
def test_a_drawing_that_cannot_be(npuflow: Npuflow, project: Path, args: tuple[str, ...], code: str) -> None:
    (project / "taken").write_text("")
    ran = npuflow("plan", *args, "--graph", "taken/g.svg")
    assert ran.code == 2 and code in ran.err
