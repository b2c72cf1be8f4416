"""Cold and incremental builds, stage by stage: build_times.py RECIPE.toml ... prints a Markdown table.

Each recipe is built into a fresh cache, then again, then with one knob changed at a time (each change
against the first build): the steps that ran, and the seconds of every stage that ran. Compiled
kernels are warm; nothing else is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

CHANGES = {
    "cold": [],
    "nothing changed": [],
    "threshold method": ['calibrate.method="percentile"'],
    "one layer's bits": ['quantize.overrides=[{layers=["LAYER"], weight_bits=4}]'],
    "tiling level": ["tiling.level=1"],
    "target clock": ["target.compute.clock_mhz=777"],
    "one image more": ["data.count=COUNT"],
}


def build(
    recipe: Path, cache: Path, out: Path, sets: list[str], until: str
) -> tuple[float, list[dict[str, Any]]]:
    command = [
        sys.executable,
        "-m",
        "npuflow",
        "build",
        str(recipe),
        "--cache",
        str(cache),
        "--out",
        str(out),
        "--json",
    ]
    command += ["--until", until] + [word for key in sets for word in ("--set", key)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return seconds, lines


def row(name: str, seconds: float, lines: list[dict[str, Any]]) -> str:
    """Steps that ran, whole seconds, and the stages that took any."""
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for line in lines:
        if line["event"] == "step" and line["status"] == "ran":
            spent[line["stage"]] += line["seconds"]
            count[line["stage"]] += 1
    shown = [
        f"{stage}{f' x{count[stage]}' if count[stage] > 1 else ''} {spent[stage]:.2f}" for stage in spent
    ]
    return f"| {name} | {lines[-1]['ran']} | {lines[-1]['hit']} | {seconds:.1f} | {', '.join(shown) or '-'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="+", help="RECIPE.toml[:LAYER], the layer whose weights get 4 bits")
    parser.add_argument("--count", type=int, default=32, help="calibration images")
    parser.add_argument("--until", default="simulate")
    args = parser.parse_args()
    print(
        "| change | steps run | from the cache | wall s | stages that ran, s |\n| --- | ---: | ---: | ---: "
        "| --- |"
    )
    for given in args.recipes:
        path, _, layer = given.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            for name, sets in CHANGES.items():
                more = [
                    s.replace("LAYER", layer or "conv").replace("COUNT", str(args.count + 1)) for s in sets
                ]
                always = [] if any(s.startswith("data.count") for s in more) else [f"data.count={args.count}"]
                cache, out = Path(folder, "cache"), Path(folder, "out")
                print(
                    row(
                        f"{Path(path).stem}: {name}",
                        *build(Path(path), cache, out, always + more, args.until),
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
