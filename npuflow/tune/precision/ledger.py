"""Splits an output's noise by layer and cause, with what would remove each part.

Causes are switched on one after the other in the order of the network, on held-out samples, and then once
more in the opposite order. A cause's share is the mean of what the noise grows by in both: interactions of
two causes are then shared evenly (the Shapley value of a game of pairs), and the shares sum to the whole. To
switch one cause off where all else is quantised draws all roundings behind it anew, which a few samples do
not average out; along an order what one difference has too much the next has too little. For the largest
parts the noise with that cause alone and without it is measured as well.

Corrected biases answer to the causes. As a rule they take noise away: shares are then of the noise that
there is without the correction, whose own share is what it takes away again. They are judged by all outputs
together, and can add noise to one. Such noise goes to the causes without which biases, corrected anew, would
not add it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.macs import pass_macs
from npuflow.ir.noise import decibels, difference, energy
from npuflow.ir.types import Array
from npuflow.strategies import NARROW, WIDE
from npuflow.tune import tuned
from npuflow.tune.bias import correct_biases
from npuflow.tune.error import outputs_of
from npuflow.tune.precision.cost import CostModel
from npuflow.tune.precision.culprit import layer_of, reaches
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.output_check import clipped
from npuflow.tune.quality import NOTHING, Outputs

FINER = 2.0**14                           # a step so much finer rounds to nothing that matters
BOUNDLESS = 2.0**100

ROUNDING = "activation rounding"
CLIPPING = "activation clipping"
WEIGHT_ROUNDING = "weight rounding"
WEIGHT_CLIPPING = "weight clipping"
ARITHMETIC = "requantisation, rounding of biases, function tables"
CORRECTION = "bias correction"


@dataclass(frozen=True)
class LedgerEntry:
    """A cause of noise. `share`: of the noise power that all causes make (negative: it takes noise away);
    `alone`: dB of the output with this cause alone; `without`: dB with everything else as built (both None
    for small shares). `fix`: what removes it, with `cycles`, estimated, as a share of all."""

    layer: str
    tensor: str
    cause: str
    share: float
    alone: float | None
    without: float | None
    fix: str = ""
    cycles: float = 0.0


@dataclass(frozen=True)
class Ledger:
    """The noise of one output over so many held-out samples; entries by share, the largest first. `before`:
    dB without the correction of biases, where that takes noise away; shares are of the noise there."""

    output: str
    sqnr: float
    samples: int
    entries: tuple[LedgerEntry, ...]
    before: float | None = None


@dataclass(frozen=True)
class _Cause:
    unit: int
    cause: str


def ledger(
    harness: Harness, built: Graph, cost: CostModel, column: int, progress: Callable[[int, int], None]
) -> Ledger:
    """Split the noise of one output. `built`: the quantised graph of the build, biases corrected; `column`:
    the output's place in `harness.judge.parts`."""
    return _Split(harness, built, cost, column).split(progress)


