"""The gap between planned cycles and their lower bound, of every network on every shipped target.

    python benchmarks/gaps.py [NETWORK | MODEL.onnx ...] [TARGET ...] [--again | --bounds] [--file FILE]

Rows go to gaps.csv, the table to its study. What has a row is not planned again, unless --again says so;
--bounds computes only the bounds of the rows that there are. Networks are those of models_targets.py,
planned at the default level.

Cycles are the NPU's, by the schedule; nothing is simulated. The bound is explained in
docs/explanation/bounds.md; `binds` is the largest of its terms: the engines, the bus, the longest chain of
dependent layers, or weights that come late.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import study
from models_targets import KNOWN, TARGETS, network
from shapes import NETWORKS, for_target, target_named

from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.schedule.bounds import bounds_of
from npuflow.schedule.machine import Machine
from npuflow.search.plan import fits_shared, plan_network
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.target import scheme
from tests.networks.subjects import Subject, subject

HERE = Path(__file__).resolve()
COLUMNS = ("network", "target", "groups", "Mcycles", "bound", "binds", "gap", "MB", "seconds", "origin")


def integers(one: Subject, target: Target) -> Graph:
    placed = place(one.graph, target)
    return quantize_graph(
        one.graph, placed, one.ranges, scheme(target), target.numerics
    ).graph


def row(one: Subject, target_name: str) -> dict[str, str]:
    target, begin = target_named(target_name), time.process_time()
    try:
        graph = integers(one, target)
        plan = plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics)
    except NpuflowError as fault:
        return {"network": one.name, "target": target_name, "origin": f"refused: {fault}".splitlines()[0]}
    return {
        "network": one.name,
        "target": target_name,
        "groups": str(len(plan.groups)),
        "Mcycles": f"{plan.cycles / 1e6:.4f}",
        "bound": f"{plan.bounds.cycles / 1e6:.4f}",
        "binds": plan.bounds.binds,
        "gap": f"{plan.gap:.2f}",
        "MB": f"{plan.bytes / 1e6:.2f}",
        "seconds": f"{time.process_time() - begin:.1f}",
        "origin": plan.origin,
    }


def bounded(one: Subject, known: dict[str, str]) -> dict[str, str]:
    """A row with its bound as it is now."""
    if not known["Mcycles"]:
        return known
    target = target_named(known["target"])
    machine = Machine(target.compute, target.memory, target.dma)
    graph = integers(one, target)
    machine = replace(machine, inside=fits_shared(graph, machine.memory))
    bounds = bounds_of(graph, machine, target.numerics)
    gap = float(known["Mcycles"]) * 1e6 / bounds.cycles
    return known | {"bound": f"{bounds.cycles / 1e6:.4f}", "binds": bounds.binds, "gap": f"{gap:.2f}"}


def page(rows: list[dict[str, str]]) -> str:
    first, *rest = (__doc__ or "").strip().split("\n\n")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(r[c] or "" for c in COLUMNS) + " |" for r in rows]
    gaps = sorted(float(r["gap"]) for r in rows if r["gap"])
    reported = f"{len(gaps)} plans: median gap {median(gaps):.2f}, worst {gaps[-1]:.2f}; "
    reported += (
        ", ".join(f"{sum(g > most for g in gaps)} above {most}" for most in (1.25, 1.5, 2.0, 3.0)) + "."
    )
    return "\n\n".join([f"# {first}", rest[-1], reported, "\n".join(lines)]) + "\n"


def main(arguments: list[str]) -> None:
    targets = [a for a in arguments if a in TARGETS] or TARGETS
    networks = [a for a in arguments if a in KNOWN or a in NETWORKS or a.endswith(".onnx")] or KNOWN
    file, kept = HERE.with_suffix(".csv"), {}
    if "--file" in arguments:
        file = Path(arguments[arguments.index("--file") + 1])
    if file.exists():
        with file.open(newline="") as held:
            kept = {(r["network"], r["target"]): r for r in csv.DictReader(held)}
    only, again = "--bounds" in arguments, "--again" in arguments
    for name in networks:
        label = Path(name).stem
        todo = [t for t in targets if only == ((label, t) in kept) or (again and not only)]
        shared = subject(label, network(name)) if todo else None
        for target in todo:
            assert shared is not None
            graph = for_target(shared.graph, target_named(target))
            one = shared if graph.nodes == shared.graph.nodes else subject(label, graph)
            found = bounded(one, kept[label, target]) if only else row(one, target)
            print(*found.values(), sep="  ", flush=True)
            kept[label, target] = {c: found.get(c, "") for c in COLUMNS}
        rows = [kept[key] for key in sorted(kept)]
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        if "--file" not in arguments:
            study.write(__file__, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
