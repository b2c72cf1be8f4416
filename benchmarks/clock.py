"""The schedule time beside the clock on every target: whole network, term by term, worst
group; and what the search went by.

    python benchmarks/clock.py [NETWORK | MODEL.onnx ...] [TARGET ...] [--level N]

Rows go to clock.csv, the table to its study.

Bars: whole network 5 %, worst group 15 %, of its engines' terms and of the cycles that it adds to the
program (groups below 1 % of the program's cycles are judged by their terms alone). `searched`: the sums by
which the search ranks candidates, no bar. ResNet-50, MobileNetV2 and EfficientNet-Lite0 by their shapes
and ONNX's light models (densenet121, ...), random weights; other networks from files; with made-up ranges
or those of one random sample.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path

import study
from models_targets import LIGHT, network
from shapes import NETWORKS, measured, of_file, quantised, target_named

from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.report.profile.schedule import GROUP_BAR, TOTAL_BAR, compare, worst_groups
from tests.networks.subjects import subject

HERE = Path(__file__).resolve()
COLUMNS = (
    "network",
    "target",
    "cycles",
    "schedule",
    "error",
    "array",
    "vector",
    "set-up",
    "bus",
    "worst group",
    "its error",
    "searched",
    "gap",
    "MB",
    "bound MB",
)


def found_as(name: str) -> tuple[Graph, Mapping[str, tuple[float, float]]]:
    """A network and the ranges of its values."""
    if name in LIGHT:
        one = subject(name, network(name))
        return one.graph, one.ranges
    return of_file(name) if name.endswith(".onnx") else NETWORKS[name]()


def row(
    name: str, graph: Graph, ranges: Mapping[str, tuple[float, float]], target_name: str, level: int
) -> dict[str, str]:
    target = target_named(target_name)
    found = measured(quantised(graph, ranges, target.numerics, place(graph, target).on_npu), target, level)
    total, terms, (worst, *_) = found.totals(), {c.name: c for c in compare(found)}, worst_groups(found, 1)
    errors = {
        name: f"{terms[name].error:+.1%}" if name in terms else ""
        for name in ("array", "vector", "set-up", "bus")
    }
    return {
        "network": Path(name).stem,
        "target": target_name,
        "cycles": f"{total['cycles']:,.0f}",
        "schedule": f"{total['schedule_cycles']:,.0f}",
        "error": f"{terms['cycles'].error:+.1%}",
        **errors,
        "worst group": worst.name,
        "its error": f"{worst.error:+.1%}",
        "searched": f"{compare(found, 'searched')[0].error:+.1%}",
        "gap": f"{total['cycles'] / total['bound_cycles']:.2f}",
        "MB": f"{total['bytes'] / 1e6:.2f}",
        "bound MB": f"{total['bound_bytes'] / 1e6:.2f}",
    }


def table(rows: list[dict[str, str]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(r[c] for c in COLUMNS) + " |" for r in rows]
    over = [r for r in rows if abs(float(r["error"].rstrip("%"))) > 100 * TOTAL_BAR]
    far = [r for r in rows if abs(float(r["its error"].rstrip("%"))) > 100 * GROUP_BAR]
    ending = (
        f"\n{len(rows)} programs; {len(over)} networks beyond {TOTAL_BAR:.0%}, {len(far)} groups beyond "
        f"{GROUP_BAR:.0%}.\n"
    )
    return "\n".join(lines) + "\n" + ending


def main(arguments: list[str]) -> None:
    level = int(arguments[arguments.index("--level") + 1]) if "--level" in arguments else 3
    known = sorted(p.stem for p in (HERE.parent.parent / "npuflow" / "targets").glob("*.toml"))
    targets = [a for a in arguments if a in known] or known
    names = [a for a in arguments if a in NETWORKS or a in LIGHT or a.endswith(".onnx")] or list(NETWORKS)
    file = HERE.with_suffix(".csv")
    kept = {}
    if file.exists():
        with file.open(newline="") as held:
            kept = {(r["network"], r["target"]): r for r in csv.DictReader(held)}
    for name in names:
        graph, ranges = found_as(name)
        for target in targets:
            kept[Path(name).stem, target] = found = row(name, graph, ranges, target, level)
            print(*found.values(), sep="  ", flush=True)
            rows = [kept[key] for key in sorted(kept) if key[1] in known]
            with file.open("w", newline="") as out:
                writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            about = (__doc__ or "").strip().split("\n\n")
            study.write(__file__, f"# {about[0]}\n\n{about[-1]}\n\n{table(rows)}")


if __name__ == "__main__":
    main(sys.argv[1:])