class _Split:
    def __init__(self, harness: Harness, built: Graph, cost: CostModel, column: int) -> None:
        self.harness, self.built, self.cost, self.part = harness, built, cost, harness.judge.parts[column]
        graph = harness.network.graph
        self.levels, output = (NARROW,) * len(harness.names), graph.outputs[self.part.output]
        self.causes = [one for one in self._causes() if reaches(harness, one.unit, output)]
        self.known = frozenset(self.causes)
        passes = 2 * (len(self.causes) + tuned.LEDGER_MEASURED) * pass_macs(graph)
        most = min(len(harness.judge.held), int(tuned.LEDGER_MACS / passes))
        self.held = harness.judge.held[: max(tuned.LEDGER_FEWEST, most)]
        truth = harness.judge.truth[self.part.output][: len(self.held)]
        self.truth = [np.asarray(self.part.of(a), np.float64) for a in truth]
        self.signal = max(sum(energy(a) for a in self.truth), NOTHING)

    def split(self, progress: Callable[[int, int], None]) -> Ledger:
        order = sorted(self.causes, key=self._position)
        forward = self._path(order, lambda done: progress(done, 2 * len(order)))
        back = self._path(order[::-1], lambda done: progress(len(order) + done, 2 * len(order)))
        fake = self._noise_of(self.known)
        plain = self._noise(outputs_of(self.harness.built(self.levels), self.held))
        total = self._noise(outputs_of(self.built, self.held))
        powers = {cause: (forward[cause] + back[cause]) / 2 for cause in self.causes}
        correction = total - plain
        if correction > tuned.LEDGER_BLAMED * total:
            for cause, share in self._answered(powers, correction).items():
                powers[cause] += share
                correction -= share
        whole = max(total, total - correction) or 1.0
        large = sorted(powers, key=lambda cause: -powers[cause])[: tuned.LEDGER_MEASURED]
        rows = []
        for cause in self.causes:
            rows.append(self._entry(cause, powers[cause] / whole, total - fake, cause in large))
        for name, power in ((ARITHMETIC, plain - fake), (CORRECTION, correction)):
            rest, alone = _db(max(total - power, 0.0)), _db(max(power, 0.0))
            rows.append(LedgerEntry("", "", name, power / whole, alone, rest))
        rows.sort(key=lambda one: -one.share)
        before = _db(plain) if correction < 0 else None
        return Ledger(self.part.name, _db(total), len(self.held), tuple(rows), before)

    def _answered(self, powers: Mapping[_Cause, float], correction: float) -> dict[_Cause, float]:
        """What of the noise that corrected biases add goes away with each of the largest causes."""
        found = dict[_Cause, float]()
        for cause in sorted(powers, key=lambda cause: -powers[cause])[: tuned.LEDGER_SUSPECTS]:
            left = self._added_without(cause)
            if left is not None and left < correction:
                found[cause] = correction - max(left, 0.0)
        excess = max(sum(found.values()) / correction, 1.0)
        return {cause: power / excess for cause, power in found.items()}

    def _added_without(self, cause: _Cause) -> float | None:
        """The noise that biases add which are corrected in a network without a cause; None: the target has no
        such network. A range becomes the one that min-max finds, rounding that of the widest codes."""
        harness, levels = self.harness, list(self.levels)
        if cause.cause == CLIPPING:
            group = harness.network.groups[cause.unit]
            wide = {v: harness.wide_ranges[v] for v in group if v in harness.wide_ranges}
            harness = replace(harness, network=harness.network.with_(ranges={**harness.ranges, **wide}))
        else:
            levels[cause.unit] = WIDE
        half = len(harness.judge.fit) // 2
        try:
            made = harness.built(tuple(levels))
        except TargetError:
            return None
        network = harness.network
        fit, judges = harness.judge.fit[:half], harness.judge.fit[half:]
        better = correct_biases(network.reference, made, network.numerics, fit, judges).graph
        return self._noise(outputs_of(better, self.held)) - self._noise(outputs_of(made, self.held))

    def _position(self, cause: _Cause) -> tuple[int, int, int]:
        """In the network: weights of a layer stand before what it writes, inputs and constants before the
        first layer that reads them."""
        network = self.harness.network
        first = len(network.groups)
        if cause.unit >= first:
            return network.weights[cause.unit - first].node, 0, cause.unit
        group, nodes = set(network.groups[cause.unit]), list(enumerate(network.graph.nodes))
        made = [i for i, node in nodes if not group.isdisjoint(node.outputs)]
        read = [i for i, node in nodes if not group.isdisjoint(node.inputs)]
        return min(made, default=min(read, default=0) - 1), 1, cause.unit

    def _path(self, order: Sequence[_Cause], progress: Callable[[int], None]) -> dict[_Cause, float]:
        """What the noise grows by when causes are switched on one after the other."""
        found, before, on = dict[_Cause, float](), 0.0, frozenset[_Cause]()
        for done, cause in enumerate(order):
            on |= {cause}
            now = self._noise_of(on)
            found[cause], before = now - before, now
            progress(done + 1)
        return found

    def _causes(self) -> Iterator[_Cause]:
        harness = self.harness
        first = len(harness.network.groups)
        types = harness.network.types(harness.ranges)
        beyond = clipped(harness.network.graph, types, harness.judge.held)
        for k, group in enumerate(harness.network.groups):
            yield _Cause(k, ROUNDING)
            if any(beyond.get(v, 0.0) > 0 for v in group):
                yield _Cause(k, CLIPPING)
        for j in range(len(harness.network.weights)):
            yield _Cause(first + j, WEIGHT_ROUNDING)
            if not np.array_equal(self._kept(j), self._float(j)):
                yield _Cause(first + j, WEIGHT_CLIPPING)

    def _float(self, j: int) -> Array:
        found = self.harness.network.graph.const(self.harness.network.weights[j].value)
        assert found is not None
        return found

    def _kept(self, j: int) -> Array:
        """A weight clipped to its codes' range, not rounded. Codes that a rounding method chose make up for
        what they clip: there is no clipping apart from their rounding."""
        real = self._float(j)
        if self.harness.network.is_rounded(self.harness.network.weights[j]):
            return real
        quant = self.harness.network.weight_quant(self.harness.network.weights[j])
        scale, zero = quant.spread(real.shape)
        low, high = (quant.lo - zero) * scale, (quant.hi - zero) * scale
        return np.clip(real, low, high).astype(real.dtype)

    def _noise_of(self, on: frozenset[_Cause]) -> float:
        """With these causes, all else in float."""
        harness, first = self.harness, len(self.harness.network.groups)
        table, weights = harness.plain.copy(), dict[str, Array]()
        units = {cause.unit for cause in on}
        for unit in units:
            rounds = not on.isdisjoint((_Cause(unit, ROUNDING), _Cause(unit, WEIGHT_ROUNDING)))
            clip = _Cause(unit, CLIPPING if unit < first else WEIGHT_CLIPPING)
            clips = clip in on or clip not in self.known
            if unit < first:
                step, low, high, _ = harness.table(NARROW)[unit].astype(np.float64)
                fine = 1.0 if rounds else FINER
                ends = (low * fine, high * fine) if clips else (-BOUNDLESS, BOUNDLESS)
                table[unit] = (step / fine, *ends, 0.0)
                continue
            j = unit - first
            coded, value = dict(harness.weight(j, NARROW)), harness.network.weights[j].value
            kept, real = self._kept(j), self._float(j)
            if not rounds:
                coded = {value: kept}
            elif not clips:
                coded[value] = (real + (coded[value] - kept)).astype(real.dtype)
            weights.update(coded)
        return self._noise(harness.fake.run(self.held, table, weights))

    def _noise(self, made: Outputs) -> float:
        wrong = 0.0
        for found, real in zip(made[self.part.output], self.truth, strict=True):
            wrong += energy(difference(np.asarray(self.part.of(found)), real))
        return wrong / self.signal

    def _entry(self, cause: _Cause, share: float, added: float, large: bool) -> LedgerEntry:
        """`added`: what the quantised network has beside the causes; `large`: worth two more passes."""
        harness, alone, without = self.harness, None, None
        if large:
            alone = _db(self._noise_of(frozenset({cause})))
            rest = self._noise_of(self.known - {cause})
            without = _db(max(rest + added, 0.0))
        _, tensor = harness.names[cause.unit]
        fix, cycles = "", 0.0
        if cause.cause in (CLIPPING, WEIGHT_CLIPPING):
            fix = "the range that min-max finds"
        elif cause.cause in (ROUNDING, WEIGHT_ROUNDING):
            bits, now = self.cost.bits(cause.unit, WIDE), self.cost.bits(cause.unit, NARROW)
            if bits > now:
                more = self.cost.delta(self.levels, cause.unit, WIDE)
                fix, cycles = f"{bits} bits", more / self.cost.cycles(self.levels)
        layer = layer_of(harness, cause.unit)
        return LedgerEntry(layer, tensor, cause.cause, share, alone, without, fix, cycles)


