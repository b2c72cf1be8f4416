"""External bytes and cycles of ResNet-50 and MobileNetV2 shapes on the ethos-u65-256 target beside Vela's.

    python benchmarks/vela.py [LEVEL ...] [--write]

Vela 5.2.0, `vela --accelerator-config ethos-u65-256`, int8 TFLite models of the same networks with random
weights, its own estimate: total external bytes of an inference (it packs weights; npuflow's count is of plain
int8 weights) and cycles. Inputs and outputs count on both sides. `search` is processor time.
"""

from __future__ import annotations

import sys
import time

import study
from shapes import NETWORKS, planned, quantised, target_named

from npuflow.program.codegen.generate import generate
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare

VELA = {"mobilenet_v2": (11.8, 3.55), "resnet50": (113.8, 22.3)}      # MB, million cycles


def row(name: str, level: int, graphs: dict[str, object]) -> str:
    target = target_named("ethos-u65-256")
    if name not in graphs:
        graphs[name] = quantised(*NETWORKS[name](), target.numerics)
    begin = time.process_time()
    plan = planned(graphs[name], target, level)  # type: ignore[arg-type]
    searched = time.process_time() - begin
    found = profile(generate(graphs[name], plan, target))  # type: ignore[arg-type]
    total = found.totals()
    loaded = sum(r["const_bytes"] for r in found.layers())
    theirs, cycles = VELA[name]
    return (
        f"| {name} | {level} | {total['bytes'] / 1e6:.2f} | {loaded / 1e6:.2f} | {theirs} | "
        f"{total['bytes'] / 1e6 / theirs:.2f} "
        f"| {total['bound_bytes'] / 1e6:.2f} | {total['cycles'] / 1e6:.2f} | {cycles} | "
        f"{total['bound_cycles'] / 1e6:.2f} "
        f"| {compare(found)[0].error:+.1%} | {searched:.1f} |"
    )


def main(arguments: list[str]) -> None:
    levels = [int(a) for a in arguments if a.isdigit()] or [0, 3]
    lines = [
        ("| network | level | MB | constants MB | Vela MB | ratio | bound MB | Mcycles | Vela | bound | "
        "schedule | search s |"),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    graphs: dict[str, object] = {}
    for name in NETWORKS:
        for level in levels:
            lines.append(row(name, level, graphs))
            print("\n".join(lines[-1:]), flush=True)
    if "--write" in arguments:
        about = (__doc__ or "").strip().splitlines()
        text = "# Beside Vela 5.2.0\n\n" + "\n".join(about[4:]) + "\n\n" + "\n".join(lines) + "\n"
        study.write(__file__, text)


if __name__ == "__main__":
    main(sys.argv[1:])
