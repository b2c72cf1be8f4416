"""Ledgers of noise: how much of the noise the causes sum up to, and whether a planted fault comes first.

    python benchmarks/ledger.py MODELS OUT [TASK ...] [--faults 20] [--samples 8] [--set KEY=VALUE ...]

MODELS, OUT and TASK as for defaults.py; widths are the recipe's own. For every task a line for its first
output as built: SQNR, the sum of all shares, the largest, and the sum of those below zero (they take noise
away). Then faults are planted, each the range of one tensor a quarter as wide, drawn from all tensors; one
that costs the output less than 3 dB is none, and the next is drawn. Counted are those whose tensor heads the
ledger.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from defaults import Task, recipe
from rigs import rig_of

from npuflow.engine.correct.bias import correct_biases
from npuflow.engine.precision.ledger import Ledger, ledger
from npuflow.engine.precision.problem import cost_of
from npuflow.engine.precision.rig import Rig
from npuflow.hw.target import Target
from npuflow.strategies import NARROW

WIDTH = 0.25  # of a range, planted
COSTS = 3.0  # dB of the output that make it a fault


def account(ready: Rig, target: Target) -> Ledger:
    """Of the first output, biases corrected as in a build."""
    made = ready.quantized((NARROW,) * len(ready.names)).graph
    half = len(ready.fit) // 2
    some = ready.fit[:half], ready.fit[half:]
    made = correct_biases(ready.network.reference, made, target.numerics, *some).graph
    return ledger(ready, made, cost_of(ready, target), 0, lambda done, count: None)


def level(ready: Rig) -> float:
    """Of the first output over all samples at the recipe's widths, by fake quantisation, in dB."""
    made = ready.mixed((NARROW,) * len(ready.names), ready.held)[ready.which[0]]
    truth = ready.truth[ready.which[0]]
    wrong = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(made, truth, strict=True))
    return float(-10 * np.log10(wrong / sum(float((b.astype(np.float64) ** 2).sum()) for b in truth)))


def planted(ready: Rig, target: Target, count: int) -> tuple[int, int, list[str]]:
    """Faults that head their ledgers, faults, and what headed the others."""
    usual, order = level(ready), np.random.default_rng(5).permutation(len(ready.network.groups))
    first, faults, others = 0, 0, list[str]()
    for k in order:
        group = [v for v in ready.network.groups[int(k)] if v in ready.ranges]
        spans = {v: tuple(WIDTH * end for end in ready.ranges[v]) for v in group}
        spoilt = replace(ready, ranges={**ready.ranges, **spans})
        if not group or level(spoilt) > usual - COSTS:
            continue
        entry = account(spoilt, target).entries[0]
        faults += 1
        first += entry.tensor in ready.network.groups[int(k)]
        if entry.tensor not in ready.network.groups[int(k)]:
            others.append(f"{group[0]}: {entry.cause} of {entry.tensor or 'all'}")
        if faults == count:
            break
    return first, faults, others


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    out = args.out.resolve()
    print(
        "| task | SQNR | causes | sum | largest | below 0 | faults | first | seconds |\n" + "| --- " * 9 + "|"
    )
    for name in args.tasks:
        start = time.process_time()
        path = recipe(Task(name, args.models.resolve(), out), out, "edge-4t")
        sets = [*args.set, "precision.strategy='none'"]
        ready, target = rig_of(path, out / "cache", sets, args.samples, 24)
        found = account(ready, target)
        first, faults, others = planted(ready, target, args.faults)
        parts = [one.share for one in found.entries]
        less = sum(share for share in parts if share < 0)
        cells = [name, f"{found.sqnr:.1f} dB", str(len(parts)), f"{100 * sum(parts):.1f} %"]
        cells += [f"{100 * parts[0]:.0f} %", f"{100 * less:.0f} %"]
        cells += [str(faults), str(first), f"{time.process_time() - start:.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        for one in others:
            print(f"  {one}", flush=True)


if __name__ == "__main__":
    main()
