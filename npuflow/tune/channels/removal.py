"""Removes channels by their effect on the layers that read them, which are refitted.

Source: B. Hassibi, D. Stork, "Second order derivatives for network pruning: optimal brain surgeon", 1993 (the
loss of a weight after the best change of the others; here of all weights that read a channel), on the second
moments of each layer's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import NpuflowError, RecipeError, Where
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.place.names import answers
from npuflow.rounders import Reals, damped
from npuflow.tune.channels.config import ChannelPruning
from npuflow.tune.channels.coupled import CoupledChannels, coupled, made_by, read_by
from npuflow.tune.channels.labels import ChannelLabels
from npuflow.tune.channels.shrink import Cut, without
from npuflow.tune.correct.trial import Trial
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.moments import Moments
from npuflow.tune.rounding.rounded import Matrix

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ROUNDS = 8  # in which the channels of a group are removed, losses taken anew in each
TINY = 1e-200


@dataclass
class ReadChannels:
    """A layer that reads channels: `weight` [outputs, terms], `gram` [terms, terms] of what it reads, `label`
    of each term; `keep`: the terms that are left."""

    weight: Reals
    gram: Reals
    label: Ints
    keep: Mask
    damp: float

    @classmethod
    def of(cls, weight: Reals, gram: Reals, label: Ints, damp: float) -> ReadChannels:
        return cls(weight, gram, label, np.ones(len(label), np.bool_), damp)

    def refitted(self) -> Reals:
        """The weights of the terms that are left, where the products come closest in least squares."""
        firm = damped(self.gram[None], self.damp)[0]
        along = (self.weight @ firm)[:, self.keep]
        return np.asarray(np.linalg.solve(firm[np.ix_(self.keep, self.keep)], along.T).T)

    def losses(self, labels: Sequence[int]) -> Reals:
        """Noise over signal of the layer's outputs that the loss of each of these channels adds, the other
        weights moved."""
        firm = damped(self.gram[None], self.damp)[0]
        left = np.flatnonzero(self.keep)
        inverse = np.linalg.inv(firm[np.ix_(left, left)])
        now = (self.weight @ firm)[:, left] @ inverse
        signal = max(float(((self.weight @ self.gram) * self.weight).sum()), TINY)
        own, found = self.label[left], np.zeros(len(labels))
        for k, label in enumerate(labels):
            at = np.flatnonzero(own == label)
            if len(at):
                part = now[:, at]
                solved = np.linalg.solve(inverse[np.ix_(at, at)], part.T)
                found[k] = max(float((part.T * solved).sum()), 0.0) / signal
        return found

    def noise(self, made: Reals, gram: Reals) -> float:
        """Noise over signal of the outputs with weights `made` of the terms that are left."""
        off = self.weight.copy()
        off[:, self.keep] -= made
        signal = max(float(((self.weight @ gram) * self.weight).sum()), TINY)
        return float(((off @ gram) * off).sum()) / signal


def removed_count(count: int, share: float, multiple: int) -> int:
    """How many of so many channels go: the share, those that are kept a multiple."""
    kept = -(-round(count * (1 - share)) // multiple) * multiple
    return max(0, count - max(kept, min(multiple, count)))


def by_moments(labels: Sequence[int], readers: Sequence[ReadChannels], count: int) -> list[int]:
    """The channels whose loss costs the layers that read them least; these lose them."""
    gone: list[int] = []
    for turn in range(ROUNDS):
        left = [label for label in labels if label not in set(gone)]
        now = (count * (turn + 1)) // ROUNDS - len(gone)
        if now <= 0:
            continue
        losses = np.sum([one.losses(left) for one in readers], axis=0)
        some = [left[i] for i in np.argsort(losses, kind="stable")[:now]]
        gone += some
        drop(readers, some)
    return gone


def by_magnitude(labels: Sequence[int], norms: Mapping[int, float], count: int) -> list[int]:
    """The channels of the smallest norms."""
    return sorted(labels, key=lambda label: (norms[label], label))[:count]


def drop(readers: Sequence[ReadChannels], labels: Sequence[int]) -> None:
    """Channels that the layers no longer read."""
    for one in readers:
        one.keep &= ~np.isin(one.label, labels)


def norms(rows: Sequence[tuple[Reals, Ints]]) -> dict[int, float]:
    """Of every channel the norm of the weights that make it, each layer's over their mean; `rows`: by layer
    the weights [outputs, terms] and the label of each output."""
    found: dict[int, float] = {}
    for weight, labels in rows:
        size = np.square(weight).sum(1)
        for label, one in zip(labels.tolist(), size / max(float(size.mean()), TINY), strict=True):
            found[label] = found.get(label, 0.0) + float(one)
    return found


@dataclass(frozen=True)
class ReaderMoments:
    """A layer with the second moments of what it reads, on samples that it is fitted to and on others."""

    layer: WeightedLayer
    matrix: Matrix
    fit: Moments
    held: Moments | None


@dataclass(frozen=True)
class RemovedChannels:
    """The network without the channels, what was done group by group, and masks of the weights: what is left
    of each, by its name in the whole network. `plain`: the same with weights as they were."""

    graph: Graph
    plain: Graph
    trials: tuple[Trial, ...] = ()
    masks: Mapping[str, Array] = field(default_factory=dict)


def remove_channels(
    graph: Graph, known: Mapping[int, ReaderMoments], table: ChannelPruning
) -> RemovedChannels:
    """Take from every group that the table means its share of channels. `known`: moments by node."""
    labels = ChannelLabels.of(graph)
    groups = [_held(graph, group, known, table) for group in coupled(labels)]
    if wrong := list(_refusals(graph, groups, table)):
        raise RecipeError(wrong)
    return _Removal(labels, known, table).done(groups)


def _held(
    graph: Graph, group: CoupledChannels, known: Mapping[int, ReaderMoments], table: ChannelPruning
) -> CoupledChannels:
    """A group with what its readers' moments say against it."""
    if group.obstacle or (table.method == "magnitude" and not table.refit):
        return group
    lacking = [i for i in group.readers if i not in known or known[i].layer.parts > 1]
    if not lacking:
        return group
    many = lacking[0] in known
    why = "has more terms than [moments] most_terms" if many else "is not on the NPU or has no moments"
    return replace(group, obstacle=f"{graph.nodes[lacking[0]].name} reads it, which {why}")


