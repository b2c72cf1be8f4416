"""The figures that are held to a bar, each measured by its script, in one file of results.

    python benchmarks/bars.py [NAME ...] [--shared FOLDER] [--list]

Rows of results.md are replaced by what is measured now and keep the commit that they were made at; those of
bars that are not named stay. FOLDER holds the models and data of the tasks; bars that need it, or packages
that are not installed, are left out. Times are ratios in one run where they can be; a row states the load of
the machine, since seconds of a busy one say little.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from shapes import NETWORKS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results.md"
FASHION = "recipes/fashion.toml"
HEAD = (
    "# Bars\n\n`python benchmarks/bars.py` writes this table. A bar that is missed stands here as one that "
    "is met.\n\n| name | what | measured | bar | met | commit, day, load |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


@dataclass(frozen=True)
class Bar:
    """A figure that must be at most `most`; `measure` takes the folder of shared data."""

    what: str
    most: float
    measure: Callable[[Path | None], float | None]


def said(*words: str) -> str:
    """What a command of this environment prints."""
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *words]
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def figure(pattern: str, text: str) -> float:
    """The number that a pattern finds last."""
    found = re.findall(pattern, text)
    if not found:
        raise SystemExit(f"nothing fits {pattern!r} in\n{text[-2000:]}")
    return float(found[-1].replace(",", ""))


def no_op(_: Path | None) -> float:
    return figure(r"npuflow +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)", said("benchmarks/noop.py", "--rounds", "5"))


def gap(network: str) -> Callable[[Path | None], float | None]:
    """On edge-4t, of a network of shapes.py, or of one that corpus_export.py makes where its packages are."""
    def measured(_: Path | None) -> float | None:
        with tempfile.TemporaryDirectory() as folder:
            rows, source = Path(folder) / "gaps.csv", network
            if network not in NETWORKS:
                if not all(map(find_spec, ("torch", "timm", "transformers", "onnxscript"))):
                    return None
                said("benchmarks/corpus_export.py", folder, network)
                source = str(Path(folder) / f"{network}.onnx")
            said("benchmarks/gaps.py", source, "edge-4t", "--file", str(rows))
            [row] = csv.DictReader(rows.read_text().splitlines())
            return float(row["gap"])

    return measured


def recurrent(column: int) -> Callable[[Path | None], float]:
    """A column of the row of 1,024 steps, from the left."""
    def measured(_: Path | None) -> float:
        text = said("benchmarks/recurrent.py", "1024")
        return figure(r"\|" + r"[^|]*\|" * column + r" *([\d.,]+) *\|", text)

    return measured


def executor(_: Path | None) -> float:
    return figure(r'"ratio": ([\d.]+)', said("benchmarks/execute.py", "resnet50"))


def statistics(_: Path | None) -> float:
    text = said("benchmarks/calibrate.py", "cost", FASHION, "--samples", "128")
    return figure(r"methods ([\d.]+)x", text)


def fast_tests(_: Path | None) -> float:
    text = said("-m", "pytest", "-q", "-m", "fast", "-p", "no:cacheprovider")
    return figure(r"passed.* in ([\d.]+)s", text)


def house(row: str) -> Callable[[Path | None], float]:
    def measured(_: Path | None) -> float:
        return figure(rf"\| {re.escape(row)} \| (\d+)", said("benchmarks/house.py", str(ROOT)))

    return measured


WIDE, ALONE = "functions with more than 7 parameters", "files with one importer, outside plug-ins"


@cache
def built_photos(shared: Path) -> str:
    """A cold default build of EfficientNet-Lite0, once for all its figures."""
    return said("benchmarks/build_over_pass.py", str(shared), "photos")


@cache
def group_products() -> str:
    return said("benchmarks/group_products.py")


def grouped(target: str) -> Callable[[Path | None], float]:
    """Of the output layer of SmolLM2-135M, 49,152 by 576 at 8 bits in groups of 32."""
    return lambda _: figure(rf"{target} output .* ([\d.]+)\n", group_products())


def default_build(pattern: str) -> Callable[[Path | None], float | None]:
    def measured(shared: Path | None) -> float | None:
        return None if shared is None else figure(pattern, built_photos(shared))

    return measured


BARS = {
    "no-op": Bar("a build with nothing to do, seconds, best of 5", 0.06, no_op),
    "gap-resnet50": Bar("cycles over the lower bound, ResNet-50, edge-4t", 1.3, gap("resnet50")),
    "gap-vit": Bar("cycles over the lower bound, ViT-tiny, edge-4t", 1.3, gap("vit_tiny")),
    "gap-bert": Bar("cycles over the lower bound, BERT, edge-4t", 1.3, gap("bert_base")),
    "recurrent-seconds": Bar("LSTM of 16, 1,024 steps: processor seconds to compile", 3, recurrent(6)),
    "recurrent-commands": Bar("LSTM of 16, 1,024 steps: commands", 200, recurrent(7)),
    "recurrent-cycles": Bar("LSTM of 16, 1,024 steps: cycles", 200_000, recurrent(9)),
    "executor": Bar("whole-tensor executor over onnxruntime, ResNet-50", 0.6, executor),
    "statistics": Bar("statistics and every threshold method over a float pass", 2.0, statistics),
    "default-build": Bar(
        "default build of EfficientNet-Lite0 over a float pass, clock", 30, default_build(r"clock ([\d.]+)x")
    ),
    "lite0-processor": Bar(
        "the same: processor seconds of all processes", 72, default_build(r"build .* processor ([\d.]+) s:")
    ),
    "lite0-judging": Bar(
        "the same: clock seconds of the stages that judge", 30, default_build(r"judging ([\d.]+) s")
    ),
    "group-bm1684x": Bar("a row by weights in groups: cycles over the bus, bm1684x", 1.1, grouped("bm1684x")),
    "group-edge-8t": Bar("a row by weights in groups: cycles over the bus, edge-8t", 1.1, grouped("edge-8t")),
    "fast-tests": Bar("the fast tier of tests, seconds", 60, fast_tests),
    "wide-functions": Bar(WIDE, 60, house(WIDE)),
    "one-importer": Bar(ALONE, 110, house(ALONE)),
}


def table(rows: dict[str, str]) -> str:
    return HEAD + "".join(f"{rows[name]}\n" for name in BARS if name in rows)


def kept() -> dict[str, str]:
    """Rows by name."""
    if not RESULTS.exists():
        return {}
    lines = [line for line in RESULTS.read_text().splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in lines[2:]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*BARS, []], default=[])
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print(*(f"{name}: {bar.what} (at most {bar.most:g})" for name, bar in BARS.items()), sep="\n")
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    for name in args.names or BARS:
        bar, load = BARS[name], os.getloadavg()[0]
        found = bar.measure(args.shared)
        if found is None:
            print(f"{name}: left out, what it needs is not here")
            continue
        met = "yes" if found <= bar.most else "no"
        made = f"{commit}, {date.today()}, {load:.0f}"
        row = f"| {name} | {bar.what} | {found:,g} | {bar.most:,g} | {met} | {made} |"
        RESULTS.write_text(table({**kept(), name: row}))
        print(row, flush=True)


if __name__ == "__main__":
    main()
