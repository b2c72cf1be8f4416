"""What asks a large cache without building: a build with nothing to do, the plan of a sweep, the page's list.

    python benchmarks/large_caches.py [--samples 9000] [--points 100] [--builds 200] [--rounds 5]

Builds with nothing to do are those of noop.py, with few samples and with many, in turn with `import typer`,
which every command line of this kind costs. The sweep is of README's recipe, `sweep --dry-run` with a cache
that has no step, but knows the code of stages. The list of builds is the server's, asked for the first time.
Medians of all rounds; seconds of the clock and of the processor, and the largest process. Writes the study.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import noop
from study import ROOT, write

from npuflow.base.digest import ALGORITHM
from npuflow.flow.store import Store
from npuflow.flow.store_lease import add_root
from npuflow.flow.store_record import Record

Spent = tuple[float, float, float]        # seconds of the clock, of the processor, MiB

LIST = """
import time
from pathlib import Path
from npuflow.apps.view.builds import builds
from npuflow.flow.store import Store
begun = time.perf_counter()
rows = builds(Store(Path({cache!r})))
print(len(rows), time.perf_counter() - begun)
"""


def spent(words: list[str], env: dict[str, str], folder: Path) -> Spent:
    begun = time.perf_counter()
    process = subprocess.Popen(
        words, env={**os.environ, **env}, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    done, largest = 0, 0
    while not done:                        # `ru_maxrss` counts this process, which the other is a copy of
        largest = max(largest, peak(process.pid))
        time.sleep(0.002)
        done, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, largest / 1024


def peak(pid: int) -> int:
    """KiB that a process had in memory at its largest; 0 where it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def said(name: str, rounds: list[Spent], bar: str) -> str:
    clock, processor, size = (statistics.median(column) for column in zip(*rounds, strict=True))
    return f"| {name} | {clock:.2f} | {processor:.2f} | {size:.0f} | {bar} |"


def nothing_to_do(root: Path, samples: list[int], rounds: int) -> list[str]:
    """Rows of builds with nothing to do, beside an import of typer."""
    runs = {"`import typer`": ([sys.executable, "-c", "import typer"], dict[str, str](), root)}
    for count in samples:
        noop.SAMPLES = count
        place = root / str(count)
        place.mkdir()
        noop.project(place)
        runs[f"a build with nothing to do, {count:,} samples"] = noop.npuflow(place)
        noop.run(noop.npuflow(place))
    time.sleep(2.1)                        # files younger than this are read again by content
    for run in runs.values():
        spent(*run)
    found: dict[str, list[Spent]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(spent(*run))
    return [said(name, rows, ".15 s" if "9,000" in name else "") for name, rows in found.items()]


def planned_sweep(root: Path, points: int, rounds: int) -> str:
    """The row of a sweep's plan: sizes of local memory, and a tenth as many counts of samples."""
    counts = max(points // 10, 1)
    sizes = [65536 * (k + 1) for k in range(points // counts)]
    words = [sys.executable, "-m", "npuflow", "sweep", "recipes/fashion.toml", "--dry-run"]
    words += ["--over", f"target.memory.local_bytes={sizes}"]
    words += ["--over", f"data.count={[16 * (k + 1) for k in range(counts)]}"]
    found = [spent([*words, "--cache", str(root / "sweep")], {}, ROOT) for _ in range(rounds + 1)]
    name = f"`sweep --dry-run` of {len(sizes) * counts} points, README's recipe"
    return said(name, found[1:], "5 s" if points == 100 else "")


def listed(root: Path, builds: int, rounds: int) -> str:
    """The row of the list of builds, of 300 steps each."""
    store = Store(root / "many")
    for number in range(builds):
        place = root / "places" / str(number)
        place.mkdir(parents=True)
        keys = []
        for step in range(300):
            key = f"{ALGORITHM}:{number * 1000 + step:032x}"
            record = Record(key, "stage", str(step), {"inputs": {}}, f"{ALGORITHM}:{'a' * 32}", seconds=0.1)
            store.record_path(key).parent.mkdir(parents=True, exist_ok=True)
            store.record_path(key).write_bytes(record.encode())
            keys.append(key)
        add_root(store.root, place, keys)
    words = [sys.executable, "-c", LIST.format(cache=str(store.root))]
    found = [spent(words, {}, root) for _ in range(rounds)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, cwd=root).stdout.split()
    assert int(shown[0]) == builds
    name = f"the list of {builds} builds in a process of its own ({float(shown[1]):.3f} s of it)"
    return said(name, found, "1 s" if builds == 200 else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=9000)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--builds", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="npuflow-large-") as name:
        root = Path(name)
        rows = [
            *nothing_to_do(root, [given.samples // 10, given.samples], given.rounds),
            planned_sweep(root, given.points, given.rounds),
            listed(root, given.builds, given.rounds),
        ]
    head = "| | clock, s | processor, s | MiB | bar |\n| --- | ---: | ---: | ---: | ---: |\n"
    text = "# Asking large caches without building\n\n"
    text += f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, medians of {given.rounds} rounds, "
    text += "interleaved where several rows are compared. The list is what `npuflow view` shows first.\n\n"
    text += head + "\n".join(rows) + "\n"
    print(text)
    write(__file__, text)


if __name__ == "__main__":
    main()
