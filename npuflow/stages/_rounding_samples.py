"""Which calibration samples weights are rounded by: none of those that judge a build afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from npuflow.flow.stage import Items, View
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.stages.samples import Sample
from npuflow.tune.correct.config import Correct
from npuflow.tune.correct.error import split
from npuflow.tune.precision.config import Probing
from npuflow.tune.rounding.config import Counting


@dataclass(frozen=True)
class RoundingSamples(View):
    """The calibration samples with the tables that divide them.

    Bias correction, the search for widths and the verdict hold samples out. Weights never see these, or
    their judgement would be worth nothing: the last layer of a classifier sees one column a sample, far fewer
    than it has weights. Some of them judge the rounding, too.
    """

    samples: Items[Sample]
    counting: Counting
    correct: Correct
    probing: Probing

    @cached_property
    def names(self) -> tuple[list[str], list[str]]:
        """Of the samples that weights are rounded by, and of those that judge it."""
        counting = self.counting
        whole = [name for name, one in self.samples.items() if not one.content.broken]
        judges: set[int] = set()
        for table in (self.correct, self.probing):
            some = range(min(len(whole), table.samples))
            judges |= set(split(some, table.held_out)[1])
        seen = range(min(len(whole), counting.samples))
        spare = [i for i in seen if i in judges]
        count = min(counting.held_out, len(spare))
        held = [spare[(2 * k + 1) * len(spare) // (2 * count)] for k in range(count)]
        return [whole[i] for i in seen if i not in judges], [whole[i] for i in held]

    def feeds(self, graph: Graph) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        """What these samples feed a graph."""
        types = {name: graph.type(name) for name in graph.inputs}
        fit, held = ([self.samples[name].content.feed(types) for name in names] for names in self.names)
        return fit, held
