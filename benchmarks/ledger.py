"""Ledgers of noise: how much of the noise the causes sum up to, and whether a planted fault comes first.

    python benchmarks/ledger.py MODELS OUT [TASK ...] [--faults 20] [--samples 8] [--set KEY=VALUE ...]
        [--inputs TASK ...]

MODELS, OUT and TASK as for defaults.py; widths are the recipe's own. For every task a line for its first
output as built: SQNR, the sum of all shares, the largest, and the sum of those below zero (they take noise
away). Then faults are planted, each the range of one tensor a quarter as wide, drawn from all tensors; one
that costs the output less than 3 dB is none, and the next is drawn. Counted are those whose tensor heads the
ledger.

--inputs: tasks of pictures or other real inputs, whose calibration samples are prepared wrongly: their first
and third channel swapped, and the mean of 0 to 255 not taken away, or taken away twice. These stand in front
of every ledger as what no width mends, if the check of inputs tells them from the evaluation's. Counted are
draws of so many calibration samples, and how often right samples are reported, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from defaults import Task, recipe
from harnesses import harness_of

from npuflow.hw.target import Target
from npuflow.input.data.judge import apart
from npuflow.input.data.profile import profiled
from npuflow.strategies import NARROW
from npuflow.tune.bias import correct_biases
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.ledger import Ledger, ledger
from npuflow.tune.precision.problem import cost_of

WIDTH = 0.25  # of a range, planted
COSTS = 3.0  # dB of the output that make it a fault


def account(ready: Harness, target: Target) -> Ledger:
    """Of the first output, biases corrected as in a build."""
    made = ready.built((NARROW,) * len(ready.names))
    half = len(ready.judge.fit) // 2
    some = ready.judge.fit[:half], ready.judge.fit[half:]
    made = correct_biases(ready.network.reference, made, target.numerics, *some).graph
    return ledger(ready, made, cost_of(ready, target), 0, lambda done, count: None)


def level(ready: Harness) -> float:
    """Of the first output over all samples at the recipe's widths, by fake quantisation, in dB."""
    part = ready.judge.parts[0]
    made = [part.of(one) for one in ready.mixed((NARROW,) * len(ready.names), ready.judge.held)[part.output]]
    truth = [part.of(one) for one in ready.judge.truth[part.output]]
    wrong = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(made, truth, strict=True))
    return float(-10 * np.log10(wrong / sum(float((b.astype(np.float64) ** 2).sum()) for b in truth)))


def planted(ready: Harness, target: Target, count: int) -> tuple[int, int, list[str]]:
    """Faults that head their ledgers, faults, and what headed the others."""
    usual, order = level(ready), np.random.default_rng(5).permutation(len(ready.network.groups))
    first, faults, others = 0, 0, list[str]()
    for k in order:
        group = [v for v in ready.network.groups[int(k)] if v in ready.ranges]
        spans = {v: tuple(WIDTH * end for end in ready.ranges[v]) for v in group}
        spoilt = replace(ready, network=ready.network.with_(ranges={**ready.ranges, **spans}))
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


def prepared(feeds: Sequence[Mapping[str, Any]], fault: str) -> list[Mapping[str, Any]]:
    """The samples as a wrong preprocessing gives them: inputs of pictures `swapped`, or real ones off by
    what their mean is."""
    known = {k: np.asarray(v) for k, v in feeds[0].items()}
    real = [k for k, v in known.items() if v.dtype.kind == "f" and v.size > 1]
    means = {k: np.mean([np.asarray(f[k]).mean() for f in feeds]) for k in real}
    lows = {k: min(np.asarray(f[k]).min() for f in feeds) for k in real}
    changed = []
    for feed in feeds:
        made = dict(feed)
        for k in real:
            x = np.asarray(feed[k])
            if fault == "swapped" and x.ndim == 4 and 3 in x.shape[1::2]:
                made[k] = np.flip(x, 1 if x.shape[1] == 3 else 3)
            elif fault == "mean":
                made[k] = x - lows[k] if lows[k] < -0.1 else x - 2 * means[k]
        changed.append(made)
    return changed


def spread(items: Iterable[Any]) -> list[Any]:
    """At most 128 of them, evenly spread."""
    kept, step = list[Any](), 1
    for i, one in enumerate(items):
        if i % step == 0:
            kept.append(one)
        if len(kept) == 128:
            kept, step = kept[::2], 2 * step
    return kept


def inputs_checked(task: Task, faults: int, size: int) -> None:
    """A line of the table: draws in which each fault is reported, and right samples are."""
    every = list(task.calibration())
    evaluation = (one[1] if isinstance(one, tuple) else one for one in task.score.samples(task.name))
    other = profiled((str(i), one) for i, one in enumerate(spread(evaluation)))
    rng = np.random.default_rng(5)
    found = {"right": 0, "swapped": 0, "mean": 0}
    pictures = any(np.ndim(v) == 4 and 3 in np.shape(v)[1::2] for v in every[0].values())
    for _ in range(faults):
        some = [every[i] for i in rng.choice(len(every), min(size, len(every)), replace=False)]
        for fault in found:
            made = profiled((str(i), one) for i, one in enumerate(prepared(some, fault)))
            said = " ".join(apart(made, other))
            found[fault] += ("other order" in said) if fault == "swapped" else bool(said)
    swapped = f"{found['swapped']} of {faults}" if pictures else "no colours"
    cells = [task.name, str(min(size, len(every))), swapped, f"{found['mean']} of {faults}"]
    print(f"| {' | '.join([*cells, str(found['right'])])} |", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--set", nargs="+", default=[])
    parser.add_argument("--inputs", nargs="+", default=[])
    args = parser.parse_args()
    out = args.out.resolve()
    if args.inputs:
        print("| task | samples | swapped | mean | right, reported |\n" + "| --- " * 5 + "|")
    for name in args.inputs:
        inputs_checked(Task(name, args.models.resolve(), out), args.faults, 64)
    print(
        "| task | SQNR | causes | sum | largest | below 0 | faults | first | seconds |\n" + "| --- " * 9 + "|"
    )
    for name in args.tasks:
        start = time.process_time()
        path = recipe(Task(name, args.models.resolve(), out), out, "edge-4t")
        sets = [*args.set, "precision.strategy='none'"]
        ready, target = harness_of(path, out / "cache", sets, args.samples, 24)
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
