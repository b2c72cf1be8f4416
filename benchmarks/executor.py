"""Builds by this code beside builds by another checkout of it, in turns: a cold build, a changed threshold
method, nothing to do.

    python benchmarks/executor.py OTHER_CHECKOUT [--recipe recipes/fashion.toml] [--rounds 3]

Writes its study. Every build is a process of its own, with a cache for each checkout. What else
the machine does falls on both alike; where it does a lot, the processor's time says more than the clock.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import study

HERE = Path(__file__).resolve().parents[1]
KINDS = {"cold": [], "nothing to do": [], "another threshold method": ["--set", "calibrate.method=mse"]}


def once(checkout: Path, recipe: Path, words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of a build by the clock, and of all its processes by the processor."""
    env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "npuflow", "build", str(recipe), "--cache", str(folder / "cache")]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [*command, "--out", str(folder / "out"), "-q", *words],
        env=env,
        cwd=checkout,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"a build failed:\n{done.stdout}{done.stderr}")
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path)
    parser.add_argument("--recipe", default="recipes/fashion.toml")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1, help="rounds before those that count: kernels compile")
    args = parser.parse_args()
    checkouts = {"before": args.other.resolve(), "now": HERE}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    loads = []
    for number in range(args.warm + args.rounds):
        with tempfile.TemporaryDirectory() as base:
            for kind, words in KINDS.items():
                # the first of a pair meets the machine as the last left it: they take turns at that as well
                for name in sorted(checkouts, reverse=bool(number % 2)):
                    checkout = checkouts[name]
                    took = once(checkout, checkout / args.recipe, words, Path(base) / name)
                    if number >= args.warm:
                        found.setdefault((kind, name), []).append(took)
                        loads.append(os.getloadavg()[0])
                        print(f"{kind}, {name}: {took[0]:.2f} s, processor {took[1]:.2f} s", flush=True)
    rows = [
        "| build | clock before, s | now | processor before, s | now |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        cells = [
            f"{statistics.median(run[which] for run in found[kind, name]):.2f}"
            f" ({min(run[which] for run in found[kind, name]):.2f})"
            for which in (0, 1)
            for name in ("before", "now")
        ]
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    head = (
        f"`python benchmarks/executor.py OTHER_CHECKOUT --rounds {args.rounds}`: {args.recipe}, "
        f"medians (and the least) of {args.rounds} builds of each,\nin turns, on {os.cpu_count()} cores "
        f"under a load of {min(loads):.0f} to {max(loads):.0f}; Python {platform.python_version()}."
    )
    text = "# The executor beside the one before\n\n" + head + "\n\n" + "\n".join(rows) + "\n"
    study.write(__file__, text)
    print(text)


if __name__ == "__main__":
    main()
