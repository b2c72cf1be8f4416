"""The one rule by which a change of a network is taken, and the one record of what was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from npuflow.ir.noise import decibels as level

NETWORK = "the network's outputs"
C = TypeVar("C")


@dataclass(frozen=True)
class Trial:
    """`before`, `after`: noise over signal on samples that choose, at the layer's own output or the network's
    outputs; None where a layer is judged with all others alone.
    """

    correction: str                       # bias, equalize, absorb, unify, round
    layer: str                            # a node's name, names of the layers around a value, or NETWORK
    before: float | None
    after: float | None
    kept: bool
    # the largest: bias and absorb in codes and real units, equalize and unify as a factor
    change: float = 0.0
    reason: str = ""                      # why it was not possible

    def line(self) -> str:
        """For logs."""
        what = f"{self.correction} {self.layer}: "
        if self.reason:
            return f"{what}not possible: {self.reason}"
        if self.before is None:
            return f"{what}by up to {self.change:.4g}"
        return f"{what}{self.errors()}, {'kept' if self.kept else 'rejected'}"

    def errors(self) -> str:
        """Without and with the correction, for eyes."""
        return f"{decibels(self.before)} -> {decibels(self.after)}"


@dataclass(frozen=True)
class Acceptance:
    """When a change is taken: its error is below that of what stands, by more than `margin`; or the recipe
    asks for it, whatever the error."""

    asked: bool = False
    margin: float = 0.0

    def takes(self, before: float, after: float) -> bool:
        return self.asked or after < before - self.margin


CLOSER, ASKED = Acceptance(), Acceptance(asked=True)


def _unasked(_: object) -> float:
    raise AssertionError("a proposal without errors")


@dataclass(frozen=True)
class Proposal(Generic[C]):
    """A change: what the network, or the part of it that is chosen, would become. `layer`, `change`: as in
    `Trial`; `errors`: before and after, where it is judged by a layer's own output; `parts`: what it is made
    of, in it or not, for the record; `toml`: how a recipe writes it."""

    what: str
    changed: C
    layer: str = NETWORK
    change: float = 0.0
    rule: Acceptance = CLOSER
    errors: tuple[float, float] | None = None
    parts: tuple[Trial, ...] = ()
    toml: str = ""


Proposer = Callable[[C], Proposal[C] | Sequence[Trial]]
"""What it would change in a network as it stands, or what is in the way of that."""


def improve(
    start: C, proposers: Iterable[Proposer[C] | Proposal[C]], error: Callable[[C], float] = _unasked
) -> tuple[C, tuple[Trial, ...]]:
    """Take one change after the other, each if its rule does; what is taken is what the next one changes.
    `error`: noise over signal of a network, for proposals that state no errors."""
    now, known, trials = start, None, list[Trial]()
    for propose in proposers:
        one = propose if isinstance(propose, Proposal) else propose(now)
        if not isinstance(one, Proposal):
            trials += one
            continue
        if one.errors is None:
            known = error(now) if known is None else known
            before, after = known, error(one.changed)
        else:
            before, after = one.errors
        kept = one.rule.takes(before, after)
        trials += [replace(part, kept=kept and part.kept) for part in one.parts]
        trials.append(Trial(one.what, one.layer, before, after, kept, one.change))
        if kept:
            now, known = one.changed, None if one.errors else after
    return now, tuple(trials)


def in_all(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Changes tried one after the other on the network's outputs, and their record as a whole."""
    if not trials:
        return ()
    first, kept = trials[0], [one for one in trials if one.kept]
    after = kept[-1].after if kept else first.before
    return (*trials, Trial(first.correction, NETWORK, first.before, after, bool(kept)))


def summary(trials: Sequence[Trial]) -> dict[str, str]:
    """Per correction the figure that decided."""
    whole = (t for t in trials if t.layer == NETWORK)
    return {f"{t.correction}_{'kept' if t.kept else 'rejected'}": t.reason or t.errors() for t in whole}


def decibels(error: float | None) -> str:
    """Signal over noise."""
    return "" if error is None else "exact" if error <= 0 else f"{level(1.0, error):.2f} dB"
