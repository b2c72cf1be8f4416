"""Channels in another order, so that a pattern of zeros along them costs less; the network computes the same.

A layer that makes channels can make them in any order if all that reads them, or is coupled with them, goes
along. Groups of such channels are those of the removal of channels. Of every M consecutive channels of an
input, N weights of each output are kept: where channels that matter lie together, some of them go.

Source: J. Pool, C. Yu, "Channel permutations for N:M sparsity", NeurIPS 2021 (the order as a search that
exchanges channels); the loss of a weight is that of the optimal brain surgeon, w^2 / (2 [H^-1]_jj), by the
second moments H of what the layer reads (B. Hassibi, D. Stork, 1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.sparsity import Pattern
from npuflow.ir.types import Array
from npuflow.rounders import damped
from npuflow.tune import tuned
from npuflow.tune.channels.coupled import CoupledChannels, coupled, read_by
from npuflow.tune.channels.labels import ChannelLabels, Labels
from npuflow.tune.channels.removal import ReaderMoments
from npuflow.tune.channels.shrink import Cut, shrunk, without
from npuflow.tune.improve import Trial
from npuflow.tune.rounding.pruning import Prune, obstacle

Ints = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]

TINY = 1e-200


@dataclass(frozen=True)
class OrderedChannels:
    """The network with channels in a new order, and what the pattern costs each group, before and now."""

    graph: Graph
    trials: tuple[Trial, ...]


def order_channels(
    graph: Graph, known: Mapping[int, ReaderMoments], table: Prune, seed: int = 0
) -> OrderedChannels:
    """`known`: moments by node. Layers that the table does not prune have no say."""
    pattern, trials = table.groups, list[Trial]()
    if pattern is None:
        return OrderedChannels(graph, ())
    order = _Order(ChannelLabels.of(graph))
    for group in coupled(order.labels):
        name = group.name(graph)
        losses = [] if group.obstacle else list(_losses(order.labels, group, known, table, pattern))
        if not losses:
            why = group.obstacle or "no layer that is pruned reads it"
            trials.append(Trial("order", name, None, None, False, 0.0, why))
            continue
        places = np.arange(len(group.labels))
        before, after = exchanged(np.concatenate(losses, axis=1), places, pattern.of, pattern.keep, seed)
        made = {group.labels[at]: rank for rank, at in enumerate(places.tolist())}
        fits = after < before and order.take(made)
        why = "" if fits else "an operator between the layers depends on the order" * (after < before)
        trials.append(Trial("order", name, before, after, fits, 0.0, why))
    return OrderedChannels(without(graph, order.cut, {}) if order.rank else graph, tuple(trials))


def _losses(
    labels: ChannelLabels, group: CoupledChannels, known: Mapping[int, ReaderMoments], table: Prune,
    pattern: Pattern,
) -> Iterator[Singles]:
    """[channels, outputs] of every layer that is pruned and reads them in their order: what the loss of a
    weight costs, as a share of the layer's output."""
    for at in group.readers:
        one = known.get(at)
        if one is None or not table.asks(one.matrix.names, one.matrix.kind):
            continue
        source = one.matrix
        channels = source.tensor.shape[source.inner] if source.inner is not None else 0
        if obstacle(source.index.shape, channels, table, source.parts):
            continue
        read = read_by(labels, labels.graph.nodes[at])
        places = np.flatnonzero(np.isin(read, group.labels))
        aligned = places[0] % pattern.of == 0 and len(places) % pattern.of == 0
        if not aligned or not np.array_equal(read[places], group.labels) or np.ptp(places) >= len(places):
            continue
        own, gram = source.rows(source.tensor), one.fit.around(one.fit.mean if one.layer.bias else None)
        if table.method == "magnitude":
            losses, whole = own[0] ** 2, float((own**2).sum())
        else:
            losses = own[0] ** 2 / np.diagonal(np.linalg.inv(damped(gram, table.damp)[0]))
            whole = float((np.matmul(own, gram) * own).sum())
        yield (losses[:, places].T / max(whole, TINY)).astype(np.float32)


