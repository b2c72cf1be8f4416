"""The page over a cache: what it reads, what it reports live, and how it looks in a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
import pytest

from npuflow.apps.view import builds
from npuflow.apps.view.app import BuildWatch, serve
from npuflow.base.digest import ALGORITHM
from npuflow.base.errors import NpuflowError
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.recipe_build import build as run_build
from npuflow.flow.store import Spec, Store, open_store
from npuflow.flow.store_lease import add_root
from npuflow.flow.store_record import Record
from tests.view.browser import CHROMIUM, browser

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion"
RECIPE = f"""target = "edge-4t"
[model]
path = "{EXAMPLE}/fashion.onnx"
inputs = {{ image = [1, 1, 28, 28] }}
[data]
source = "{EXAMPLE}/calib.npz"
count = 4
[[data.steps]]
layout = "nchw"
"""


def make(folder: Path, *sets: str) -> None:
    found = run_build(
        folder / "net.toml", cache=folder / "cache", out=folder / "out", until="parse", sets=list(sets)
    )
    assert not found.failed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a finished build of a few stages."""
    found = tmp_path_factory.mktemp("cache")
    (found / "net.toml").write_text(RECIPE)
    make(found)
    return found


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return open_store(Spec(folder / "cache"))


@contextmanager
def page(store: Store) -> Iterator[str]:
    loop, stop, there = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    address: list[str] = []

    def started(found: str) -> None:
        address.append(found)
        there.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(store, 0, started, stop)))
    thread.start()
    try:
        assert there.wait(10)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()


def got(address: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_build_is_its_stages(store: Store) -> None:
    (row,) = builds.builds(store)
    assert row["place"].endswith("out/net") or row["name"]
    found = builds.build(store, row["id"])
    assert found is not None and found["report"] is False
    names = [stage["stage"] for stage in found["stages"]]
    assert {"model", "parse"} <= {*names} and len(names) == len({*names})
    parse = next(stage for stage in found["stages"] if stage["stage"] == "parse")
    assert "model" in parse["needs"] and parse["summary"]["nodes"] > 10
    for i, stage in enumerate(found["stages"]):
        assert {*stage["needs"]} <= {*names[:i]}
    assert builds.build(store, "0" * 32) is None and builds.report(store, row["id"]) is None
    for name in ("../../etc/passwd", "", "a", f"../{row['id']}"):
        assert builds.build(store, name) is None


@dataclass(frozen=True)
class Page(Artifact):
    """A report of a build that was not run."""

    text: str

    def save(self, folder: Writer) -> None:
        folder.text("report.html", self.text)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.text("report.html"))


def stored(store: Store, place: Path, count: int) -> None:
    """A build of a report, a stage, and `count` items of another one."""
    ref = store.write(Page("<p>the report</p>"))
    layers, other = (f"{ALGORITHM}:{letter * 32}" for letter in "ab")
    rows = [("report", None, {"layers": layers}, ref.digest), ("layers", None, {}, layers)]
    rows += [("items", str(i), {}, other) for i in range(count)]
    keys = []
    for i, (stage, item, inputs, output) in enumerate(rows):
        key = f"{ALGORITHM}:{i:032x}"
        record = Record(key, stage, item, {"inputs": inputs}, output, seconds=0.5, log=f"{stage} said this")
        store.record_path(key).parent.mkdir(parents=True, exist_ok=True)
        store.record_path(key).write_bytes(record.encode())
        keys.append(key)
    add_root(store.root, place, keys)


def test_ten_thousand_steps_and_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    (tmp_path / "place").mkdir()
    stored(store, tmp_path / "place", 10_000)
    start = time.monotonic()
    (row,) = builds.builds(store)
    found = builds.build(store, row["id"])
    watch = BuildWatch(store)
    spent = time.monotonic() - start
    assert found is not None and spent < 5.0, spent
    print(f"10,000 steps: {spent:.2f} s")
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert stages["items"]["steps"] == 10_000 and stages["items"]["seconds"] == 5000
    assert stages["report"]["needs"] == ["layers"] and found["report"]
    assert watch.look() == {"running": 0} and watch.look() == {}
    with page(store) as address:
        assert got(address, f"/builds/{row['id']}/report") == (200, "<p>the report</p>")
        assert got(address, f"/api/builds/{row['id']}/log/layers") == (200, "layers said this")


