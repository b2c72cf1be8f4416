"""A calibration method that the recipe names, held against `auto`: obeyed, with a
warning where `auto` is much better.

Both are judged on samples that neither chose its ranges by, with fake quantisation at the widths
of the build. The named method also has what the finished build reached, biases corrected, so that
only a clear difference counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.calibrators import Grid
from npuflow.calibrators.auto import Auto
from npuflow.statistics.statistics import ObservedStatistics
from npuflow.strategies import NARROW, Budget, Output
from npuflow.tune import tuned
from npuflow.tune.precision.clipping import Clipped, clip
from npuflow.tune.precision.fakequant import Ranges
from npuflow.tune.precision.harness import Harness
from npuflow.tune.quality import quality
from npuflow.tune.ranges.thresholds import Calibrate, LayerCalibration
from npuflow.tune.ranges.thresholds import thresholds as chosen_by


@dataclass(frozen=True)
class BetterMethod:
    """The output that gains most: what the named method reaches at best, and what `auto` does."""

    method: str
    named: Output
    auto: Output
    samples: int

    @property
    def text(self) -> str:
        levels = f"{self.named.sqnr:.1f} -> {self.auto.sqnr:.1f} dB"
        answers = ""
        if self.named.equal is not None and self.auto.equal is not None:
            answers = (
                f", {100 * self.named.equal:.1f} -> {100 * self.auto.equal:.1f} % of equal answers"
            )
        count = f"{self.samples} held-out calibration sample{'s' * (self.samples != 1)}"
        return (
            f'[calibrate] method = "{self.method}" is used, but "auto" is much better on {count}: '
            f'the output "{self.auto.name}" {levels}{answers}'
        )


def better(
    method: str, built: Sequence[Output], named: Sequence[Output], auto: Sequence[Output], samples: int
) -> BetterMethod | None:
    """Whether `auto` is much better. `built`: outputs of the finished build; all three in the same order."""
    found: list[tuple[float, BetterMethod]] = []
    for finished, mine, theirs in zip(built, named, auto, strict=True):
        level = max(finished.sqnr, mine.sqnr)
        shares = [one.agreement for one in (finished, mine) if one.agreement is not None]
        at_best = replace(mine, sqnr=level, agreement=max(shares) if shares else None)
        gain = theirs.sqnr - level
        more = (theirs.agreement or 0.0) - at_best.agreement if at_best.agreement is not None else 0.0
        closer = gain >= tuned.NAMED_GAIN and level < tuned.NAMED_CLEAN
        if closer or (more >= tuned.NAMED_SHARE and more * samples >= tuned.NAMED_FEWEST):
            found.append((max(gain, 0.0) + 100 * more, BetterMethod(method, at_best, theirs, samples)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def compared(
    harness: Harness, built: Sequence[Output], method: str, others: Ranges, choosing: int
) -> BetterMethod | None:
    """`others`: ranges by `auto`, chosen by the first `choosing` held-out samples, which
    take no part in the comparison."""
    network, judging = harness.network, harness.judge.held[choosing:]
    weights = {k: v for j in range(len(network.weights)) for k, v in harness.weight(j, NARROW).items()}
    truth = [column[choosing:] for column in harness.judge.truth]
    made = [
        harness.fake.run(judging, network.table(ranges), weights)
        for ranges in (harness.ranges, {**harness.ranges, **others})
    ]
    named, auto = (quality(network.graph, truth, one) for one in made)
    mine = {one.name: one for one in built}
    return better(method, [mine[one.name] for one in named], named, auto, len(judging))


def automatic(
    harness: Harness,
    statistics: ObservedStatistics,
    calibrate: Calibrate,
    masks: Mapping[str, tuple[float, float]],
    auto: Auto,
    free: Mapping[str, Grid],
    budget: Budget,
) -> Clipped:
    """Ranges of the `free` tensors by the best of several methods; exceptions of the table
    stay, and masks are clipped."""
    network, tried = harness.network, {}
    for method in dict.fromkeys(("minmax", *auto.methods)):
        bounds = tuple(
            LayerCalibration(layers=(name,), method=method, bounds=span) for name, span in masks.items()
        )
        layers = (
            *bounds,
            *(replace(one, method=method) if one.method == "auto" else one for one in calibrate.layers),
        )
        table = Calibrate(
            method, calibrate.bounds, calibrate.beyond, calibrate.infinite, calibrate.as_trimmed, layers
        )
        on_npu = network.candidate.placed.on_npu
        tried[method] = chosen_by(
            network.graph, statistics, table, network.quantize, network.numerics, on_npu
        ).ranges
    return clip(harness, tried, free, auto.samples, budget)
