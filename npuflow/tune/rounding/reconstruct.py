"""Blocks of layers reconstructed: codes and biases descend along the gradient of the block's output error.

Sources: Y. Li, R. Gong, X. Tan, Y. Yang, P. Hu, Q. Zhang, F. Yu, W. Wang, S. Gu, "BRECQ: pushing the limit
of post-training quantization by block reconstruction", 2021, for the block as the unit and its input from the
rounded blocks in front of it; I. Hubara, Y. Nahshan, Y. Hanani, R. Banner, D. Soudry, "Improving post
training neural quantization: layer-wise calibration and integer programming" (AdaQuant), 2021, for biases
that descend along. As in AdaRound a weight takes a step to a neighbouring code or not: to the one against the
gradient at the start, which may be of any method. The error is a plain mean of squares, without BRECQ's
weights from the Fisher information. Scales stay. A block is kept only where its output on held-out samples
comes closer to the float network's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np

from npuflow.base.tables import Config, Range
from npuflow.ir.graph import Graph
from npuflow.ir.sparsity import Mask
from npuflow.ir.types import Array, QuantType
from npuflow.rounders import RoundedWeight
from npuflow.rounders._relaxed import Descending, Relaxed
from npuflow.tune import tuned
from npuflow.tune.error import noise
from npuflow.tune.improve import Proposal, Trial, improve
from npuflow.tune.judge import Judge
from npuflow.tune.rounding.block_pass import BlockPass, LayerRows
from npuflow.tune.rounding.blocks import LayerBlock, blocks
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.rounded import Matrix
from npuflow.tune.rounding.weights import with_weights
from npuflow.tune.walk import SampleWalk


@dataclass(frozen=True)
class Descent(Config, table="blocks"):
    """How blocks are reconstructed with `[round] mode = "blocks"`."""

    steps: Annotated[int, Range(1, 100_000)] = 100
    """Of a block's descent, each along the gradient of some samples."""
    batch: Annotated[int, Range(1, 1024)] = 8
    """Samples a step."""
    rate: Annotated[float, Range(1e-6, 10)] = 0.2
    """Of the descent: how far a weight's variable moves in a step."""
    push: Annotated[float, Range(0, 1000)] = 10.0
    """Weight of the regulariser against the error at the start, by weight."""
    layers: Annotated[int, Range(1, 64)] = 3
    """That plain layers one after another are put together to; a residual block is one, however long."""
    seed: int = 0
    """Of the order of the samples."""


@dataclass
class CodedLayer:
    """A layer on its way: reals behind its codes, in codes less their zero points, and its bias."""

    name: str
    source: Matrix
    start: RoundedWeight
    affine: LayerRows
    bias: Array | None
    keep: Mask | None = None              # weights that may be other than zero

    def __post_init__(self) -> None:
        self.unit, self.zero = self._spread(self.start.quant)
        self.first = self.source.rows(self.start.codes) - self.zero
        self.way = np.zeros_like(self.first)
        self.steps = Relaxed.of(self.first, np.zeros(self.first.shape, np.bool_))
        shift = self.start.shift
        flat = None if self.bias is None else self.bias.astype(np.float64).reshape(-1)
        own = flat if flat is None or shift is None else flat + shift.reshape(-1)
        self.offset = None if own is None or not self.start.bias else Descending(own.astype(np.float32))
        self.reach = float(np.sqrt((self.unit**2).mean()))

    def towards(self, slope: LayerRows) -> None:
        """Every weight may move by one code, against the slope at the start."""
        self.way = -np.sign(slope.rows.astype(np.float64))
        there = self.first + self.way
        free = (self.way != 0) & (there >= self.start.quant.lo - self.zero)
        free &= there <= self.start.quant.hi - self.zero
        free = free if self.keep is None else free & self.keep
        self.steps = Relaxed.of(np.full(self.first.shape, tuned.BLOCK_SHARE), free)

    def _spread(self, quant: QuantType) -> tuple[Array, Array]:
        scale, zero = quant.spread(self.start.codes.shape)
        whole = np.broadcast_to(scale, self.start.codes.shape)
        return self.source.rows(whole), self.source.rows(np.broadcast_to(zero, self.start.codes.shape))

    def now(self) -> LayerRows:
        taken = self.steps.taken
        rows = self.unit * (self.first + self.way * taken)
        return LayerRows(rows.astype(np.float32), self.affine.bias if self.offset is None else self.offset.at)

    def descend(self, slope: LayerRows, gain: float, table: Descent, done: float) -> None:
        own = (gain * slope.rows * self.unit * self.way).astype(np.float32)
        self.steps.descend(own, table.rate, table.push, done)
        if self.offset is not None and slope.bias is not None:
            self.offset.move(slope.bias, table.rate * tuned.BLOCK_BIAS_RATE * self.reach * (1 - done))

    def made(self) -> RoundedWeight:
        codes = self.first + self.way * (self.steps.taken > 0.5)
        tensor = self.source.tensor_of(codes + self.zero, str(self.start.codes.dtype))
        if self.offset is None or self.bias is None:
            return replace(self.start, codes=tensor)
        shift = self.offset.at.astype(np.float64) - self.bias.astype(np.float64).reshape(-1)
        return replace(self.start, codes=tensor, shift=shift)