def test_a_report_that_the_cache_has_lost_is_not_offered(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    (tmp_path / "place").mkdir()
    stored(store, tmp_path / "place", 1)
    (row,) = builds.builds(store)
    (file,) = (store.root / "objects").rglob("report.html")
    file.chmod(0o644)
    file.write_text("junk")
    found = builds.build(store, row["id"])
    assert found is not None and not found["report"] and builds.report(store, row["id"]) is None
    with page(store) as address:
        assert got(address, f"/builds/{row['id']}/report")[0] == 404
        assert "the cache has lost it" in got(address, f"/api/builds/{row['id']}/network")[1]


def test_what_happens_is_seen(folder: Path, store: Store) -> None:
    watch = BuildWatch(store)
    watch.look()
    assert watch.look() == {}
    make(folder, 'parse.skip=["spell_lrn"]')
    found = watch.look()
    assert found["stages"]["parse"]["ran"] == 1 and found["builds"]
    make(folder)
    again = watch.look()
    assert again["stages"]["parse"] == {"hit": 1} and "ran" not in again["stages"].get("model", {})


def test_a_failed_build_says_why(tmp_path: Path) -> None:
    """Its stages that ran are there, the error with its place, reason and remedy; a build that succeeds
    takes its place."""
    (tmp_path / "net.toml").write_text(RECIPE)
    np.savez(tmp_path / "wrong.npz", image=np.full((4, 28, 28, 1), np.nan, np.float32))
    cache, out, wrong = tmp_path / "cache", tmp_path / "out", [f'data.source="{tmp_path}/wrong.npz"']
    with pytest.raises(NpuflowError) as raised:
        run_build(tmp_path / "net.toml", cache=cache, out=out, until="statistics", sets=wrong)
    store = open_store(Spec(cache))
    (row,) = builds.builds(store)
    assert row["errors"][0]["message"] == raised.value.message and row["errors"][0]["because"]
    found = builds.build(store, row["id"])
    assert found is not None and found["errors"] == row["errors"]
    assert "parse" in [stage["stage"] for stage in found["stages"]]
    assert row["errors"][0]["where"]["stage"] == "statistics"
    if CHROMIUM:
        with page(store) as address, browser(tmp_path / "profile") as one:
            one.send("Page.navigate", url=address)
            one.until("document.querySelector('#errors strong')")
            assert row["errors"][0]["message"] in one.value("document.getElementById('errors').innerText")
            assert one.value("document.querySelector('#builds .failed').textContent") == "failed"
    make(tmp_path)
    (row,) = builds.builds(store)
    assert row["errors"] == [] and builds.build(store, row["id"])["errors"] == []  # type: ignore[index]


def test_a_build_that_failed_before_its_first_step_has_a_page(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    (tmp_path / "place").mkdir()
    add_root(store.root, tmp_path / "place", [], [{"message": "no such thing"}])
    (row,) = builds.builds(store)
    assert builds.build(store, row["id"]) == {
        "id": row["id"],
        "stages": [],
        "figures": {},
        "report": False,
        "errors": [{"message": "no such thing"}],
    }


def test_pages_and_what_is_refused(store: Store) -> None:
    with page(store) as address:
        for path in ("/", "/page.js", "/page.css"):
            status, text = got(address, path)
            assert (
                status == 200
                and "http:" not in text.replace("http://www.w3.org/2000/svg", "")
                and "https:" not in text
            )
        (row, *_) = json.loads(got(address, "/api/builds")[1])
        assert json.loads(got(address, f"/api/builds/{row['id']}")[1])["stages"]
        assert got(address, f"/api/builds/{row['id']}/log/none")[0] == 404
        assert got(address, f"/builds/{row['id']}/report")[0] == 404
        for path in ("/api/builds/..%2F..%2Fstore", "/../store.json", "/page.html", "/api/builds/x/log/y"):
            assert got(address, path)[0] == 404
        assert got(address, "/api/builds", Host="evil.example:80")[0] == 403
        assert got(address, "/", Host="localhost:1")[0] == 200


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_in_a_browser(folder: Path, store: Store, tmp_path: Path) -> None:
    (row, *_) = builds.builds(store)
    with page(store) as address, browser(tmp_path / "profile") as one:
        one.send("Page.enable")
        one.window(1200, 800)
        one.send("Page.navigate", url=address)
        one.until("document.querySelectorAll('#stages tbody tr').length > 1")
        assert one.value("document.querySelectorAll('#graph svg g').length") == len(
            builds.build(store, row["id"])["stages"]  # type: ignore[index]
        )
        one.until("document.getElementById('live').textContent == 'nothing runs'")
        # live: a stage that runs is marked soon after
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: make(folder, 'parse.skip=["spell_tile"]'))
        thread.start()
        thread.join()
        seen.append(one.until("document.querySelector('#graph g.ran[data-stage=parse]')", 5.0))
        assert seen[0] < 2.0
        # a build without a report has no network page, and the address of one does not stay
        assert one.value("document.getElementById('network').hidden")
        one.value(f"location.hash = '{row['id']}/network'")
        one.until("document.getElementById('title').textContent.includes('has no report')")
        assert one.value("[...document.querySelectorAll('main section')].every((part) => part.hidden)")
        one.value(f"location.hash = '{row['id']}'")
        one.until("document.getElementById('title').textContent == 'net'")
        assert not one.value("document.getElementById('page-stages').hidden")
        # keys: down to the first build, Enter shows it; a stage's log has a link of its own
        one.value("document.activeElement.blur()")
        one.press("ArrowDown")
        assert one.value("document.activeElement.dataset.id") == row["id"]
        one.press("Enter")
        one.until(f"location.hash == '#{row['id']}'")
        one.value(f"location.hash = '{row['id']}/parse'")
        one.until("!document.getElementById('log').hidden")
        one.value(f"location.hash = '{row['id']}/nix'")
        one.until("document.getElementById('log').textContent.includes('no stage')")
        # the log lies below the table: it is brought into sight, and keys scroll it
        one.window(1200, 300)
        one.value("scrollTo(0, 0)")
        one.value("document.querySelector('#graph g[data-stage=model]').dispatchEvent(new Event('click'))")
        one.until("document.getElementById('log').textContent.startsWith('model')")
        one.until("document.activeElement.id == 'log'")
        assert one.value("document.getElementById('log').getBoundingClientRect().bottom <= innerHeight + 1")
        # narrow: nothing is wider than the window
        one.window(400, 800)
        assert one.value("document.documentElement.scrollWidth") <= 400
        # nor is a row high because its result has no room
        heights = "[...document.querySelectorAll('#stages tbody tr')].map((row) => row.offsetHeight)"
        assert one.value(f"Math.max(...{heights})") < 100
        assert one.picture().startswith(b"\x89PNG")


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_an_empty_cache_says_so_and_shows_no_empty_table(tmp_path: Path) -> None:
    with page(Store(tmp_path / "cache")) as address, browser(tmp_path / "profile") as one:
        one.send("Page.navigate", url=address)
        one.until("document.getElementById('title')?.textContent.startsWith('The cache holds no build')")
        assert one.value("document.getElementById('page-stages').hidden")
        one.value("location.hash = 'compare'")
        one.until("!document.getElementById('page-compare').hidden")


def test_a_folder_that_is_no_cache(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from npuflow.base.errors import UsageError
    from npuflow.cli._app import application

    failed = CliRunner().invoke(application("view"), ["view", str(tmp_path)])
    assert isinstance(failed.exception, UsageError) and failed.exception.code == "NF-RUN-026"
