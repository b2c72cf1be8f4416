"""Inferences a second on parts of several cores: an inference on each core, or all cores on one of them.

    python benchmarks/throughput.py [NETWORK | MODEL.onnx ...] [--target aries] [--again]

Rows go to throughput.csv, the table to its study. `one core`: the program of a single core, inferences
overlapped. `data-parallel`: that program on every core; `times` is their quotient, `ms` the latency. `bus` is
the most that the bus leaves room for, by the bytes of an inference. `all`: the program of all cores together.

The clock runs over the command streams of three inferences a core; the period is from the end of the second
to the end of the third. Weights are random and ranges made up: cycles do not depend on them.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path

import study
from shapes import NETWORKS, of_file, planned, quantised, target_named

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.report.throughput import Throughput, throughput

HERE = Path(__file__).resolve()
COLUMNS = (
    "network", "target", "one core /s", "data-parallel /s", "times", "bus", "ms", "all /s", "all ms",
    "MB each", "seconds",
)


def network(name: str) -> tuple[Graph, dict[str, tuple[float, float]]]:
    return NETWORKS[name]() if name in NETWORKS else of_file(name)


def figures(graph: Graph, target: Target, instances: int) -> Throughput:
    return throughput(compiled(graph, target), instances)


def compiled(graph: Graph, target: Target) -> Program:
    return generate(graph, planned(graph, target), target)


def measured(name: str, target: Target) -> dict[str, str]:
    """The row of one network."""
    begin, cores = time.process_time(), target.compute.cores
    real, ranges = network(name)
    graph = quantised(real, ranges, target.numerics, place(real, target).on_npu)
    one = replace(target, compute=replace(target.compute, cores=1))
    program = compiled(graph, one)
    many, whole = throughput(program, cores), figures(graph, target, 1)
    clock = target.compute.clock_mhz * 1e6
    room = target.memory.external_bandwidth * clock / many.bytes / (clock / many.alone)
    return {
        "network": Path(name).stem, "target": target.name, "one core /s": f"{clock / many.alone:,.0f}",
        "data-parallel /s": f"{many.per_second:,.0f}", "times": f"{many.speed_up:.2f}",
        "bus": f"{min(room, cores):.2f}", "ms": f"{many.latency_ms:.3f}",
        "all /s": f"{whole.per_second:,.0f}", "all ms": f"{whole.latency_ms:.3f}",
        "MB each": f"{many.bytes / 1e6:.2f}", "seconds": f"{time.process_time() - begin:.0f}",
    }


def page(rows: list[dict[str, str]]) -> str:
    first, *rest = (__doc__ or "").strip().split("\n\n")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(r[c] for c in COLUMNS) + " |" for r in rows]
    return "\n\n".join([f"# {first}", *rest[1:], "\n".join(lines)]) + "\n"


def main(arguments: list[str]) -> None:
    name, again = "aries", "--again" in arguments
    if "--target" in arguments:
        at = arguments.index("--target")
        name = arguments[at + 1]
        del arguments[at : at + 2]
    names = [a for a in arguments if a != "--again"] or list(NETWORKS)
    file, kept = HERE.with_suffix(".csv"), {}
    if file.exists():
        with file.open(newline="") as held:
            kept = {(r["network"], r["target"]): r for r in csv.DictReader(held)}
    for one in names:
        if (Path(one).stem, name) in kept and not again:
            continue
        kept[Path(one).stem, name] = found = measured(one, target_named(name))
        print(*found.values(), sep="  ", flush=True)
        rows = [kept[key] for key in sorted(kept)]
        with file.open("w", newline="") as held:
            writer = csv.DictWriter(held, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        study.write(__file__, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
