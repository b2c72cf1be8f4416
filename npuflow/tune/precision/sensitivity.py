"""Noise at the outputs when one unit at a time is quantised, with an effort that is
bounded by multiply-accumulates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from npuflow.base.processors import PROCESSORS
from npuflow.ir.macs import pass_macs
from npuflow.strategies import NARROW, WIDE, Noise
from npuflow.tune import tuned
from npuflow.tune.precision.harness import Harness
from npuflow.tune.walk import pass_bytes

REPORTED = 16                             # runs of units that are measured between two reports of progress


def noises(harness: Harness, probes: int, progress: Callable[[int, int], None]) -> Noise:
    """[units, samples, outputs]. One sample shows which units matter; these are measured on more, and of the
    others the one sample stands for all. Of networks so large that even this is too much, neighbouring units
    are quantised together and share what they make of noise evenly.
    """
    count = len(harness.names)
    macs = pass_macs(harness.network.graph)
    passes = max(int(tuned.NOISE_MACS / macs), 8)
    groups = runs(harness, min(passes, count))
    samples = len(harness.judge.held[:probes])
    found = np.zeros((count, samples, len(harness.judge.parts)))
    first: dict[int, Noise] = {}
    for i, noise in enumerate(alone(harness, groups, NARROW, 1)):
        first[i] = found[list(groups[i])] = noise
        progress(i + 1, len(groups))
    affordable = max(passes - len(groups), 0) // max(samples - 1, 1)
    noisy = sorted(first, key=lambda i: -float(first[i].mean()) * len(groups[i]))
    again = min(affordable, round(tuned.NOISE_AGAIN * len(groups))) if samples > 1 else 0
    some = [groups[i] for i in noisy[:again]]
    for group, noise in zip(some, alone(harness, some, NARROW, samples), strict=True):
        found[list(group)] = noise
    return found


def alone(harness: Harness, groups: Sequence[Sequence[int]], level: int, samples: int) -> Iterator[Noise]:
    """[samples, outputs] of each run of units, divided evenly among them; several threads measure them."""
    each = pass_bytes(harness.network.graph)
    harness.ready(samples)
    for start in range(0, len(groups), REPORTED):
        yield from PROCESSORS.all_of(
            lambda group: harness.together(group, level, samples) / len(group),
            groups[start : start + REPORTED], each,
        )


def wide_noises(harness: Harness, probes: int) -> list[Noise]:
    """[samples, outputs] of every unit at its widest alone, by the same effort."""
    count = len(harness.names)
    passes = max(int(tuned.NOISE_MACS / pass_macs(harness.network.graph)), 8)
    found: list[Noise] = []
    groups = runs(harness, min(max(passes // max(probes, 1), 1), count))
    for group, noise in zip(groups, alone(harness, groups, WIDE, probes), strict=True):
        found += [noise] * len(group)
    return found


def runs(harness: Harness, count: int) -> list[Sequence[int]]:
    """So many runs of units of one kind."""
    activations = range(len(harness.network.groups))
    weights = range(len(activations), len(harness.names))
    total = max(len(harness.names), 1)
    found: list[Sequence[int]] = []
    for part in (activations, weights):
        pieces = max(min(len(part), round(count * len(part) / total)), 1 if part else 0)
        ends = np.linspace(0, len(part), pieces + 1).round().astype(int) if pieces else np.zeros(1, int)
        found += [part[a:b] for a, b in pairwise(ends) if b > a]
    return found
