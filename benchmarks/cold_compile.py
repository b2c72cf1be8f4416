"""Cold compile: seconds from a model's file to its program, without data, cache or simulation, and the gap.

    python benchmarks/cold_compile.py FILE.onnx ... [--target edge-4t --target bm1684x]

Every network and target in a process of its own; modules are imported before the watch starts. Seconds are of
the processor; ranges are made up. `parse`: the file, rewritten; `quantize`: the integer graph; `search`: the
tiling; `codegen`: commands and constants. `gap`: cycles by the clock over the lower bound. `corpus_export.py`
makes resnet50_224, vit_tiny and bert_base. Rows go to cold_compile.csv, the table to its study.

`bus`, `array`, `vector`: the least work of each, in Mcycles, which the bound has overlap without end. `in
turn`: the gap to array and vector unit one after the other, or to the bus where that is more.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import study

HERE = Path(__file__).resolve()
TARGETS = ["edge-4t", "bm1684x"]
COLUMNS = (
    "network", "target", "parse", "quantize", "search", "codegen", "seconds", "Mcycles", "gap", "bus",
    "array", "vector", "in turn", "on the NPU",
)


def compiled(file: str, name: str) -> list[str]:
    """The row of one network, measured in this process."""
    from shapes import of_file, planned, target_named

    from npuflow.ir.macs import graph_macs
    from npuflow.place.partition import npu_share
    from npuflow.place.place import place
    from npuflow.program.codegen.generate import generate
    from npuflow.report.profile import profile
    from npuflow.schedule.bounds import BoundedNetwork
    from npuflow.schedule.machine import Machine
    from npuflow.testing.quantised import quantize_graph
    from npuflow.testing.target import scheme

    target, marks = target_named(name), [time.process_time()]
    graph, ranges = of_file(file)
    marks.append(time.process_time())
    placed = place(graph, target)
    found = quantize_graph(
        graph, placed, ranges, scheme(target), target.numerics
    ).graph
    marks.append(time.process_time())
    plan = planned(found, target)
    marks.append(time.process_time())
    program = generate(found, plan, target)
    marks.append(time.process_time())
    times = [b - a for a, b in pairwise(marks)]
    cycles = profile(program).cycles
    net = BoundedNetwork(found, Machine(target.compute, target.memory, target.dma), target.numerics)
    layers = [net.least(n) for part in net.parts for n in part if n not in net.moving]
    work = [min(layer.ways, key=lambda way: way.array + way.vector) for layer in layers]
    array, vector = sum(w.array for w in work), sum(w.vector for w in work)
    least = plan.bounds.traffic, array, vector
    return [
        Path(file).stem, name, *(f"{t:.1f}" for t in (*times, sum(times))), f"{cycles / 1e6:.3f}",
        f"{cycles / plan.bounds.cycles:.2f}", *(f"{n / 1e6:.3f}" for n in least),
        f"{cycles / max(plan.bounds.traffic, array + vector):.2f}",
        f"{npu_share(found, graph_macs(graph)):.1%}",
    ]


def page(rows: list[list[str]]) -> str:
    first, *rest = (__doc__ or "").strip().split("\n\n")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n\n".join([f"# {first}", *rest[-2:], "\n".join(lines)]) + "\n"


def main(arguments: list[str]) -> None:
    if arguments[0] == "--one":
        print(*compiled(*arguments[1:]), sep="\t")
        return
    targets = [b for a, b in pairwise(arguments) if a == "--target"] or TARGETS
    file, kept = HERE.with_suffix(".csv"), {}
    if file.exists():
        with file.open(newline="") as held:
            kept = {(row[0], row[1]): row for row in list(csv.reader(held))[1:]}
    for one in [a for a in arguments if a.endswith(".onnx")]:
        for target in targets:
            line = [sys.executable, str(HERE), "--one", one, target]
            said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
            row = said.strip().splitlines()[-1].split("\t")
            kept[row[0], row[1]] = row
            print(*row, sep="  ", flush=True)
            rows = [kept[key] for key in sorted(kept)]
            with file.open("w", newline="") as held:
                csv.writer(held, lineterminator="\n").writerows([COLUMNS, *rows])
            study.write(__file__, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
