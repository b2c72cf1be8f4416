"""The page of a report: one file without a network, whose figures can all be drawn."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from npuflow.report.figures.export import script
from npuflow.report.page import render

LAYER = {"op": "Conv", "npu": True, "origin": [], "attributes": "", "reason": "", "macs": 10, "cycles": 5.0}
TENSOR = {
    "shape": [1, 2],
    "dtype": "uint8",
    "bits": 8,
    "scale": 0.1,
    "zero_point": 0,
    "method": "kl",
    "ends": 0.0,
    "observed": [-1.0, 3.0],
    "histogram": {"lo": -1.0, "hi": 3.0, "counts": [1.0, 5.0, 2.0]},
    "cosine": 1.0,
}
DATA: dict[str, Any] = {
    "title": "a </script> & b",
    "accuracy": {},
    "warnings": [],
    "tiles": [["cycles", 5]],
    "nodes": [
        {**LAYER, "name": "/a/Conv", "inputs": ["x"], "outputs": ["a"], "sqnr": 30.0},
        {**LAYER, "name": "/b/Conv", "inputs": ["a"], "outputs": ["b"], "sqnr": None, "npu": False},
    ],
    "tensors": [
        {
            **TENSOR,
            "id": "a",
            "threshold": [-0.5, 2.0],
            "sqnr": 30.0,
            "channels": [[-1.0, 0.0], [1.0, 3.0]],
            "suggestions": [["dead channels", "one", 1.0]],
        },
        {
            **TENSOR,
            "id": "b",
            "threshold": None,
            "sqnr": None,
            "channels": None,
            "histogram": None,
            "suggestions": [],
        },
    ],
    "timeline": {
        "queues": ["LOAD0", "TENSOR"],
        "cycles": 5.0,
        "events": [[0, 0.0, 2.0, 0, "LOAD"]],
        "shortened": "",
    },
    "memory": {
        "const_bytes": 10,
        "data_bytes": 64,
        "local_bytes": 128,
        "bound_bytes": 64,
        "local_used": 3,
        "live": [{"id": "a", "address": 0, "size": 64, "first": 0, "last": 1}],
    },
    "roofline": {
        "title": "p",
        "roofs": [{"name": "array", "rate": 512}],
        "slopes": [{"name": "external", "rate": 8.0}],
        "points": [{"name": "/a/Conv", "intensity": 2.0, "rate": 2.0, "cycles": 5.0, "limit": "array"}],
    },
    "notes": [["Nodes on the host", ["node", "reason"], [["/b/Conv", "no integers"]]]],
}


class Page(HTMLParser):
    """Scripts by their id, and every address that the page names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.addresses: list[str] = []
        self._id = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [v for k, v in attrs if k in ("src", "href") and v]
        self._id = (found.get("id") or f"script {len(self.scripts)}") if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._id:
            self.scripts[self._id] = self.scripts.get(self._id, "") + data


@pytest.fixture(scope="module")
def text() -> str:
    return render(DATA, script())


def test_the_page_is_one_file(text: str) -> None:
    page = Page(text)
    assert page.addresses == [] and len(page.scripts) == 4
    assert not re.search(r"@import|url\(", text.partition("<script")[0])
    assert json.loads(page.scripts["data"])["title"] == "a </script> & b"


def test_every_figure_of_the_page_compiles(text: str) -> None:
    found = json.loads(Page(text).scripts["figures"])
    whole = {name: spec for name, spec in found.items() if name not in ("light", "dark")}
    assert set(whole) == {
        "network",
        "quality",
        "timeline",
        "memory",
        "roofline",
        "histogram",
        "channels",
    }
    for spec in whole.values():
        assert vl_convert.vegalite_to_vega(spec)["marks"]


def test_what_only_figures_show_is_in_the_page_once(text: str) -> None:
    data = json.loads(Page(text).scripts["data"])
    assert "events" not in data["timeline"] and "live" not in data["memory"] and "roofline" not in data
    assert DATA["timeline"]["events"], "the data is left as it was"


def test_a_network_that_is_all_on_the_host_has_a_page() -> None:
    bare = copy.deepcopy(DATA)
    bare["timeline"] |= {"queues": [], "events": []}
    bare["memory"] |= {"live": [], "data_bytes": 0}
    bare["roofline"]["points"] = []
    bare["nodes"], bare["tensors"] = [], []
    found = json.loads(Page(render(bare, "")).scripts["figures"])
    assert {name for name, spec in found.items() if spec is None} == {
        "network",
        "timeline",
        "memory",
        "roofline",
    }


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize(
    ("tab", "words"),
    [
        ("layers", "/a/Conv"),
        ("graph", "Click a layer"),
        ("tensors", "filter|dead channels"),
        ("memory", "64 B"),
        ("timeline", "5 cycles"),
        ("roofline", "Export|Save"),
        ("build", "what ran"),
    ],
)
def test_a_browser_shows_it(text: str, tmp_path: Path, tab: str, words: str) -> None:
    (tmp_path / "report.html").write_text(text)
    (tmp_path / "graph.js").write_text(f"window.npuflowGraph = {json.dumps(DATA_GRAPH)};")
    ran = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=4000",
            "--dump-dom",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"file://{tmp_path}/report.html#show={tab}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    section = re.search(rf'<section id="{tab}" class="on">(.*?)</section>', ran.stdout, re.S)
    assert section is not None and re.search(words, section[1])
    assert re.search(r"<canvas|<svg", section[1])


DATA_GRAPH = {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {"x": {"field": "x"}}}