def _db(noise: float) -> float:
    return decibels(1.0, noise)


def lines(found: Ledger, most: int = 15) -> Iterator[str]:
    """As a table for a terminal: the largest parts, and what the others sum up to, each sign apart."""
    told = f'output "{found.output}": {found.sqnr:.1f} dB on {found.samples} held-out samples'
    if found.before is None:
        yield f"{told}; its noise power by cause:"
    else:
        yield f"{told}, {found.before:.1f} dB before biases were corrected; the noise power there by cause:"
    yield ""
    largest = sorted(found.entries, key=lambda one: -abs(one.share))[:most]
    shown = [one for one in found.entries if one in largest and abs(one.share) >= 0.001]
    rest = [one.share for one in found.entries if one not in shown]
    rows = [("share", "cause", "tensor", "layer", "dB without it", "fix", "cycles")]
    for one in shown:
        cycles = "" if not one.fix else f"{100 * one.cycles:+.1f} %"
        places = (one.cause, one.tensor, one.layer if one.layer != one.tensor else "")
        without = "" if one.without is None else f"{one.without:.1f}"
        rows.append((f"{100 * one.share:6.1f} %", *places, without, one.fix, cycles))
    for what, some in (
        ("others", [one for one in rest if one >= 0]),
        ("others that take noise away", [one for one in rest if one < 0]),
    ):
        if some:
            rows.append((f"{100 * sum(some):6.1f} %", f"{len(some)} {what}", "", "", "", "", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
