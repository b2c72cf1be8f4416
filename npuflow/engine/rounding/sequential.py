"""Layers rounded one after the other, each by what the rounded layers before it make of the samples.

The moments are those of the network as it stands; the wanted outputs are those of the float layer
in the float network, errors from above included: first the weights move to where least squares
has them, then they are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from npuflow.engine.correct.walk import SampleWalk
from npuflow.engine.quantize.config import Weights
from npuflow.engine.rounding.columns import Codes, ColumnObserver, columns, seed_of
from npuflow.engine.rounding.judge import with_weights
from npuflow.engine.rounding.layers import WeightedLayer
from npuflow.engine.rounding.moments import Moments, of_columns
from npuflow.engine.rounding.rounded import Aim, Matrix, RoundingResult, rounded
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.rounders import Rounder

Feed = Mapping[str, Array]


def sequential(
    graph: Graph, layers: Iterable[tuple[WeightedLayer, Matrix]], fit: Sequence[Feed], rounder: Rounder,
    scheme: Callable[[Matrix], Weights], numerics: Numerics, progress: Callable[[int], None],
) -> dict[str, RoundingResult]:
    """By weight, in order of the network."""
    chosen = [(one, source) for one, source in layers if rounder.wants(scheme(source).bits)]
    chosen.sort(key=lambda pair: pair[0].node)
    walk, found = SampleWalk(graph, fit), dict[str, RoundingResult]()
    observer = ColumnObserver(graph, [layer for layer, _ in chosen])
    real = [observer.columns(feed) for feed in fit]
    seeds = [seed_of(graph, feed) for feed in fit]
    for k, (layer, source) in enumerate(chosen):
        walk.to(layer.node)
        pairs = zip(walk.values[layer.source], seeds, strict=True)
        seen = [columns(graph, layer, array, seed) for array, seed in pairs]
        moments = of_columns(seen, layer.fraction)
        if moments is None:
            break
        aim = aimed([one[k] for one in real], seen, moments, bool(layer.bias))
        done = rounded(rounder, source, layer.bias, moments, None, scheme(source), numerics, aim)
        found[layer.weight] = done
        walk.graph = with_weights(walk.graph, {layer.weight: done.weight})
        progress(len(found))
    return found


def aimed(real: Sequence[Codes], seen: Sequence[Codes], moments: Moments, centred: bool) -> Aim:
    """What float columns have to do with those seen in the same places."""
    count, products = moments.count, 0.0
    sums = np.zeros_like(moments.sums)
    for one, other in zip(real, seen, strict=True):
        products = products + np.matmul(one.astype(np.float64).swapaxes(1, 2), other.astype(np.float64))
        sums += one.sum(1, dtype=np.int64)
    mean = np.ldexp(sums / count, -moments.fraction)
    cross = np.ldexp(np.asarray(products) / count, -2 * moments.fraction)
    return Aim(mean, cross - mean[:, :, None] * moments.mean[:, None, :] if centred else cross)
