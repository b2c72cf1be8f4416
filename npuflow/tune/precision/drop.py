"""What a quantised network loses of a metric on labelled samples: `max_drop` of [precision]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npuflow.base.errors import InputError, Where
from npuflow.ir.graph import Graph
from npuflow.ir.noise import EXACT
from npuflow.metrics import Metric
from npuflow.strategies import Levels, Output, Problem
from npuflow.tune.correct.error import Feed, outputs_of
from npuflow.tune.precision.quality import Outputs
from npuflow.tune.precision.rate import by_name, mark


@dataclass
class MetricDrop:
    """A metric and the samples that it judges by; its first figure counts, more being better."""

    graph: Graph
    metric: Metric
    labels: list[Any] | None
    feeds: Sequence[Feed]

    @cached_property
    def truth(self) -> Any:
        """The float network's outputs, by name."""
        return by_name(outputs_of(self.graph, self.feeds), self.graph.outputs)

    @cached_property
    def figure(self) -> tuple[str, float]:
        """The figure's name, and what the float network reaches."""
        found = dict(self.metric(self.truth, self.truth, self.labels))
        return next(iter(found.items()))

    def __call__(self, made: Outputs) -> Output:
        """The metric of some outputs as one more output to be judged."""
        name, reached = self.figure
        found = mark(made, self.truth, self.graph.outputs, self.metric, self.labels)[name]
        return Output(f"{name} on {len(self.feeds)} labelled samples", EXACT, EXACT, None, reached - found)


def unreachable(problem: Problem, levels: Levels, found: Sequence[Output], most: float) -> InputError:
    """The error of a `max_drop` that the best mixture found does not keep: what it loses, and what binds."""
    best = next(one for one in found if one.drop is not None)
    widest = tuple(unit.candidates[-1] for unit in problem.units)
    limits = ", ".join(f"max_{what} = {value:g}" for what, value in problem.goal.limits.items())
    rest = next((one.drop for one in problem.verified(widest) if one.drop is not None), 0.0)
    if rest > most:
        why = f"with the most bits for every tensor and weight it loses {rest:.4f}: widths do not bind"
        hint = "other thresholds (npuflow why accuracy RECIPE), wider candidates, or a larger drop"
    elif limits:
        why = f"{limits} binds: with the most bits for every tensor and weight it loses {rest:.4f}"
        hint = "raise the limit, or accept a larger drop"
    else:
        why = f"the strategy found no mixture between; with the most bits it loses {rest:.4f}"
        hint = 'strategy = "ilp" or "greedy", or point = the last of the points'
    return InputError(
        f"no mixture of widths that was found keeps max_drop = {most:g}: the best loses {best.drop:.4f} of "
        f"{best.name}, at {problem.price(levels, 'cycles'):.2f} times the cycles",
        because=why, hint=hint, where=Where(key="precision.max_drop"), code="NF-QUANT-045",
    )
