"""Calibration data as stages take it that choose: samples that fit, samples that judge, what was observed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.flow.stage import Items, View
from npuflow.ir.graph import Graph
from npuflow.stages.choose import ChoosingSample
from npuflow.stages.fit import FitSample
from npuflow.stages.samples import Sample, feeds
from npuflow.stages.statistics import Statistics
from npuflow.tune.error import Feed
from npuflow.tune.judge import Judge
from npuflow.tune.precision.clipping import unclippable
from npuflow.tune.precision.config import Probing
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.masks import masked
from npuflow.tune.ranges.thresholds import Calibrate, choices

# wide codes reach so much further than calibration saw: they can afford it
ROOM = 1.25
FEWEST = 16                               # samples that judge widths: where fewer choose, some that fit, too


def is_random(samples: Mapping[str, Sample]) -> bool:
    """Whether the samples are noise: nothing is then judged by them."""
    return any(one.content.noise is not None for one in samples.values())


@dataclass(frozen=True)
class TuningSamples(View):
    """The samples that choices come from. Those that verify are no part of it."""

    fit: Items[FitSample]
    choose: Items[ChoosingSample]

    @property
    def is_random(self) -> bool:
        return is_random(self.fit)

    def judge(
        self, graph: Graph, count: int, held_out: int, reference: Graph | None = None
    ) -> Judge:
        """The judge of a float network: at most `held_out` samples that choose, and others that fit; at most
        `count` in all. `reference`: as `Judge` has it."""
        fit, held = self.split(graph, count, held_out)
        return Judge(graph, held, fit, reference)

    def split(self, graph: Graph, count: int, held_out: int) -> tuple[Sequence[Feed], Sequence[Feed]]:
        """The samples that fit and those that judge, as `judge` takes them, for stages without a judge: their
        keys do not hold how one builds candidates."""
        held = list(feeds(self.choose, graph, min(held_out, count // 2)))
        return list(feeds(self.fit, graph, count - len(held))), held


@dataclass(frozen=True)
class CalibrationData(View):
    """The samples, what was observed of them, and how ranges are chosen."""

    samples: TuningSamples
    statistics: Statistics
    calibrate: Calibrate

    @property
    def is_random(self) -> bool:
        return self.samples.is_random

    def harness(
        self, network: FakeQuantNetwork, chosen: Collection[str], count: int, held_out: int
    ) -> Harness:
        """The network ready to be judged: of at most `count` samples, `held_out` judge. Wide ranges have room
        beyond the extrema, but for what is bounded by its function; only those of values whose ranges a
        method has `chosen`, as ranges that the recipe or a table states stay."""
        graph, seen = network.graph, self.statistics.content
        bounded = {v for k in unclippable(graph, network.groups) for v in network.groups[k]}
        wide = {}
        known = choices(graph, seen, self.calibrate, network.quantize, network.numerics, [])
        for name in chosen & known.keys():
            tensor, room = known[name].tensor, 1.0 if name in bounded else ROOM
            wide[name] = (min(0.0, room * tensor.lo), max(0.0, room * tensor.hi))
        wide |= {name: span for name, span in masked(graph, seen).items() if name in wide}
        judge = self.samples.judge(graph, count, held_out, network.reference)
        return Harness(network, wide, judge.objects_first())

    def width_harness(self, network: FakeQuantNetwork, chosen: Collection[str], probing: Probing) -> Harness:
        """The harness that judges widths. Of mixtures the search takes one that just holds the budget: on
        eight samples alone `text` of MODELS2 held 20 dB so, and had 16 to 18 dB on others."""
        ready = self.harness(network, chosen, probing.samples, probing.held_out)
        held, fit = ready.judge.held, ready.judge.fit
        missing = min(FEWEST, probing.held_out) - len(held)
        if not held or missing <= 0:
            return ready
        return replace(ready, judge=replace(ready.judge, held=[*held, *fit[:missing]]).objects_first())
