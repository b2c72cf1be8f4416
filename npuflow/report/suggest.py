"""Suggestions from a tensor's statistics: outliers, saturation, unused codes, dead and uneven channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from npuflow.checks.fidelity import StepStretch
from npuflow.hw.elements import wide
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.scales import activation_inputs
from npuflow.statistics.statistics import ObservedStatistics, StatisticsColumn

OUTLIER = 8.0                             # times the 99.9 % quantile
CUT = 0.005                               # share of the values beyond the threshold
CODES = 16                                # that the middle 99 % should have at least
ALONE = 2.0                               # times the largest of all other samples
UNEVEN = 30.0                             # between the ranges of channels
DEAD = 1e-4                               # of the largest channel's range
FINE = 0.25                               # share of the values, zeros apart, that lie below half a step
COARSER = 4.0                             # times the step that the tensor's own range needs
STEEPER = 1.1                             # growth from each quarter of a loop's steps to the next
GROWN = 1.9                               # and from the first to the last
WORSE = 6.0                               # dB that the last quarter has less than the first
FEW = 4.0                                 # codes to both sides of 0 that a channel's weights should have


@dataclass(frozen=True)
class Suggestion:
    """`kind` in a word, `text` with the numbers and what they hint at. `weight` orders them, larger first."""

    kind: str
    text: str
    weight: float = 1.0


def suggestions(
    one: StatisticsColumn,
    samples: Sequence[str],
    span: tuple[float, float] | None = None,
    quant: QuantType | None = None,
) -> list[Suggestion]:
    """For one activation. `span`: its threshold."""
    found = list(_alone(one, samples))
    if span is not None and one.count:
        found += _chosen(one, span, quant)
    return sorted(found, key=lambda s: -s.weight)


def _alone(one: StatisticsColumn, samples: Sequence[str]) -> Iterator[Suggestion]:
    nan, up, down = (int(n) for n in one.totals[1:])
    if nan or up or down:
        yield Suggestion(
            "not finite", f"{nan} NaN, {up} +inf and {down} -inf are left out: look at the float model", 9.0
        )
    if not one.count:
        return
    if one.lo == one.hi:
        yield Suggestion(
            "constant", f"always {one.lo:g}: this part of the network is inactive on these samples", 6.0
        )
        return
    zeros = one.zeros / one.count
    if zeros > 0.98:
        yield Suggestion("dead", f"{100 * zeros:.2f} % of the values are exactly 0", 4.0 + zeros)
    top, usual = max(-one.lo, one.hi), one.quantile(0.999, absolute=True)
    if usual > 0 and top > OUTLIER * usual:
        text = f"the largest magnitude {top:.4g} is {top / usual:.1f} times the 99.9 % quantile {usual:.4g}: "
        text += "percentile, mse or kl clip it; or 16 bits for this layer"
        yield Suggestion("outliers", text, 3.0 + top / usual / 100)
    yield from _lonely(one, samples)


def _lonely(one: StatisticsColumn, samples: Sequence[str]) -> Iterator[Suggestion]:
    """A single sample that determines the range."""
    peaks = np.maximum(np.abs(one.low), np.abs(one.high)).astype(np.float64)
    if len(peaks) < 4 or len(peaks) != len(samples):
        return
    order = np.argsort(peaks)
    first, second = float(peaks[order[-1]]), float(peaks[order[-2]])
    if second > 0 and first > ALONE * second:
        name = samples[int(order[-1])]
        text = (
            f'the sample "{name}" alone reaches {first:.4g}, all others at most {second:.4g}: is it a valid '
            'sample?'
        )
        yield Suggestion("one sample", text, 2.0 + first / second / 10)


def _chosen(
    one: StatisticsColumn, span: tuple[float, float], quant: QuantType | None
) -> Iterator[Suggestion]:
    lo, hi = span
    if one.lo < lo or one.hi > hi:
        inside = float(one.histogram(1, max(lo, one.lo), min(hi, one.hi)).sum()) if hi > lo else 0.0
        beyond = 1.0 - inside / one.count
        if beyond > CUT:
            text = (
                f"{100 * beyond:.2f} % of the values lie beyond [{lo:.4g}, {hi:.4g}]: a wider method "
                "(minmax) or range"
            )
            yield Suggestion("saturation", text, 3.0 + 10 * beyond)
    if quant is None or len(quant.scale) != 1:
        return
    yield from _fine(one, span, quant)
    used = (one.quantile(0.995) - one.quantile(0.005)) / quant.scale[0]
    if 0 < used < CODES and one.zeros / one.count < 0.9:
        codes = quant.hi - quant.lo + 1
        text = (
            f"the middle 99 % of the values have {used + 1:.0f} of {codes} codes: a tighter method, or more "
            "bits"
        )
        yield Suggestion("few codes", text, 2.0 + (CODES - used) / CODES)


def _fine(one: StatisticsColumn, span: tuple[float, float], quant: QuantType) -> Iterator[Suggestion]:
    """Values that are rounded to zero: the range is wide, most of the values are small."""
    half, coded = quant.scale[0] / 2, one.count - one.zeros
    own = max(span[1], 0.0) - min(span[0], 0.0)
    if wide(quant.bits) or coded <= 0 or own > COARSER * (max(one.hi, 0.0) - min(one.lo, 0.0)):
        return                            # a range far beyond all values wants another method, not more bits
    lost = (float(one.histogram(1, -half, half).sum()) - one.zeros) / coded
    if lost <= FINE:
        return
    text = (
        f"{100 * lost:.0f} % of the values that are not 0 lie below half a step ({half:.3g}) and are coded "
        "as 0: "
    )
    width = (quant.hi - quant.lo) * quant.scale[0]
    if own > 0 and width > COARSER * own:
        text += (
            f"another tensor with the same scale makes it {width / own:.0f} times coarser than its own "
            "range needs; "
        )
    yield Suggestion("small values", text + "16 bits", 3.5 + lost)


def weight_suggestions(
    graph: Graph, node: Node, quants: Mapping[str, QuantType] = MappingProxyType({})
) -> list[Suggestion]:
    """For the weights of a node of the float graph. `quants`: how constants are
    coded, where that is known."""
    site = graph.site(node)
    index = next(
        (i for i, v in enumerate(site.consts) if v is not None and node.op.role(i) == "weight"), None
    )
    if index is None or not activation_inputs(graph, node):
        return []
    held = site.consts[index]
    axis = site.op.channel_axis(site, index)
    if held is None or axis is None or held.ndim < 2 or held.size == 0:
        return []
    tops = np.abs(np.moveaxis(held, axis, 0).reshape(held.shape[axis], -1)).max(1)
    return list(_channels(tops, quants.get(node.inputs[index])))


def _channels(tops: Array, quant: QuantType | None = None) -> Iterator[Suggestion]:
    """From the largest magnitude of each channel, and how the weights are coded."""
    alive = tops[tops > DEAD * tops.max()]
    dead = len(tops) - len(alive)
    if dead:
        text = (
            f"{dead} of {len(tops)} channels have next to no weights: they only output their bias, and "
            "could be pruned"
        )
        yield Suggestion("dead channels", text, 2.0 + dead / len(tops))
    if len(alive) < 2:
        return
    low = float(np.quantile(alive, 0.1))
    codes = low / quant.scale[0] if quant is not None and len(quant.scale) == 1 else None
    if codes is not None and codes < FEW and quant is not None and not wide(quant.bits):
        text = f"a tenth of the channels have codes up to {codes:.1f} at most with one scale for all: "
        yield Suggestion(
            "lost channels", text + "weights per channel, 16 bits, or [equalize]", 3.5 - codes / 8
        )
    elif alive.max() > UNEVEN * low and (quant is None or codes is not None):
        ratio = float(alive.max()) / low
        text = f"a tenth of the channels have ranges {ratio:.0f} times smaller than the largest: "
        yield Suggestion(
            "uneven channels",
            text + "keep weights per channel, or [equalize]",
            1.0 + float(np.log10(ratio)) / 10,
        )


def channel_suggestions(extrema: Array) -> Iterator[Suggestion]:
    """From the extrema of an activation's channels, [2, channels]."""
    low, high = extrema.astype(np.float64)
    same = int((low == high).sum())
    if same:
        text = (
            f"{same} of {len(low)} channels always have one value (the first is channel "
            f"{int(np.argmax(low == high))}): "
        )
        yield Suggestion("dead channels", text + "look at the data, or prune", 2.0 + same / len(low))
    widths = np.maximum(high, 0.0) - np.minimum(low, 0.0)
    alive = widths[(widths > 0) & (low < high)]
    if alive.size < 2 or alive.max() <= UNEVEN * float(np.quantile(alive, 0.1)):
        return
    ratio = float(alive.max() / np.quantile(alive, 0.1))
    text = (
        f"a tenth of the channels have ranges {ratio:.0f} times smaller than the largest: [equalize], or 16 "
        "bits"
    )
    yield Suggestion("uneven channels", text, 1.5 + float(np.log10(ratio)) / 10)


