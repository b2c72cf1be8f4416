"""Makes a network's outputs on a judge's samples as far as they decide whether a budget holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.run.walk import SampleWalk
from npuflow.strategies import Budget, Output
from npuflow.tune.error import Feed
from npuflow.tune.judge import Judge, judged_outputs
from npuflow.tune.quality import Outputs, quality

AT_ONCE = 8                               # samples after which outputs are looked at


@dataclass(eq=False)
class PartialOutputs:
    """Outputs of the first samples. `run`: makes those of some samples in a row."""

    judge: Judge
    run: Callable[[slice], Outputs]
    count: int = field(default=0, init=False)
    _made: list[list[Array]] = field(default_factory=list, init=False)

    @classmethod
    def of(cls, judge: Judge, network: Graph | Callable[[Sequence[Feed]], Outputs]) -> PartialOutputs:
        """Of a graph, or of what runs samples."""
        if not isinstance(network, Graph):
            return cls(judge, lambda some: network(judge.held[some]))
        walk, graph = SampleWalk(network, judge.held), network

        def run(some: slice) -> Outputs:
            made = walk.ahead(len(graph.nodes), graph.outputs, samples=some)
            given = {o: walk.values[o][some] for o in graph.outputs if o in walk.values}
            return [walk.real(o, found) for o in graph.outputs if (found := {**given, **made}.get(o))]

        return cls(judge, run)

    def hold(self, budget: Budget) -> bool:
        """Whether all outputs hold a budget. No sample is run behind those that miss it even if the outputs
        on all others were exact."""
        truth, held = self.judge.truth, len(self.judge.held)
        # all samples of both networks decide how a map with few answers is weighed
        step = held if any(part.answers == "threshold" for part in self.judge.parts) else AT_ONCE
        while self.count < held:
            self._more(min(self.count + step, held))
            best = [[*own, *real[len(own) :]] for own, real in zip(self._made, truth, strict=True)]
            if not budget.holds(quality(self.judge.graph, truth, best)):
                return False
        return budget.holds(self.judged)

    @property
    def complete(self) -> bool:
        return self.count == len(self.judge.held)

    @cached_property
    def judged(self) -> tuple[Output, ...]:
        """Every output, by all samples."""
        self._more(len(self.judge.held))
        return judged_outputs(self.judge.of(self._made))

    def _more(self, stop: int) -> None:
        if stop > self.count:
            found = self.run(slice(self.count, stop))
            known = self._made or [[] for _ in found]
            self._made = [[*own, *new] for own, new in zip(known, found, strict=True)]
            self.count = stop