def _refusals(
    graph: Graph, groups: Sequence[CoupledChannels], table: ChannelPruning
) -> Iterator[NpuflowError]:
    """Faults for layers that the table names one by one, and whose channels cannot be removed."""
    named = [*(("prune.channels.layers", one) for one in table.layers)]
    for i, rule in enumerate(table.overrides):
        named += [(f"prune.channels.overrides[{i}].layers", one) for one in rule.layers if rule.share]
    for key, name in named:
        for group in groups:
            own = [names for names, _ in group.layers(graph) if name in names]
            if own and group.obstacle:
                yield RecipeError(
                    f'the output channels of "{name}" cannot be removed',
                    where=Where(key=key, node=name), because=group.obstacle,
                    hint="leave the layer out; `npuflow show pruned RECIPE --log` lists the groups that can "
                    "lose channels", code="NF-QUANT-106",
                )
    possible = [one for one in groups if not one.obstacle]
    skipped = any(answers(table.skip, *one) for group in groups for one in group.layers(graph))
    if groups and not possible and not skipped:
        yield RecipeError(
            "no channels of this network can be removed", where=Where(key="prune.channels"),
            because=f"{groups[0].name(graph)}: {groups[0].obstacle}",
            hint='[prune] pattern = "2:4" sets single weights to zero instead', code="NF-QUANT-107",
        )


