"""Loops on the page of a network: one box with what it carries and stacks, under which its steps stand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from npuflow.apps.view import network
from npuflow.flow.store import Store
from tests.view.browser import CHROMIUM, browser
from tests.view.test_network import report, stored
from tests.view.test_view import got, page

LOOP = {
    "loop": "walk", "steps": 20, "nodes": 4, "carried": 1, "reads": ["image", "start"], "stacks": ["all"],
    "carries": [{"initial": "start", "now": "h", "following": "h2", "last": "end"}],
}
LOOPED = {"loop": "walk"}
BODY = (("h", ["start"], 1.0), ("part", ["image"], 2.0), ("h2", ["h", "part"], 30.0), ("all", ["h2"], 4.0))


def looped() -> dict[str, Any]:
    """A loop over an image, and a layer that reads what it stacks."""
    data = report()
    node, tensor = data["nodes"][0], data["tensors"][0]
    rows = [
        {**node, "name": name, "inputs": read, "outputs": [name], "cycles": cycles, "sqnr": cycles} | LOOPED
        for name, read, cycles in (*BODY, ("end", ["h2"], 5.0))
    ]
    last = {**node, "name": "head", "inputs": ["all"], "outputs": ["scores"]}
    ids = ("image", "start", "scores", *(row["name"] for row in rows))
    return {**data, "nodes": [*rows, last], "tensors": [{**tensor, "id": i} for i in ids], "loops": [LOOP]}


def test_a_loop_is_one_row_with_what_its_layers_have_together(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=looped())
    found = network.network(store, name)
    assert found is not None
    (loop,) = found["loops"]
    assert (loop["name"], loop["loop"], loop["op"], loop["steps"]) == ("loop walk", "walk", "Loop", 20)
    assert loop["inputs"] == ["image", "start"] and loop["outputs"] == ["all", "end"]
    assert (loop["cycles"], loop["sqnr"], loop["npu"], loop["energy_uj"]) == (42.0, 1.0, True, None)
    assert loop["carries"] == LOOP["carries"] and loop["stacks"] == ["all"]
    assert loop["layers"] == ["h", "part", "h2", "all", "end"]
    assert [row["loop"] for row in found["layers"]] == ["walk"] * 5 + [None]
    # a network without loops has none
    other = stored(store, tmp_path / "two", 8, 20.0)
    assert (network.network(store, other) or {})["loops"] == []


def test_a_tensor_of_a_loop_in_a_loop_has_the_steps_of_both(tmp_path: Path) -> None:
    data = looped()
    inner = {**LOOP, "loop": "again", "steps": 3, "stacks": ["h2"], "carries": []}
    data["loops"] = [{**LOOP, "inner": [inner]}]
    for row in data["nodes"]:
        row |= {"inner": "again"} if row["name"] in ("part", "h2") else {}
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=data)
    for wanted in ("part", "part@2", "part@2@7"):
        one = network.tensor(store, name, wanted)
        assert one is not None and (one["id"], one["loop"], one["steps"]) == ("part", "again", 60)
    # what the inner loop gives is made in every step of the outer one
    given = network.tensor(store, name, "h2@7")
    assert given is not None and (given["loop"], given["steps"]) == ("walk", 20)
    found = network.network(store, name)
    assert found is not None and len(found["loops"]) == 1 and found["loops"][0]["cycles"] == 42.0


def test_a_loop_of_the_host_says_why(tmp_path: Path) -> None:
    data = looped()
    for row in data["nodes"][:5]:
        row |= {"npu": False, "reason": "rank 5"}
    store = Store(tmp_path / "cache")
    found = network.network(store, stored(store, tmp_path / "one", 7, 20.0, data=data))
    assert found is not None and (found["loops"][0]["npu"], found["loops"][0]["reason"]) == (False, "rank 5")


def test_links_to_tensors_of_a_loop(tmp_path: Path) -> None:
    """By their names, and by those that they have in one step, as programs and comparisons say them."""
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=looped())
    for wanted in ("h2", "h2@7"):
        one = network.tensor(store, name, wanted)
        assert one is not None and one["id"] == "h2" and (one["loop"], one["steps"]) == ("walk", 20)
        assert one["made_by"] == ["h2"] and one["read_by"] == ["all", "end"]
    whole = network.tensor(store, name, "all")
    assert whole is not None and "steps" not in whole
    assert network.tensor(store, name, "h2@last") is None and network.tensor(store, name, "none@7") is None
    with page(store) as where:
        status, text = got(where, f"/api/builds/{name}/tensor?name=h2%407")
        assert status == 200 and json.loads(text)["id"] == "h2"
        assert got(where, "/loops.js")[0] == 200 and "loops.js" in got(where, "/")[1]


def test_layers_that_a_rule_made_of_one_are_told_apart(tmp_path: Path) -> None:
    """They share its name, and a link leads to one layer."""
    data = looped()
    for row in data["nodes"][:3]:
        row["name"] = "h2"
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=data)
    found = network.network(store, name)
    assert found is not None and [row["name"] for row in found["layers"][:3]] == ["h", "part", "h2"]
    one = network.tensor(store, name, "part")
    assert one is not None and (one["made_by"], one["read_by"]) == (["part"], ["h2"])


def shown(found: dict[str, Any], opened: list[str]) -> list[dict[str, Any]]:
    """The boxes that the page's script draws."""
    script = Path(network.__file__).with_name("loops.js").read_text()
    asked = f"shownBoxes({json.dumps(found)}, new Set({json.dumps(opened)}))"
    said = subprocess.run(
        ["node", "-e", f"{script}\nconsole.log(JSON.stringify({asked}))"],
        capture_output=True, text=True, check=True, timeout=60,
    )
    return list(json.loads(said.stdout))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_loop_is_one_box_until_it_is_opened(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    found = network.network(store, stored(store, tmp_path / "one", 7, 20.0, data=looped()))
    assert found is not None
    closed = shown(found, [])
    assert [row["name"] for row in closed] == ["loop walk", "head"]
    assert (closed[0]["takes"], closed[0]["gives"]) == (["image", "start"], ["all", "end"])
    opened = shown(found, ["walk"])
    assert [row["name"] for row in opened] == ["loop walk", "h", "part", "h2", "all", "end", "head"]
    # what enters hangs below the loop's box, and what leaves is made by its layers
    takes = {row["name"]: row["takes"] for row in opened}
    assert takes["h"] == takes["part"] == ["loop walk"] and takes["h2"] == ["h", "part"]
    assert opened[0]["gives"] == ["loop walk"] and takes["head"] == ["all"]


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_loops_in_a_browser(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=looped())
    with page(store) as where, browser(tmp_path / "profile") as one:
        one.send("Page.enable")
        one.send("Page.navigate", url=f"{where}#{name}/network")
        one.until("document.querySelectorAll('#layers g').length == 2")
        one.value("document.querySelector('#layers g.loop').dispatchEvent(new Event('click'))")
        one.until("document.querySelectorAll('#layers g.inner').length == 5")
        one.until("document.getElementById('layer').textContent.includes('carries from step to step')")
        one.value(f"location.hash = '{name}/network/h2'")
        one.until("document.querySelector('#layer h3').textContent == 'h2'")
