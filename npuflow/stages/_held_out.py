"""What the stages that judge by held-out samples share: the network with its ranges,
and the samples, split."""

from __future__ import annotations

from npuflow.flow.stage import Items
from npuflow.hw.target import Numerics
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample, feeds
from npuflow.stages.thresholds import Thresholds
from npuflow.statistics.statistics import ObservedStatistics
from npuflow.tune.correct.error import split
from npuflow.tune.precision.clipping import unclippable
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.masks import masked
from npuflow.tune.precision.rig import Rig
from npuflow.tune.ranges.thresholds import Calibrate, choices

# wide codes reach so much further than calibration saw: they can afford it
ROOM = 1.25


def is_random(samples: Items[Sample]) -> bool:
    """Whether the samples are noise: nothing is then judged by them."""
    return any(one.content.noise is not None for one in samples.values())


def network_of(
    parsed: Parsed, placement: Placement, thresholds: Thresholds, rounded: Rounded | None, quantize: Quantize,
    numerics: Numerics,
) -> FakeQuantNetwork:
    """The network for fake quantisation, with stated codes and rounded weights as the build has them, and
    with outputs that can be judged."""
    stated, weights = {**parsed.stated, **thresholds.codes}, (rounded or Rounded()).weights
    graph, given = with_fixed_outputs(parsed.graph), parsed.rounded
    candidate = Candidate(
        graph, placement.placed, quantize, numerics, thresholds.ranges, stated, weights
    )
    return FakeQuantNetwork(candidate, given)


def rig(
    parsed: Parsed,
    network: FakeQuantNetwork,
    thresholds: Thresholds,
    statistics: ObservedStatistics,
    calibrate: Calibrate,
    samples: Items[Sample],
    count: int,
    held_out: int,
) -> Rig:
    """The network ready to be judged. Wide ranges have room beyond the extrema, but for what is bounded by
    its function; ranges and bounds that the recipe or a table states stay."""
    fit, held = split(list(feeds(samples, parsed.graph, count)), held_out)
    bounded = {v for k in unclippable(parsed.graph, network.groups) for v in network.groups[k]}
    wide = {}
    known = choices(parsed.graph, statistics, calibrate, network.quantize, network.numerics, [])
    for name in thresholds.chosen & known.keys():
        tensor, room = known[name].tensor, 1.0 if name in bounded else ROOM
        wide[name] = (min(0.0, room * tensor.lo), max(0.0, room * tensor.hi))
    wide |= {name: span for name, span in masked(parsed.graph, statistics).items() if name in wide}
    return Rig(network, wide, fit, held)
