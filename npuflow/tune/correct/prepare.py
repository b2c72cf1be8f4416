"""Equalisation and absorption, each kept only where the quantised network gets closer to the float one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.noise import decibels
from npuflow.ir.types import Array
from npuflow.tune.correct.absorb import absorb
from npuflow.tune.correct.assess import QuantisationSetup, loss
from npuflow.tune.correct.channel_ends import channel_ends
from npuflow.tune.correct.config import Choice, Equalize
from npuflow.tune.correct.equalize import equalise
from npuflow.tune.correct.error import output_error, outputs_of
from npuflow.tune.correct.groups import ChannelGroup, groups
from npuflow.tune.correct.rotate import Rotated, rotate
from npuflow.tune.correct.rotate_values import RotatedValues, rotate_values
from npuflow.tune.correct.smooth import SmoothedActivation, smooth
from npuflow.tune.correct.trial import NETWORK, Trial

Real = npt.NDArray[np.float64]
# noise over signal by which two forms of one function may differ in float32
SAME = 1e-6


NamedGroup = ChannelGroup | Rotated | RotatedValues | SmoothedActivation
"""Values whose channels are changed together, by the layers around them."""


@dataclass(frozen=True)
class Prepared:
    """A float network of the same function, and what was tried."""

    graph: Graph
    trials: tuple[Trial, ...]


@dataclass
class _Judge:
    """Remembers the loss of the network as it stands."""

    graph: Graph
    terms: QuantisationSetup
    truth: Sequence[Sequence[Array]]
    known: float | None = None

    def decides(self, name: str, choice: Choice, changed: Graph) -> Trial:
        """The trial of the whole change; if it is kept, the changed network is the one that stands."""
        drift = output_error(self.truth, outputs_of(changed, self.terms.held))
        if drift > SAME:
            why = f"in float32 the outputs would change by {-decibels(1.0, drift):.0f} dB of their energy"
            return Trial(name, NETWORK, None, None, False, 0.0, why)
        if self.known is None:
            self.known = loss(self.graph, self.truth, self.terms)
        before, after = self.known, loss(changed, self.truth, self.terms)
        kept = choice == "on" or after < before
        if kept:
            self.graph, self.known = changed, after
        return Trial(name, NETWORK, before, after, kept)


def prepare(graph: Graph, table: Equalize, terms: QuantisationSetup) -> Prepared:
    """Try what the table asks for, one change after the other."""
    judge = _Judge(graph, terms, outputs_of(graph, terms.held))
    reported: list[Trial] = []
    numerics = terms.target.numerics
    if table.rotate != "off":
        turned = rotate(judge.graph)
        changes = [None if turned.obstacle else float(turned.folded)]
        reported += _tried(judge, "rotate", table.rotate, turned.graph, [turned], changes)
        mixed = rotate_values(judge.graph)
        reported += _tried(judge, "rotate values", table.rotate, mixed.graph, mixed.places, mixed.changes)
    if table.scale != "off":
        scaled = equalise(judge.graph, numerics, table.rounds, table.limit)
        reported += _tried(
            judge, "equalize", table.scale, scaled.graph, scaled.groups, [_factor(s) for s in scaled.scales]
        )
        if any(_factor(s) for s in scaled.scales):
            known = _peaks(judge.graph, numerics, terms)
            scaled = equalise(judge.graph, numerics, table.rounds, table.limit, known)
            changes = [_factor(s) for s in scaled.scales]
            reported += _tried(
                judge, "equalize values", table.scale, scaled.graph, scaled.groups, changes, obstacles=False
            )
    if table.absorb != "off":
        lower = absorb(judge.graph, numerics, terms.fit)
        reported += _tried(
            judge, "absorb", table.absorb, lower.graph, lower.groups, [_largest(s) for s in lower.shifts]
        )
    if table.smooth != "off":
        found = smooth(judge.graph, terms.quantize, numerics, terms.fit, table.limit)
        changes = [_factor(s) for s in found.scales]
        reported += _tried(judge, "smooth", table.smooth, found.graph, found.places, changes)
    return Prepared(judge.graph, tuple(reported))


def _tried(
    judge: _Judge,
    name: str,
    choice: Choice,
    changed: Graph,
    groups: Sequence[NamedGroup],
    changes: Sequence[float | None],
    obstacles: bool = True,
) -> list[Trial]:
    """`obstacles`: whether what stands in the way is reported."""
    if not any(changes):
        return [Trial(name, g.name, None, None, False, 0.0, g.obstacle) for g in groups if g.obstacle]
    whole = judge.decides(name, choice, changed)
    parts = [
        Trial(name, g.name, None, None, whole.kept and bool(change), change or 0.0, g.obstacle)
        for g, change in zip(groups, changes, strict=True)
        if change or (g.obstacle and obstacles)
    ]
    return [*parts, whole]


def _peaks(graph: Graph, numerics: Numerics, terms: QuantisationSetup) -> dict[str, Real]:
    """The largest magnitude of each channel of all values that can be scaled."""
    names = [v for group in groups(graph, numerics) if not group.obstacle for v in group.values]
    ends = channel_ends(graph, names, terms.fit)
    return {name: np.maximum(np.abs(low), np.abs(high)) for name, (low, high) in ends.items()}


def _factor(scale: Real | None) -> float | None:
    """The largest, up or down."""
    return None if scale is None else float(np.exp(np.abs(np.log(scale)).max()))


def _largest(shift: Real | None) -> float | None:
    return None if shift is None else float(shift.max())
