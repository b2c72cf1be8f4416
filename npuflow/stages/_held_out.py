"""What the stages that judge by held-out samples share: the network with its ranges, and the samples, split."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.engine.calibrate.statistics import Statistics
from npuflow.engine.correct.error import split
from npuflow.engine.precision.clipping import unclippable
from npuflow.engine.precision.fakequant import Network
from npuflow.engine.precision.masks import masked
from npuflow.engine.precision.problem import Rig
from npuflow.flow.stage import Items
from npuflow.stages.parse import Parsed
from npuflow.stages.samples import Sample, feeds

ROOM = 1.25                               # wide codes reach so much further than calibration saw: they can afford it


def is_random(samples: Items[Sample]) -> bool:
    """Whether the samples are noise: nothing is then judged by them."""
    return any(one.content.noise is not None for one in samples.values())


def rig(
    parsed: Parsed, network: Network, ranges: Mapping[str, tuple[float, float]], statistics: Statistics,
    samples: Items[Sample], count: int, held_out: int,
) -> Rig:
    """The network ready to be judged. Wide ranges have room beyond the extrema, but for what is bounded by its function."""
    fit, held = split(list(feeds(samples, parsed.graph, count)), held_out)
    bounded = {v for k in unclippable(parsed.graph, network.groups) for v in network.groups[k]}
    wide = {}
    for name in statistics.names:
        tensor = statistics[name]
        room = 1.0 if name in bounded else ROOM
        wide[name] = (min(0.0, room * tensor.lo), max(0.0, room * tensor.hi)) if tensor.count else ranges[name]
    wide |= masked(parsed.graph, statistics)
    return Rig(network, ranges, {k: v for k, v in wide.items() if k in ranges}, fit, held)
