"""The pages of a network, of a tensor, and of builds beside each other: what they read, and in a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from npuflow.apps.view import builds, network
from npuflow.apps.view.address import address, announced
from npuflow.base.digest import ALGORITHM
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.store import Store
from npuflow.flow.store_lease import add_root
from npuflow.flow.store_record import Record
from tests.view.browser import CHROMIUM, browser
from tests.view.test_view import got, page

NAMES = ("block/conv", "block/relu", "head")


@dataclass(frozen=True)
class Entries(Artifact):
    """Texts and JSON by name, as stages save them."""

    texts: Mapping[str, str]
    tables: Mapping[str, Any]

    def save(self, folder: Writer) -> None:
        for name, text in self.texts.items():
            folder.text(name, text)
        for name, table in self.tables.items():
            folder.json(name, table)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls({}, {})


def report() -> dict[str, Any]:
    """Three layers in a row, the last on the host."""
    values = ("image", *(f"{name}:out" for name in NAMES))
    nodes = [
        {
            "name": name,
            "op": "Conv",
            "npu": name != "head",
            "reason": "rank 5" if name == "head" else "",
            "inputs": [values[i]],
            "outputs": [values[i + 1]],
            "cycles": 100.0 * i,
            "macs": 9,
            "bytes": 1.0,
            "limit": "array",
            "sqnr": 10.0 + 10 * i,
            "attributes": "",
        }
        for i, name in enumerate(NAMES)
    ]
    counts = {"counts": [1.0, 9.0, 4.0], "lo": -1.0, "hi": 2.0}
    tensors = [
        {
            "id": value,
            "shape": [1, 4],
            "dtype": "int8",
            "bits": 8,
            "scale": 0.5,
            "zero_point": 3,
            "sqnr": 20.0,
            "cosine": 0.99,
            "ends": 0.01,
            "method": "mse",
            "suggestions": ["look at it"],
            "histogram": counts,
            "observed": [-1.0, 2.0],
            "threshold": [-0.5, 1.5],
        }
        for value in values
    ]
    return {"title": "a report", "nodes": nodes, "tensors": tensors}


def with_ends() -> dict[str, Any]:
    """The same network as a build has it: codes between a conversion in front and one behind."""
    data = report()
    first, last = data["nodes"][0], data["nodes"][-1]
    conversion = {**first, "npu": False, "op": "Identity"}
    first["inputs"], last["outputs"] = ["image:q"], ["scores:q"]
    front = {**conversion, "name": "image:q", "inputs": ["image"], "outputs": ["image:q"]}
    back = {**conversion, "name": "scores", "inputs": ["scores:q"], "outputs": ["scores"]}
    data["nodes"] = [front, *data["nodes"], back]
    data["tensors"][0]["id"], data["tensors"][-1]["id"] = "image:q", "scores:q"
    return data


PAIRS = {"pairs": [[0.1, 0.4, -0.2], [0.0, 0.5, 0.0]]}


def stored(
    store: Store, place: Path, cycles: int, sqnr: float, library: str = "", data: Any = None
) -> str:
    """A build of which the page can show all."""
    pairs = {"block/conv:out": PAIRS, "scores": PAIRS}
    said = json.dumps(data or report())
    made = {
        "report": Entries({"report.html": "<p>the report</p>", "report.json": said}, {}),
        "fidelity": Entries({}, {"tensors": pairs}),
        "page_library": Entries({"library.js": library}, {}),
    }
    summaries = {
        "simulate": {"cycles": cycles, "ms": 1.0},
        "fidelity": {"worst_sqnr_db": sqnr, "worst_tensor": "x"},
    }
    place.mkdir(parents=True)
    keys = []
    for i, stage in enumerate(("report", "fidelity", "page_library", "simulate")):
        key = f"{ALGORITHM}:{cycles:016x}{i:016x}"
        output = store.write(made[stage]).digest if stage in made else f"{ALGORITHM}:{'c' * 32}"
        record = Record(key, stage, None, {"inputs": {}}, output, summary=summaries.get(stage, {}))
        store.record_path(key).parent.mkdir(parents=True, exist_ok=True)
        store.record_path(key).write_bytes(record.encode())
        keys.append(key)
    add_root(store.root, place, keys)
    return next(row["id"] for row in builds.builds(store) if row["place"] == str(place))


def test_layers_and_tensors_are_those_of_the_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0)
    found = network.network(store, name)
    assert found is not None and [row["name"] for row in found["layers"]] == list(NAMES)
    assert "histogram" not in found["tensors"][0]
    one = network.tensor(store, name, "block/conv:out")
    assert one is not None and one["pairs"] == [[0.1, 0.4, -0.2], [0.0, 0.5, 0.0]]
    assert (one["made_by"], one["read_by"]) == (["block/conv"], ["block/relu"])
    head = network.tensor(store, name, "head:out")
    assert head is not None and head["pairs"] == [[], []]
    assert network.tensor(store, name, "none") is None and network.network(store, "0" * 32) is None
    with page(store) as where:
        assert got(where, f"/api/builds/{name}/tensor?name=block/conv%3Aout")[0] == 200
        assert got(where, f"/api/builds/{name}/tensor?name=../../store.json")[0] == 404
        assert got(where, f"/api/builds/{'0' * 32}/network")[0] == 404


def test_builds_are_compared_by_their_figures(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    names = [stored(store, tmp_path / str(n), 100 * n, 10.0 + n) for n in (1, 2)]
    comparison = network.BuildFigures(store)
    rows = {row["id"]: row["figures"] for row in comparison.rows()}
    assert rows[names[1]] == {"simulate.cycles": 200.0, "simulate.ms": 1.0, "fidelity.worst_sqnr_db": 12.0}
    assert {row["id"] for row in comparison.rows()} == {*names}


def test_a_cache_says_where_its_page_is(tmp_path: Path) -> None:
    assert address(tmp_path) is None
    with announced(tmp_path, "http://127.0.0.1:1/"):
        assert address(tmp_path) == "http://127.0.0.1:1/"
    assert address(tmp_path) is None
    (tmp_path / "view.json").write_text('{"address": "http://127.0.0.1:1/", "pid": 99999999}')
    assert address(tmp_path) is None


def test_an_input_or_output_is_the_tensor_of_its_codes(tmp_path: Path) -> None:
    """Its name in the network is what a user knows, and what links are made of."""
    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, data=with_ends())
    for wanted in ("scores", "scores:q"):
        one = network.tensor(store, name, wanted)
        assert one is not None and one["id"] == "scores:q" and one["pairs"] == PAIRS["pairs"]
        assert (one["made_by"], one["read_by"]) == (["head"], ["scores"])
    one = network.tensor(store, name, "image")
    assert one is not None and one["id"] == "image:q" and one["read_by"] == ["block/conv"]
    found = network.network(store, name)
    assert found is not None and found["called"] == {"image": "image:q", "scores": "scores:q"}


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_links_to_outputs_in_a_browser(tmp_path: Path) -> None:
    from npuflow.report.figures.export import script

    store = Store(tmp_path / "cache")
    name = stored(store, tmp_path / "one", 7, 20.0, script(), with_ends())
    with page(store) as where, browser(tmp_path / "profile") as one:
        one.send("Page.enable")
        one.send("Page.navigate", url=f"{where}#{name}/tensor/scores")
        one.until("document.querySelector('#histogram svg') && document.querySelector('#pairs svg')")
        one.value(f"location.hash = '{name}/tensor/block/conv:out'")
        one.until("document.querySelector('#facts h3').textContent == 'block/conv:out'")
        one.until("document.querySelector('#pairs svg')")
        one.value(f"location.hash = '{name}/network/scores'")
        one.until("document.querySelectorAll('#layer a').length == 2")
        links = one.value("[...document.querySelectorAll('#layer a')].map((a) => a.getAttribute('href'))")
        assert links == [f"#{name}/tensor/scores%3Aq", f"#{name}/tensor/scores"]


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_pages_in_a_browser(tmp_path: Path) -> None:
    from npuflow.report.figures.export import script

    store = Store(tmp_path / "cache")
    names = [stored(store, tmp_path / str(n), 100 * n, 10.0 + n % 3, script()) for n in (1, 2, 3)]
    with page(store) as where, browser(tmp_path / "profile") as one:
        one.send("Page.enable")
        one.window(1200, 800)
        # a link to a layer, as a terminal may show it
        one.send("Page.navigate", url=f"{where}#{names[0]}/network/block%2Frelu")
        one.until("document.querySelector('#layer h3')?.textContent == 'block/relu'")
        assert one.value("document.querySelectorAll('#layers g').length") == 3
        # boxes name the layer, by its end where the name is long
        assert "block/conv" in one.value("document.querySelector('#layers g text').textContent")
        # keys go from layer to layer, and the address follows
        one.value("document.getElementById('layers').focus()")
        one.press("ArrowDown")
        one.until("document.querySelector('#layer h3').textContent == 'head'")
        assert one.value("location.hash") == f"#{names[0]}/network/head"
        assert "host: rank 5" in one.value("document.getElementById('layer').textContent")
        # a tensor: histogram with thresholds, float against quantised
        one.value(f"location.hash = '{names[0]}/tensor/block%2Fconv%3Aout'")
        one.until("document.querySelector('#histogram svg') && document.querySelector('#pairs svg')")
        assert "look at it" in one.value("document.getElementById('suggestions').textContent")
        # builds beside each other: the second has more cycles and the best quality, the third is behind
        one.value("location.hash = 'compare'")
        one.until("document.querySelectorAll('#compared tbody tr').length == 3")
        one.until("document.querySelector('#front svg')")
        best = one.value("[...document.querySelectorAll('tr.best')].map((row) => row.dataset.id)")
        assert {*best} == {*names[:2]}
        # a narrow window scrolls downwards only
        one.window(360, 700)
        for part in (f"{names[0]}/network", f"{names[0]}/tensor/block%2Fconv%3Aout", "compare", names[0]):
            one.value(f"location.hash = '{part}'")
            shown = part.split("/")[1] if "/" in part else "stages" if part == names[0] else part
            one.until(f"!document.getElementById('page-{shown}').hidden")
            assert one.value("document.documentElement.scrollWidth") <= 360, part