def step_suggestions(stretches: Sequence[StepStretch]) -> Iterator[Suggestion]:
    """Of a value of a loop's body, by quarters of its steps."""
    if not stretches:
        return
    peaks, steps = [one.peak for one in stretches], stretches[-1].last
    steeper = all(later > STEEPER * peak for peak, later in pairwise(peaks))
    if steeper and peaks[-1] > GROWN * peaks[0]:
        listed = ", ".join(f"{peak:.4g}" for peak in peaks)
        text = f"the largest magnitudes in the quarters of {steps} steps are {listed}: it grows as long as "
        text += "the loop runs, so that samples have to be as long as any sequence will be"
        yield Suggestion("grows with the steps", text, 3.5)
    levels = [one.sqnr for one in stretches if one.sqnr is not None]
    if len(levels) == len(stretches) and levels[0] - levels[-1] > WORSE:
        listed = ", ".join(f"{level:.1f}" for level in levels)
        text = f"the quarters of {steps} steps have {listed} dB: errors add up in what steps hand on: 16 "
        text += "bits for it ([[quantize.overrides]]), or a larger [precision] state_db"
        yield Suggestion("worse from step to step", text, 3.2 + (levels[0] - levels[-1]) / 1000)


def of_network(
    graph: Graph,
    statistics: ObservedStatistics,
    ranges: Mapping[str, tuple[float, float]],
    quants: Mapping[str, QuantType],
    channels: Mapping[str, Array] = MappingProxyType({}),
    stretches: Mapping[str, Sequence[StepStretch]] = MappingProxyType({}),
) -> dict[str, list[Suggestion]]:
    """For every tensor with statistics: its own, those of its channels, those of the weights that made it,
    and those of the loop's steps. `graph` is the float graph.
    """
    producer, found = graph.producer(), {}
    for name in statistics.names:
        one = statistics[name]
        reported = suggestions(one, statistics.samples, ranges.get(name), quants.get(name))
        if name in channels:
            reported += channel_suggestions(channels[name])
        if name in producer:
            reported += weight_suggestions(graph, producer[name], quants)
        reported += step_suggestions(stretches.get(name, ()))
        if reported:
            found[name] = reported
    return found
