"""What a network makes of samples, and its error: noise over signal of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array
from npuflow.tune.walk import SampleWalk

Feed = Mapping[str, Array]


def noise(real: Sequence[Array], found: Sequence[Array]) -> float:
    """Energy of the differences over that of the float values, all samples together;
    huge where there is only noise.
    An array that has another shape than it should counts as zeros; where the float value is no number,
    nothing is compared."""
    sums = SignalToNoise()
    for a, b in zip(real, found, strict=True):
        sums.add(a, b)
    return sums.ratio


def outputs_of(graph: Graph, feeds: Sequence[Feed]) -> list[list[Array]]:
    """Per output its real values, sample by sample."""
    walk = SampleWalk(graph, feeds)
    walk.to(len(graph.nodes))
    return [walk.real(o, walk.values[o]) for o in graph.outputs if o in walk.values]


def output_error(real: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """Noise over signal, the mean over all outputs of real numbers."""
    parts = [noise(a, b) for a, b in zip(real, found, strict=True) if a and a[0].dtype.kind == "f"]
    return float(np.mean(parts)) if parts else 0.0
