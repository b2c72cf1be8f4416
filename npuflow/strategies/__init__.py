"""Precision strategies, one a file: units with widths, and what a mixture of widths costs and keeps.

Noun: `Strategy`.
Public: `Strategy`, `Problem`, `Output`, `Budget`.
Does not know: networks: a strategy sees numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.base.tables import EntryConfig

STRATEGIES = Registry("strategies", "npuflow.strategies")

# The recipe's width, the target's widest integers, float on the host. From OWN on: the widths that
# [precision] lists, then the float types of the NPU that it lists, in their order.
NARROW, WIDE, FLOAT, OWN = 0, 1, 2, 3
DROP_DB = 100.0                           # dB for all of a metric, where its drop is what counts
Levels = tuple[int, ...]                  # one of these for every unit
Noise = npt.NDArray[np.float64]           # [samples, outputs]: noise over signal


@dataclass(frozen=True)
class Unit:
    """What has a width of its own: activations that share one type, or the weight of a layer.

    `noise`: noise over signal at the outputs when this unit alone is quantised, at the recipe's width.
    `neighbours`: units whose cost depends on this one's width. `candidates`: the levels that a search
    may give it, fewest bits first, float types of the NPU last. `place`: the node of the graph that first
    writes or holds it. `floats`: the candidates that are float types; layers that read, write or hold the
    unit then compute in it.
    """

    name: str
    kind: Literal["activation", "weight"]
    noise: Noise
    neighbours: tuple[int, ...]
    sensitive: bool = False               # squares, quotients, roots: operators that are widened first
    candidates: tuple[int, ...] = (NARROW, WIDE)
    place: int = 0
    floats: tuple[int, ...] = ()


@dataclass(frozen=True)
class Output:
    """How close one output comes to the float network's on held-out samples.

    `sqnr`: in dB, all samples pooled. `low`: in dB, what four samples of five reach. `agreement`: share of
    equal answers (arg-max, thresholded mask); None where the output has no answers. `compared`: how many
    answers that is of, with one more that is wrong in the share, as few samples do not prove 99 %; 0: the
    share is as it is counted. `drop`: of a metric on labelled samples, what it has lost; None: a plain
    output. `whole`: its values are equal or not, as indices are, and its dB say nothing.
    """

    name: str
    sqnr: float
    low: float
    agreement: float | None = None
    drop: float | None = None
    compared: int = 0
    whole: bool = False

    @property
    def equal(self) -> float | None:
        """The share of equal answers among those that were compared, for eyes."""
        if self.agreement is None or not self.compared:
            return self.agreement
        return round(self.agreement * (self.compared + 1)) / self.compared


@dataclass(frozen=True)
class Budget:
    """What every output must reach: so many dB, or so large a share of equal answers. With `max_drop` only
    what a metric on labelled samples may lose counts; a hundredth of it then stands for a decibel."""

    sqnr_db: float = 20.0
    agreement: float = 0.99
    # below which layers may be left in float on the host; None: below sqnr_db
    host_db: float | None = None
    max_drop: float | None = None

    def holds(self, outputs: Sequence[Output]) -> bool:
        return all(self.met(one) for one in outputs)

    def met(self, one: Output) -> bool:
        if self.max_drop is not None or one.drop is not None:
            return one.drop is None or self.max_drop is None or one.drop <= self.max_drop
        answers = one.agreement is not None and one.agreement >= self.agreement
        return answers or min(one.sqnr, one.low) >= self.sqnr_db

    def level(self, outputs: Sequence[Output]) -> float:
        """The least dB of an output that does not meet the budget, or of all outputs where all do."""
        drops = [one.drop for one in outputs if one.drop is not None]
        if self.max_drop is not None and drops:
            return self.sqnr_db - DROP_DB * (max(drops) - self.max_drop)
        missing = [one for one in outputs if not self.met(one)] or list(outputs)
        return min((min(one.sqnr, one.low) for one in missing), default=200.0)


@dataclass(frozen=True)
class Goal:
    """What a mixture is to have least of, and upper limits by the same names.

    `cycles`: estimated, as a multiple of those with the recipe's widths. `bytes`: of weights, as a share of
    8 bits for each. `bits`: the average width of a weight. `energy`: estimated, as `cycles`.
    """

    minimise: Literal["cycles", "bytes", "bits", "energy"] = "cycles"
    limits: Mapping[str, float] = field(default_factory=dict)


class Problem(Protocol):
    """A network, a target and a budget, as a strategy sees them."""

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def goal(self) -> Goal: ...

    @property
    def floats_last(self) -> bool:
        """Whether float types are tried only where integers miss the budget or leave layers to the host."""

    def price(self, levels: Levels, what: str | None = None) -> float:
        """What a mixture costs, in the unit of `Goal.minimise` or of another of its names."""

    def noise(self, unit: int, level: int) -> Noise:
        """As `Unit.noise`, at another level."""

    def cycles(self, levels: Levels) -> float:
        """Estimated cycles of the whole network, host parts included."""

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        """Cycles that another level of one unit adds."""

    def measured(self, levels: Levels) -> Sequence[Output]:
        """Outputs of the float network with fake quantisation: quick, biases not corrected."""

    def promises(self, levels: Levels) -> bool:
        """Whether `measured` holds the budget: quicker to know where it does not."""

    def steady(self, levels: Levels) -> float:
        """The same in dB where noise adds up, before a last Softmax or Sigmoid: the worst output's mean over
        samples. It grows with every unit that is widened, where outputs behind an arg-max jump."""

    def verified(self, levels: Levels) -> Sequence[Output]:
        """Outputs of the quantised network, biases corrected as the recipe says: the judge."""

    def holds(self, levels: Levels) -> bool:
        """Whether `verified` holds the budget: quicker to know where it does not."""

    def floor(self, levels: Levels | None = None) -> Noise:
        """Noise over signal with every unit at some levels, or wide."""

    def wide_noise(self) -> Sequence[Noise]:
        """As `Unit.noise`, at the widest integers."""


class Strategy(EntryConfig):
    """A search for widths. Its fields are its options in the recipe; calling it
    gives the level of every unit."""

    def __call__(self, problem: Problem) -> Levels:
        raise NotImplementedError

    def points(self, problem: Problem, count: int) -> Sequence[Levels]:
        """So many mixtures of a Pareto front, cheapest first; empty where the
        strategy gives one mixture only."""
        return ()