@dataclass
class _Removal:
    labels: ChannelLabels
    known: Mapping[int, ReaderMoments]
    table: ChannelPruning
    readers: dict[int, ReadChannels] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def done(self, groups: Sequence[CoupledChannels]) -> RemovedChannels:
        graph, trials = self.labels.graph, []
        for group in groups:
            share = self.table.share_of(group.layers(graph))
            count = removed_count(len(group.labels), share, self.table.multiple)
            name = group.name(graph)
            if group.obstacle or not count:
                why = group.obstacle or self._too_few(len(group.labels), share)
                trials.append(Trial("prune", name, None, None, False, 0.0, why))
                continue
            self._choose(group, count)
            trials.append(Trial("prune", name, None, None, True, count / len(group.labels)))
        plain = without(graph, self._cut, {})
        weights = self._refitted(trials)
        made = without(graph, self._cut, weights) if weights else plain
        return RemovedChannels(made, plain, tuple(trials), dict(self._masks()))

    def _too_few(self, channels: int, share: float) -> str:
        if not share:
            return "the table leaves it out"
        multiple = self.table.multiple
        return f"a share of {share:g} of {channels} channels leaves no smaller multiple of {multiple}"

    def _cut(self, node: Node) -> Cut:
        return self.labels.cut(node, self.gone)

    def _choose(self, group: CoupledChannels, count: int) -> None:
        readers = [self._reader(i) for i in group.readers if i in self.known]
        if self.table.method == "moments":
            self.gone |= set(by_moments(group.labels, readers, count))
            return
        graph, rows = self.labels.graph, []
        for i in group.makers:
            node = graph.nodes[i]
            weight = graph.const(node.inputs[1])
            assert weight is not None
            rows.append((np.asarray(node.op.rows(weight), np.float64), made_by(self.labels, node)))
        some = by_magnitude(group.labels, norms(rows), count)
        drop(readers, some)
        self.gone |= set(some)

    def _reader(self, index: int) -> ReadChannels:
        if index not in self.readers:
            one, node = self.known[index], self.labels.graph.nodes[index]
            weight = one.matrix.rows(one.matrix.tensor)[0]
            label = read_by(self.labels, node)
            terms = np.repeat(label, weight.shape[1] // len(label))
            gram = one.fit.around(one.fit.mean if one.layer.bias else None)[0]
            self.readers[index] = ReadChannels.of(weight, gram, terms, self.table.damp)
        return self.readers[index]

    def _refitted(self, trials: list[Trial]) -> dict[str, dict[int, Array]]:
        """Weights and biases of the layers that lose inputs: the bias takes up what changes in the mean."""
        found: dict[str, dict[int, Array]] = {}
        for index, one in sorted(self.readers.items()):
            if one.keep.all():
                continue
            known, node = self.known[index], self.labels.graph.nodes[index]
            old = one.weight[:, one.keep]
            made = one.refitted() if self.table.refit else old
            whole = np.zeros_like(one.weight)
            whole[:, one.keep] = made
            consts = {1: known.matrix.tensor_of(whole[None], "float64")}
            if known.layer.bias:
                at = node.inputs.index(known.layer.bias)
                bias = self.labels.graph.const(known.layer.bias)
                assert bias is not None
                shift = known.matrix.gain * ((one.weight - whole) @ known.fit.mean[0])
                consts[at] = bias.astype(np.float64) + shift.reshape(bias.shape)
            found[node.outputs[0]] = consts
            judge = known.fit if known.held is None else known.held
            gram = judge.around(known.fit.mean if known.layer.bias else None)[0]
            share = 1 - np.count_nonzero(one.keep) / len(one.keep)
            noise = one.noise(old, gram), one.noise(made, gram)
            trials.append(Trial("refit", node.name, *noise, True, share))
        return found

    def _masks(self) -> Iterator[tuple[str, Array]]:
        graph = self.labels.graph
        for node in graph.nodes:
            for i, one in self._cut(node).consts.items():
                array = graph.const(node.inputs[i])
                if array is None or not any(len(kept) < array.shape[axis] for axis, kept in one):
                    continue
                mask = np.ones(array.shape, np.bool_)
                for axis, kept in one:
                    mask &= np.isin(np.arange(array.shape[axis]), kept).reshape(
                        [-1 if d == axis else 1 for d in range(array.ndim)]
                    )
                yield node.inputs[i], mask
