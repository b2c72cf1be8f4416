"""Layers rounded one after the other, each by what the rounded layers before it make of the samples.

The moments are those of the network as it stands, the wanted outputs those of the float layer on the same numbers; the bias
takes up the difference to the mean that the layer has in the float network, errors from above included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from npuflow.engine.correct.walk import Walk
from npuflow.engine.quantize.config import Weights
from npuflow.engine.rounding.columns import columns, seed_of
from npuflow.engine.rounding.judge import with_weights
from npuflow.engine.rounding.layers import Layer
from npuflow.engine.rounding.moments import Moments, of_columns
from npuflow.engine.rounding.rounded import Done, Matrix, rounded
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.rounding import Rounder
from npuflow.ir.types import Array

Feed = Mapping[str, Array]


def sequential(
    graph: Graph, layers: Iterable[tuple[Layer, Matrix, Moments]], fit: Sequence[Feed], rounder: Rounder,
    scheme: Callable[[Matrix], Weights], numerics: Numerics, progress: Callable[[int], None],
) -> dict[str, Done]:  # fmt: skip
    """By weight, in order of the network. The moments given are those in float: their means are what biases aim at."""
    walk, found = Walk(graph, fit), dict[str, Done]()
    seeds = [seed_of(graph, feed) for feed in fit]
    for layer, source, real in sorted(layers, key=lambda one: one[0].node):
        wanted = scheme(source)
        if not rounder.wants(wanted.bits):
            continue
        walk.to(layer.node)
        seen = zip(walk.values[layer.source], seeds, strict=True)
        moments = of_columns((columns(graph, layer, array, seed) for array, seed in seen), layer.fraction)
        if moments is None:
            break
        done = rounded(rounder, source, layer.bias, moments, None, wanted, numerics, real.mean)
        found[layer.weight] = done
        walk.graph = with_weights(walk.graph, {layer.weight: done.weight})
        progress(len(found))
    return found
