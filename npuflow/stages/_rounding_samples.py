"""Which calibration samples weights are rounded by, and which judge that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from npuflow.flow.stage import View
from npuflow.input.data.config import InputSample
from npuflow.ir.graph import Graph
from npuflow.stages._calibration import TuningSamples
from npuflow.tune.judge import Judge
from npuflow.tune.rounding.config import Counting


@dataclass(frozen=True)
class RoundingSamples(View):
    """Those that fit, with a few of those that choose.

    The last layer of a classifier sees one column a sample, far fewer than it has weights: samples that
    weights have seen would judge them too well.
    """

    samples: TuningSamples
    counting: Counting

    @cached_property
    def parts(self) -> tuple[Mapping[str, InputSample], Mapping[str, InputSample]]:
        """By name: the samples that weights are rounded by, and those that judge it."""
        counting, samples = self.counting, self.samples
        held = islice(samples.choose.items(), min(counting.held_out, counting.samples // 2))
        judges = {name: one.content for name, one in held}
        whole = ((name, one.content) for name, one in samples.fit.items() if not one.content.broken)
        return dict(islice(whole, counting.samples - len(judges))), judges

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Of both."""
        fit, held = self.parts
        return list(fit), list(held)

    def judge(self, graph: Graph, reference: Graph | None = None) -> Judge:
        """The judge of a float network by these samples."""
        types = {name: graph.type(name) for name in graph.inputs}
        fit, held = ([one.feed(types) for one in part.values()] for part in self.parts)
        return Judge(graph, held, fit, reference)
