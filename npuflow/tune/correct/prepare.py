"""Equalisation and absorption, each kept only where the quantised network gets closer to the float one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.noise import decibels
from npuflow.tune.correct.absorb import absorb
from npuflow.tune.correct.assess import QuantisationSetup
from npuflow.tune.correct.channel_ends import channel_ends
from npuflow.tune.correct.config import Choice, Equalize
from npuflow.tune.correct.equalize import equalise
from npuflow.tune.correct.groups import ChannelGroup, bounded, groups, linear
from npuflow.tune.correct.rotate import Rotated, rotate
from npuflow.tune.correct.rotate_values import RotatedValues, rotate_values
from npuflow.tune.correct.smooth import SmoothedActivation, smooth
from npuflow.tune.improve import NETWORK, Acceptance, Proposal, Proposer, Trial, improve

Real = npt.NDArray[np.float64]
# noise over signal by which two forms of one function may differ in float32
SAME = 1e-6


NamedGroup = ChannelGroup | Rotated | RotatedValues | SmoothedActivation
"""Values whose channels are changed together, by the layers around them."""
Ends = dict[str, tuple[Real, Real]]
Tried = Proposal[Graph] | Sequence[Trial]


@dataclass(frozen=True)
class Prepared:
    """A float network of the same function, and what was tried."""

    graph: Graph
    trials: tuple[Trial, ...]


def prepare(graph: Graph, table: Equalize, setup: QuantisationSetup) -> Prepared:
    """Try what the table asks for, one change after the other."""
    return Prepared(*improve(graph, _Changes(table, setup).proposers(), setup.error))


@dataclass(frozen=True)
class _Changes:
    """What may be proposed for a network."""

    table: Equalize
    setup: QuantisationSetup

    def proposers(self) -> Iterator[Proposer[Graph]]:
        """Those that the table asks for, in order."""
        table = self.table
        if table.rotate != "off":
            yield from (self.rotated, self.rotated_values)
        if table.scale != "off":
            yield from (self.equalised, self.equalised_values)
        if table.absorb != "off":
            yield self.absorbed
        if table.smooth != "off":
            yield self.smoothed

    def rotated(self, graph: Graph) -> Tried:
        made = rotate(graph)
        changes = [None if made.obstacle else float(made.folded)]
        return self._proposal("rotate", self.table.rotate, made.graph, [made], changes)

    def rotated_values(self, graph: Graph) -> Tried:
        made = rotate_values(graph)
        return self._proposal("rotate values", self.table.rotate, made.graph, made.places, made.changes)

    def equalised(self, graph: Graph) -> Tried:
        table = self.table
        ends = self._clipped_ends(graph)
        made = equalise(graph, self.setup.target.numerics, table.rounds, table.limit, ends=ends)
        changes = [_factor(s) for s in made.scales]
        return self._proposal("equalize", self.table.scale, made.graph, made.groups, changes)

    def equalised_values(self, graph: Graph) -> Tried:
        """By the ranges of values, too. What stands in the way is as for `equalised`, which tells it."""
        table, numerics = self.table, self.setup.target.numerics
        clipped = self._clipped_ends(graph)
        names = [v for group in groups(graph, numerics, clipped) if not group.obstacle for v in group.values]
        if not names:
            return ()
        ends = channel_ends(graph, names, self.setup.judge.fit)
        peaks = {name: np.maximum(np.abs(low), np.abs(high)) for name, (low, high) in ends.items()}
        made = equalise(graph, numerics, table.rounds, table.limit, peaks, ends if clipped else {})
        changes = [_factor(s) for s in made.scales]
        free = [k for k, change in enumerate(changes) if change]
        scaled, by = [made.groups[k] for k in free], [changes[k] for k in free]
        return self._proposal("equalize values", table.scale, made.graph, scaled, by)

    def _clipped_ends(self, graph: Graph) -> Ends:
        """What channels reach between layers whose clips the target has for all channels alike."""
        if self.setup.target.numerics.per_channel_clamp:
            return {}
        clipped = [node.outputs[0] for node in graph.nodes if bounded(node) and linear(graph, node)]
        return channel_ends(graph, clipped, self.setup.judge.fit)

    def absorbed(self, graph: Graph) -> Tried:
        made = absorb(graph, self.setup.target.numerics, self.setup.judge.fit)
        changes = [_largest(s) for s in made.shifts]
        return self._proposal("absorb", self.table.absorb, made.graph, made.groups, changes)

    def smoothed(self, graph: Graph) -> Tried:
        setup = self.setup
        made = smooth(graph, setup.candidate.scheme, setup.target.numerics, setup.judge.fit, self.table.limit)
        changes = [_factor(s) for s in made.scales]
        return self._proposal("smooth", self.table.smooth, made.graph, made.places, changes)

    def _proposal(
        self, what: str, choice: Choice, changed: Graph, groups: Sequence[NamedGroup],
        changes: Sequence[float | None],
    ) -> Tried:
        parts = tuple(
            Trial(what, group.name, None, None, bool(change), change or 0.0, group.obstacle)
            for group, change in zip(groups, changes, strict=True)
            if change or group.obstacle
        )
        if not any(changes):
            return parts
        drift = self.setup.judge.score(changed).error
        if drift > SAME:
            why = f"in float32 the outputs would change by {-decibels(1.0, drift):.0f} dB of their energy"
            refused = (replace(part, kept=False) for part in parts)
            return (*refused, Trial(what, NETWORK, None, None, False, 0.0, why))
        return Proposal(what, changed, rule=Acceptance(asked=choice == "on"), parts=parts)


def _factor(scale: Real | None) -> float | None:
    """The largest, up or down."""
    return None if scale is None else float(np.exp(np.abs(np.log(scale)).max()))


def _largest(shift: Real | None) -> float | None:
    return None if shift is None else float(shift.max())