def reconstructed(
    judge: Judge, layers: Sequence[tuple[WeightedLayer, Matrix]], weights: Mapping[str, RoundedWeight],
    table: Descent, progress: Callable[[int, int], None],
    kept: Mapping[str, Mask] = MappingProxyType({}),
) -> tuple[dict[str, RoundedWeight], tuple[Trial, ...]]:
    """Go through the network block by block, each reading what the blocks before it make as they were kept.
    `weights`: where codes start; layers without any are as the graph has them. `kept`: of pruned weights,
    those that are not zero."""
    graph = judge.graph
    own = {one.node: (one, source) for one, source in layers if one.weight in weights and one.parts == 1}
    start, parts = _Rounded(weights, with_weights(graph, weights)), list(blocks(graph, own, table.layers))
    walks = [SampleWalk(graph, judge.fit), SampleWalk(graph, judge.held)]           # of the float network
    coded = [SampleWalk(start.graph, judge.fit), SampleWalk(start.graph, judge.held)]

    def better(k: int, block: LayerBlock, now: _Rounded) -> Proposal[_Rounded]:
        for walk in coded:
            walk.graph = now.graph
        for walk in (*walks, *coded):
            walk.to(block.first)
        wanted, truth = (one.ahead(block.stop, [block.result])[block.result] for one in walks)
        chosen = {at: _coded(graph, *own[at], weights, kept) for at in block.layers}
        before = noise(truth, coded[1].ahead(block.stop, [block.result])[block.result])
        made = _descended(graph, block, chosen, coded[0].values[block.source], wanted, table)
        codes = {**now.weights, **made}
        tried = _Rounded(codes, with_weights(graph, codes))
        after = noise(truth, coded[1].ahead(block.stop, [block.result], tried.graph)[block.result])
        progress(k + 1, len(parts))
        names = ", ".join(graph.nodes[at].name for at in block.layers)
        return Proposal("block", tried, names, errors=(before, after))

    done, trials = improve(start, (partial(better, *part) for part in enumerate(parts)))
    return dict(done.weights), trials


class _Rounded(NamedTuple):
    """Codes, and the float network with what they stand for."""

    weights: Mapping[str, RoundedWeight]
    graph: Graph


def _coded(
    graph: Graph, layer: WeightedLayer, source: Matrix, weights: Mapping[str, RoundedWeight],
    kept: Mapping[str, Mask],
) -> CodedLayer:
    walk = BlockPass(graph, LayerBlock(layer.node, layer.node + 1, layer.source, "", ()))
    start = weights[layer.weight]
    bias, keep = graph.const(start.bias), kept.get(layer.weight)
    return CodedLayer(layer.weight, source, start, walk.affine(layer.node), bias, keep)


def _descended(
    graph: Graph, block: LayerBlock, layers: Mapping[int, CodedLayer], sources: Sequence[Array],
    wanted: Sequence[Array], table: Descent,
) -> dict[str, RoundedWeight]:
    """Codes and biases after the descent over a block."""
    walk, rng = BlockPass(graph, block), np.random.default_rng((table.seed, block.first))
    pairs = list(zip(sources, wanted, strict=True))
    error, slopes = _slopes(walk, pairs, layers)
    if error <= 0:
        return {one.name: one.start for one in layers.values()}
    for at, slope in slopes.items():
        layers[at].towards(slope)
    # As much error as weights at the start: the regulariser is stated for that.
    gain = sum(one.first.size for one in layers.values()) * len(pairs) / error
    order = np.zeros(0, np.int64)
    for step in range(table.steps):
        while len(order) < min(table.batch, len(pairs)):
            order = np.concatenate([order, rng.permutation(len(pairs))])
        batch, order = order[: table.batch], order[table.batch :]
        _, slopes = _slopes(walk, [pairs[k] for k in batch], layers)
        for at, slope in slopes.items():
            layers[at].descend(slope, gain / len(batch), table, step / table.steps)
    return {one.name: one.made() for one in layers.values()}


def _slopes(
    walk: BlockPass, pairs: Sequence[tuple[Array, Array]], layers: Mapping[int, CodedLayer]
) -> tuple[float, dict[int, LayerRows]]:
    """The squared error of a block's outputs, all samples together, and its gradients."""
    now, total, error = {at: one.now() for at, one in layers.items()}, dict[int, LayerRows](), 0.0
    for source, wanted in pairs:
        made = walk.forward(source, now)
        off = made[walk.block.result] - wanted
        error += float((off.astype(np.float64) ** 2).sum())
        for at, one in walk.backward(made, 2 * off, now).items():
            total[at] = _plus(total[at], one) if at in total else one
    return error, total


def _plus(a: LayerRows, b: LayerRows) -> LayerRows:
    bias = None if a.bias is None or b.bias is None else a.bias + b.bias
    return LayerRows(a.rows + b.rows, bias)
