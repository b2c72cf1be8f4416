"""Cycles and external bytes of networks on the shipped targets at tiling levels 0, 3
and 5, beside their lower bounds.

    python benchmarks/tiling.py [--networks A,B] [--targets A,B] [--levels 0,3,5] [--write]

Networks by their shapes alone, random weights. `clock` is the simulator's, `schedule` the time of the plan's
schedule (schedule). The bound of cycles is the larger of: every layer by its best mapping on all cores
with a free memory, and inputs, outputs and weights once over the external bus. `search` is processor time.
With --write the rows replace or join those of its study.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import study
from shapes import NETWORKS, RELU6, Shapes, planned, quantised, target_named

from npuflow import targets as shipped
from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.program.codegen.generate import generate
from npuflow.report.profile import profile

HEAD = (
    "| network | target | level | groups | Mcycles | bound | gap | schedule | MB | bound | ratio | search s "
    "|\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def efficientnet_lite0() -> tuple[Graph, dict[str, tuple[float, float]]]:
    b = Shapes()
    x, channels, n = b.conv("stem", b.input("image", (1, 3, 224, 224)), 32, 3, 2, RELU6), 32, 0
    for grow, kernel, first, out, blocks in (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ):
        for block in range(blocks):
            stride, before = first if block == 0 else 1, x
            y = b.conv(f"b{n}.expand", x, channels * grow, 1, 1, RELU6) if grow > 1 else x
            y = b.conv(f"b{n}.dw", y, channels * grow, kernel, stride, RELU6, depthwise=True)
            x = b.conv(f"b{n}.project", y, out, 1)
            if stride == 1 and channels == out:
                x = b.add(f"b{n}.add", OPS["add"](), x, before)
            channels, n = out, n + 1
    return b.graph(b.classifier(b.conv("head", x, 1280, 1, 1, RELU6), 1000)), b.ranges


MODELS = {**NETWORKS, "efficientnet_lite0": efficientnet_lite0}


def row(network: str, name: str, target: Target, graph: Graph, level: int) -> str:
    begin = time.process_time()
    try:
        plan = planned(graph, target, level)
        spent = time.process_time() - begin
        total = profile(generate(graph, plan, target)).totals()
    except NpuflowError as error:
        return f"| {network} | {name} | {level} | {error.message} | | | | | | | | |"
    cycles, bound, moved, least = total["cycles"], total["bound_cycles"], total["bytes"], total["bound_bytes"]
    return (
        f"| {network} | {name} | {level} | {len(plan.groups)} | {cycles / 1e6:.3f} | {bound / 1e6:.3f} | "
        f"{cycles / bound:.2f} "
        f"| {total['schedule_cycles'] / cycles - 1:+.1%} | {moved / 1e6:.2f} | {least / 1e6:.2f} | "
        f"{moved / least:.2f} "
        f"| {spent:.1f} |"
    )


def merged(path: Path, rows: dict[tuple[str, ...], str]) -> str:
    known = dict(rows)
    if path.exists():
        for line in path.read_text().splitlines():
            key = tuple(cell.strip() for cell in line.split("|")[1:4])
            if len(key) == 3 and key[0] in MODELS:
                known.setdefault(key, line)
    lines = [known[k] for k in sorted(known)]
    about = "\n".join(line.strip() for line in (__doc__ or "").strip().splitlines()[4:])
    return f"# Groups and tiles, by level\n\n{about}\n\n{HEAD}\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default=",".join(MODELS))
    every = sorted(p.stem for p in Path(str(shipped.__file__)).parent.glob("*.toml"))
    parser.add_argument("--targets", default=",".join(every))
    parser.add_argument("--levels", default="0,3,5")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    path = study.page(__file__)
    print(HEAD)
    for name in options.targets.split(","):
        target = target_named(name)
        for network in options.networks.split(","):
            graph = quantised(*MODELS[network](), target.numerics)
            rows = {}
            for level in options.levels.split(","):
                rows[network, name, level] = row(network, name, target, graph, int(level))
                print(rows[network, name, level], flush=True)
            if options.write:
                study.write(__file__, merged(path, rows))


if __name__ == "__main__":
    main()
