"""The page of `npuflow view` over a cache of many steps, in a headless Chromium.

    python benchmarks/view.py [--steps 10000] [--rounds 5]

Makes a cache with a build of so many steps and prints, for a server that has just started: when the browser
has painted something (first contentful paint), when the list of builds and when the stages are there; and how
long after a step was recorded the page marks its stage. Medians and the worst of all rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from npuflow.base.digest import ALGORITHM
from npuflow.flow.store import Store
from npuflow.flow.store_record import Record
from tests.view.browser import Browser, browser
from tests.view.test_view import page, stored

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def painted(one: Browser, address: str) -> tuple[float, float, float]:
    """Milliseconds from the request of the page to its first paint, to the builds, to the stages."""
    one.send("Page.navigate", url=address)
    look = "document.querySelector('%s') ? done(performance.now()) : setTimeout(look, 5)"
    watch = f"new Promise((done) => {{ const look = () => {look}; look(); }})"
    builds = one.value(watch % "#builds button")
    stages = one.value(watch % "#stages tbody tr")
    one.until(PAINT)
    return float(one.value(PAINT)), float(builds), float(stages)


def live(store: Store, one: Browser, number: int) -> float:
    """Milliseconds from a step's record to its mark on the page."""
    key, stage = f"{ALGORITHM}:{number + (1 << 64):032x}", "layers"
    cell = "document.querySelector('#stages tr[data-stage=layers] td.ran')"
    seen = f"Number(({cell}?.textContent || '0').split(' ')[0])"
    before = one.value(seen)
    record = Record(key, stage, str(number), {"inputs": {}}, f"{ALGORITHM}:{'a' * 32}", seconds=0.1)
    path = store.record_path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(record.encode())
    start = time.perf_counter()
    one.until(f"{seen} > {before}")
    return 1e3 * (time.perf_counter() - start)


def said(name: str, values: list[float]) -> str:
    return f"| {name} | {statistics.median(values):.0f} | {max(values):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "net").mkdir()
        store = Store(folder / "cache")
        stored(store, folder / "net", given.steps)
        paints, updates = [], []
        with browser(folder / "profile") as one:
            one.send("Page.enable")
            for number in range(given.rounds):
                with page(store) as address:  # another port each time: nothing of the page is kept
                    paints.append(painted(one, address))
                    one.until("document.getElementById('live').textContent == 'nothing runs'")
                    updates += [live(store, one, 4 * number + k) for k in range(4)]
    print("| milliseconds | median | worst |\n| --- | ---: | ---: |")
    for name, column in zip(
        ("first paint", "builds listed", "stages of the build"), zip(*paints, strict=True), strict=True
    ):
        print(said(name, list(column)))
    print(said("a step marked after its record", updates))


if __name__ == "__main__":
    main()