@dataclass
class _Order:
    """Places of channels by label; labels that are not named stay where they are."""

    labels: ChannelLabels
    rank: dict[int, int] = field(default_factory=dict)

    def take(self, rank: Mapping[int, int]) -> bool:
        """The places of some labels, if every operator that has them computes the same with them."""
        self.rank.update(rank)
        nodes = [n for n in self.labels.graph.nodes if self._touches(n, rank)]
        if all(self.holds(node) for node in nodes):
            return True
        for label in rank:
            del self.rank[label]
        return False

    def _touches(self, node: Node, rank: Mapping[int, int]) -> bool:
        known = [self.labels.values.get(v) for v in (*node.inputs, *node.outputs)]
        return any(one is not None and any(int(label) in rank for label in one.each) for one in known)

    def places(self, one: Labels) -> Ints:
        """Which index along the dimension comes to each place."""
        found = np.arange(len(one.each))
        moved = np.flatnonzero([int(label) in self.rank for label in one.each])
        ranks = [self.rank[int(one.each[at])] for at in moved]
        found[moved] = moved[np.argsort(ranks, kind="stable")]
        return found

    def cut(self, node: Node) -> Cut:
        """All of the node's channels in their places."""
        labels, out = self.labels, self.labels.values.get(node.outputs[0])
        return Cut(
            {i: [(one.axis, self.places(one)) for one in labels.consts.get((node.outputs[0], i), ())]
             for i in range(len(node.inputs))},
            {o: (one.axis, self.places(one)) for o in node.outputs if (one := labels.values.get(o))},
            None if out is None else self.places(out),
        )

    def holds(self, node: Node) -> bool:
        """Whether the operator gives the same, in order, for the same in order: tried out."""
        graph, rng = self.labels.graph, np.random.default_rng(0)
        site, cut = graph.site(node), self.cut(node)
        real, turned = list[Array | None](), list[Array | None]()
        for i, value in enumerate(site.inputs):
            array = site.consts[i]
            if value is not None and array is None:
                array = rng.normal(size=value.type.shape).astype(np.float32)
            one = self.labels.values.get(node.inputs[i])
            axes = cut.consts[i] if one is None else [(one.axis, self.places(one))]
            real.append(array)
            for axis, places in axes if array is not None else ():
                array = array if array is None else array.take(places, axis)
            turned.append(array)
        with np.errstate(all="ignore"):
            plain = node.op.clipped(*real)
            made = shrunk(node.op, cut, [o.shape for o in plain]).clipped(*turned)
        for name, a, b in zip(node.outputs, plain, made, strict=True):
            moved = cut.outputs.get(name)
            wanted = a if moved is None else a.take(moved[1], moved[0])
            if not np.allclose(wanted, b, 1e-3, 1e-4):
                return False
        return True


def exchanged(losses: Singles, places: Ints, size: int, keep: int, seed: int) -> tuple[float, float]:
    """Exchange channels between groups of `size` as long as that lowers the sum of what is lost, `places` in
    place; that sum before and after. `losses` [channels, outputs], of every group and output the least
    `size - keep` are lost."""
    tries = tuned.ORDER_TRIES * len(places)
    first, last = _climbed(np.ascontiguousarray(losses), places, size, size - keep, tries, seed)
    return float(first), float(last)


@compiled
def _climbed(
    losses: Singles, places: Ints, size: int, drop: int, tries: int, seed: int
) -> tuple[float, float]:
    np.random.seed(seed)
    count = len(places)
    costs = np.zeros(count // size)
    members, least = np.empty(size, np.int64), np.empty(drop, np.float32)
    for g in range(len(costs)):
        members[:] = places[g * size : (g + 1) * size]
        costs[g] = _lost(losses, members, least)
    first = costs.sum()
    for _ in range(tries):
        a, b = np.random.randint(count), np.random.randint(count)
        g, h = a // size, b // size
        if g == h:
            continue
        members[:] = places[g * size : (g + 1) * size]
        members[a % size] = places[b]
        x = _lost(losses, members, least)
        if x >= costs[g] + costs[h]:
            continue
        members[:] = places[h * size : (h + 1) * size]
        members[b % size] = places[a]
        y = _lost(losses, members, least)
        if x + y < costs[g] + costs[h]:
            places[a], places[b] = places[b], places[a]
            costs[g], costs[h] = x, y
    return first, costs.sum()


@compiled
def _lost(losses: Singles, members: Ints, least: Singles) -> float:
    """The sum over all outputs of the least numbers of a group, as many as `least` holds."""
    total, drop = 0.0, len(least)
    for o in range(losses.shape[1]):
        for k in range(drop):
            least[k] = np.inf
        for at in members:
            one, k = losses[at, o], drop - 1
            if one >= least[k]:
                continue
            while k > 0 and least[k - 1] > one:
                least[k] = least[k - 1]
                k -= 1
            least[k] = one
        for k in range(drop):
            total += least[k]
    return total
