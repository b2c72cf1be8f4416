"""Calibration data as stages take it that judge by held-out samples: a candidate made ready to be run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from npuflow.flow.stage import Items, View
from npuflow.stages.samples import Sample, feeds
from npuflow.stages.statistics import Statistics
from npuflow.tune.correct.error import split
from npuflow.tune.precision.clipping import unclippable
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.masks import masked
from npuflow.tune.ranges.thresholds import Calibrate, choices

# wide codes reach so much further than calibration saw: they can afford it
ROOM = 1.25


def is_random(samples: Items[Sample]) -> bool:
    """Whether the samples are noise: nothing is then judged by them."""
    return any(one.content.noise is not None for one in samples.values())


@dataclass(frozen=True)
class CalibrationData(View):
    """The samples, what was observed of them, and how ranges are chosen."""

    samples: Items[Sample]
    statistics: Statistics
    calibrate: Calibrate

    @property
    def is_random(self) -> bool:
        return is_random(self.samples)

    def rig(self, network: FakeQuantNetwork, chosen: Collection[str], count: int, held_out: int) -> Harness:
        """The network ready to be judged by some of the first `count` samples. Wide ranges have room beyond
        the extrema, but for what is bounded by its function; only those of values whose ranges a method has
        `chosen`, as ranges that the recipe or a table states stay."""
        graph, seen = network.graph, self.statistics.content
        fit, held = split(list(feeds(self.samples, graph, count)), held_out)
        bounded = {v for k in unclippable(graph, network.groups) for v in network.groups[k]}
        wide = {}
        known = choices(graph, seen, self.calibrate, network.quantize, network.numerics, [])
        for name in chosen & known.keys():
            tensor, room = known[name].tensor, 1.0 if name in bounded else ROOM
            wide[name] = (min(0.0, room * tensor.lo), max(0.0, room * tensor.hi))
        wide |= {name: span for name, span in masked(graph, seen).items() if name in wide}
        return Harness(network, wide, fit, held)
