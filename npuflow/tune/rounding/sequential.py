"""Layers rounded one after the other, each by what the rounded layers before it make of the samples.

The moments are those of the network as it stands; the wanted outputs are those of the float layer
in the float network, errors from above included: first the weights move to where least squares
has them, then they are rounded. A layer whose outputs are added to others makes up for what those lack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from npuflow.rounders import Reals, RoundedWeight
from npuflow.tune.judge import Judge
from npuflow.tune.rounding.columns import Codes, ColumnObserver, Places, columns
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.moments import Moments, of_columns
from npuflow.tune.rounding.pruning import LayerMask
from npuflow.tune.rounding.rounded import (
    FloatMoments,
    Matrix,
    RoundingResult,
    RoundingScheme,
    Wanted,
    rounded,
)
from npuflow.tune.rounding.weights import with_weights
from npuflow.tune.walk import SampleWalk


def sequential(
    judge: Judge, layers: Collection[tuple[WeightedLayer, Matrix]], scheme: RoundingScheme,
    progress: Callable[[int], None],
    masks: Mapping[str, LayerMask] = MappingProxyType({}),
    known: Mapping[str, RoundedWeight] = MappingProxyType({}),
) -> dict[str, RoundingResult]:
    """By weight, in order of the network. `masks`: of layers that are pruned; `known`: codes of other layers,
    which stay."""
    graph, fit = judge.graph, judge.fit
    ways = {one.weight: scheme.of(source) for one, source in layers}
    chosen = [
        (one, source)
        for one, source in layers
        if one.weight in masks or ways[one.weight].rounder.wants(ways[one.weight].weights.bits)
    ]
    chosen.sort(key=lambda pair: pair[0].node)
    fixed = {name: one for name, one in known.items() if name in graph.values}
    walk, floats = SampleWalk(with_weights(graph, fixed), fit), SampleWalk(graph, fit)
    found = dict[str, RoundingResult]()
    observer = ColumnObserver(graph, [layer for layer, _ in chosen])
    real = [observer.columns(feed) for feed in fit]
    for k, (layer, source) in enumerate(chosen):
        walk.to(layer.node)
        own = [one[k] for one in real]
        pairs = zip(walk.read(layer.node, layer.source), own, strict=True)
        seen = [columns(graph, layer, array, one.chosen) for array, one in pairs]
        moments = of_columns(seen, layer.fraction)
        if moments is None:
            break
        lacking = missing(walk, floats, layer, [one.chosen.places for one in own])
        aim = aimed([one.codes for one in own], seen, moments, bool(layer.bias), lacking)
        wanted = Wanted(aim, masks.get(layer.weight))
        done = rounded(ways[layer.weight], source, layer.bias, moments, None, wanted)
        found[layer.weight] = done
        walk.graph = with_weights(walk.graph, {layer.weight: done.weight})
        progress(len(found))
    return found


def missing(
    walk: SampleWalk, floats: SampleWalk, layer: WeightedLayer, spots: Sequence[Places]
) -> list[Reals] | None:
    """What the other operand of the addition behind a layer lacks of the float network's, by sample
    [groups, places, outputs], for the layer to make up for; None: no addition follows, or its other operand
    is not there yet."""
    graph = floats.graph
    node = graph.nodes[layer.node]
    readers = [one for one in graph.nodes if node.outputs[0] in one.inputs]
    if len(readers) != 1 or readers[0].op.algebra != "sum" or node.op.clip is not None:
        return None
    if not layer.bias or layer.parts > 1:
        return None
    other = next((v for v in readers[0].inputs if v != node.outputs[0]), "")
    # what a loop adds comes from the same step, or from the one before it: the walk is in front of all
    if other not in walk.values or graph.type(other) != graph.type(node.outputs[0]):
        return None
    floats.to(layer.node)
    found = []
    for a, b, at in zip(floats.values[other], walk.values[other], spots, strict=True):
        off = np.moveaxis(a.astype(np.float64) - b, 1, -1).reshape(-1, a.shape[1])[at]
        found.append(np.moveaxis(off.reshape(len(off), node.op.column_groups(), -1), 1, 0))
    return found


def aimed(
    real: Sequence[Codes], seen: Sequence[Codes], moments: Moments, centred: bool,
    lacking: Sequence[Reals] | None = None,
) -> FloatMoments:
    """What float columns have to do with those seen in the same places; `lacking`: what else the layer's
    outputs are to make up for there."""
    count, products = moments.count, 0.0
    sums = np.zeros_like(moments.sums)
    for one, other in zip(real, seen, strict=True):
        products = products + np.matmul(one.astype(np.float64).swapaxes(1, 2), other.astype(np.float64))
        sums += one.sum(1, dtype=np.int64)
    mean = np.ldexp(sums / count, -moments.fraction)
    cross = np.ldexp(np.asarray(products) / count, -2 * moments.fraction)
    cross = cross - mean[:, :, None] * moments.mean[:, None, :] if centred else cross
    if lacking is None:
        return FloatMoments(mean, cross)
    off, total = np.concatenate(lacking, axis=1), 0.0
    for part, other in zip(lacking, seen, strict=True):
        total = total + np.matmul(part.swapaxes(1, 2), other.astype(np.float64))
    shift = off.mean(1)
    more = np.ldexp(np.asarray(total) / count, -moments.fraction)
    more = more - shift[:, :, None] * moments.mean[:, None, :] if centred else more
    return FloatMoments(mean, cross, more, shift)
