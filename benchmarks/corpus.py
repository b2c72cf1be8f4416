"""Networks by architecture, with random weights: how much of each runs on the NPU, exactly, how fast.

    python benchmarks/corpus.py FOLDER [NETWORK ...] [--target edge-4t] [--again]

Compiles every .onnx file of the folder (`corpus_export.py` makes them) and writes rows to corpus.csv and the
table to its study.

Weights and the one sample are random, ranges are those of that sample. Exact: every integer tensor of the
program on the simulator equals the reference, without hazards. `gap` is to the lower bound of cycles.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import study
from models_targets import row
from shapes import of_file

HERE = Path(__file__).resolve()
COLUMNS = (
    "network", "target", "MMACs", "on the NPU", "nodes", "tensors", "Mcycles", "gap", "seconds", "result",
)


def page(rows: list[dict[str, str]]) -> str:
    whole = [r for r in rows if r["on the NPU"] == "100.0%"]
    exact = [r for r in rows if r["result"] == "exact"]
    first, *_, last = (__doc__ or "").strip().split("\n\n")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(r[c] for c in COLUMNS) + " |" for r in rows]
    host = [f"- {r['network']}: {r['host']}" for r in rows if r["host"]]
    found = (
        f"{len(rows)} networks: {len(whole)} with all multiply-accumulates on the NPU, {len(exact)} exact in "
        "every tensor."
    )
    table = [f"# {first}", last, found, "\n".join(lines)]
    return "\n\n".join([*table, "## What runs on the host, and why", "\n".join(host)]) + "\n"


def measured(path: Path, target: str) -> dict[str, str]:
    """The row of one network."""
    found = row(path.stem, of_file(str(path))[0], target)
    return {column: found[column] for column in (*COLUMNS, "host")}


def main(arguments: list[str]) -> None:
    target, again = "edge-4t", "--again" in arguments
    if "--target" in arguments:
        at = arguments.index("--target")
        target = arguments[at + 1]
        del arguments[at : at + 2]
    folder, *names = [a for a in arguments if a != "--again"]
    file, kept = HERE.with_suffix(".csv"), {}
    if file.exists():
        with file.open(newline="") as held:
            kept = {(r["network"], r["target"]): r for r in csv.DictReader(held)}
    for path in sorted(Path(folder).glob("*.onnx")):
        if (names and path.stem not in names) or ((path.stem, target) in kept and not again):
            continue
        kept[path.stem, target] = measured(path, target)
        print(*kept[path.stem, target].values(), sep="  ", flush=True)
        rows = [kept[key] for key in sorted(kept)]
        with file.open("w", newline="") as held:
            writer = csv.DictWriter(held, (*COLUMNS, "host"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        study.write(__file__, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
