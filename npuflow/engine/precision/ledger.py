"""Where the noise of an output comes from: its power split by layer and cause, with
what would take each part away.

One cause at a time is switched on alone (all else in float) and switched off alone (all else as built), on
held-out samples. A cause's share is the mean of the noise that the first makes and of the noise that the
second takes away: interactions of two causes are then shared evenly, and the shares of a network whose errors
add up or pair up sum to the whole (the Shapley value of a game of pairs). What is left is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from npuflow.engine.correct.error import outputs_of
from npuflow.engine.precision.cost import CostModel
from npuflow.engine.precision.culprit import layer_of, reaches
from npuflow.engine.precision.fakequant import Table
from npuflow.engine.precision.judge import clipped
from npuflow.engine.precision.quality import EXACT, Outputs
from npuflow.engine.precision.rig import Rig
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.types import Array
from npuflow.strategies import FLOAT, NARROW, WIDE

EFFORT = 600e9                            # multiply-accumulates of all passes together
FEWEST = 2                                # samples, however large the network
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
    """A cause of noise. `share`: of the output's noise power (negative: it takes noise away); `alone`: dB of
    the output with this cause alone; `without`: dB with everything else as built. `fix`: what removes it,
    with `cycles`, estimated, as a share of all."""

    layer: str
    tensor: str
    cause: str
    share: float
    alone: float
    without: float
    fix: str = ""
    cycles: float = 0.0


@dataclass(frozen=True)
class Ledger:
    """The noise of one output over so many held-out samples; entries by share, the largest first."""

    output: str
    sqnr: float
    samples: int
    entries: tuple[LedgerEntry, ...]
    remainder: float


@dataclass(frozen=True)
class _Cause:
    unit: int
    cause: str


def ledger(
    rig: Rig, built: Graph, cost: CostModel, column: int, progress: Callable[[int, int], None]
) -> Ledger:
    """Split the noise of one output. `built`: the quantised graph of the build, biases corrected; `column`:
    the output's place in `rig.which`."""
    return _Split(rig, built, cost, column).split(progress)


class _Split:
    def __init__(self, rig: Rig, built: Graph, cost: CostModel, column: int) -> None:
        self.rig, self.built, self.cost, self.place = rig, built, cost, rig.which[column]
        graph = rig.network.graph
        self.name = graph.outputs[self.place]
        self.levels = (NARROW,) * len(rig.names)
        self.causes = [one for one in self._causes() if reaches(rig, one.unit, self.name)]
        passes = max(2 * len(self.causes), 1) * max(graph_macs(graph), 1)
        self.held = rig.held[: max(FEWEST, min(len(rig.held), int(EFFORT / passes)))]
        self.truth = [np.asarray(a, np.float64) for a in rig.truth[self.place][: len(self.held)]]
        self.signal = max(sum(float((a * a).sum()) for a in self.truth), 1e-30)

    def split(self, progress: Callable[[int, int], None]) -> Ledger:
        fake = self._fake(*self._with(self.levels))
        plain = self._noise(outputs_of(self.rig.quantized(self.levels).graph, self.held))
        total = self._noise(outputs_of(self.built, self.held))
        rows = []
        for done, cause in enumerate(self.causes):
            alone, without = self._alone(cause), self._without(cause)
            power = (alone + fake - without) / 2
            rows.append(self._entry(cause, power, total, alone, max(without + total - fake, 0.0)))
            progress(done + 1, len(self.causes))
        for cause_name, power in ((ARITHMETIC, plain - fake), (CORRECTION, total - plain)):
            rest = _db(max(total - power, 0.0))
            rows.append(
                LedgerEntry("", "", cause_name, power / max(total, 1e-30), _db(max(power, 0.0)), rest)
            )
        rows.sort(key=lambda one: -one.share)
        return Ledger(
            self.name, _db(total), len(self.held), tuple(rows), 1.0 - sum(one.share for one in rows)
        )

    def _causes(self) -> Iterator[_Cause]:
        rig = self.rig
        first = len(rig.network.groups)
        types = rig.network.types(rig.ranges)
        beyond = clipped(rig.network.graph, types, rig.held)
        for k, group in enumerate(rig.network.groups):
            yield _Cause(k, ROUNDING)
            if any(beyond.get(v, 0.0) > 0 for v in group):
                yield _Cause(k, CLIPPING)
        for j in range(len(rig.network.weights)):
            yield _Cause(first + j, WEIGHT_ROUNDING)
            if not np.array_equal(self._kept(j), self._float(j)):
                yield _Cause(first + j, WEIGHT_CLIPPING)

    def _float(self, j: int) -> Array:
        found = self.rig.network.graph.const(self.rig.network.weights[j].value)
        assert found is not None
        return found

    def _kept(self, j: int) -> Array:
        """A weight clipped to its codes' range, not rounded. Codes that a rounding method chose make up for
        what they clip: there is no clipping apart from their rounding."""
        real = self._float(j)
        if self.rig.network.is_rounded(self.rig.network.weights[j]):
            return real
        quant = self.rig.network.weight_quant(self.rig.network.weights[j])
        scale, zero = quant.spread(real.shape)
        low, high = (quant.lo - zero) * scale, (quant.hi - zero) * scale
        return np.clip(real, low, high).astype(real.dtype)

    def _alone(self, cause: _Cause) -> float:
        """Noise with everything in float but this cause."""
        table, weights = self._with((FLOAT,) * len(self.levels))
        return self._fake(*self._changed(table, dict(weights), cause, on=True))

    def _without(self, cause: _Cause) -> float:
        """Noise with everything as built but this cause."""
        table, weights = self._with(self.levels)
        return self._fake(*self._changed(table, dict(weights), cause, on=False))

    def _changed(
        self, table: Table, weights: dict[str, Array], cause: _Cause, on: bool
    ) -> tuple[Table, dict[str, Array]]:
        """A unit with one of its causes alone (`on`), or with the other one alone."""
        rounds = cause.cause in (ROUNDING, WEIGHT_ROUNDING)
        first = len(self.rig.network.groups)
        if cause.unit < first:
            step, low, high, _ = self.rig.table(NARROW)[cause.unit].astype(np.float64)
            ends = (-BOUNDLESS, BOUNDLESS) if rounds == on else (low * FINER, high * FINER)
            table[cause.unit] = (step if rounds == on else step / FINER, *ends, 0.0)
            return table, weights
        j = cause.unit - first
        coded = dict(self.rig.weight(j, NARROW))
        value = self.rig.network.weights[j].value
        kept, real = self._kept(j), self._float(j)
        if rounds == on:
            coded[value] = (real + (coded[value] - kept)).astype(real.dtype)
        else:
            coded = {value: kept}
            for name in self.rig.weight(j, NARROW).keys() - {value}:
                weights.pop(name, None)
        return table, {**weights, **coded}

    def _with(self, levels: tuple[int, ...]) -> tuple[Table, dict[str, Array]]:
        table, weights = self.rig.mixture(levels)
        return table, dict(weights)

    def _fake(self, table: Table, weights: Mapping[str, Array]) -> float:
        return self._noise(self.rig.fake.run(self.held, table, weights))

    def _noise(self, made: Outputs) -> float:
        wrong = 0.0
        for found, real in zip(made[self.place], self.truth, strict=True):
            off = np.asarray(found, np.float64) - real
            wrong += float((off * off)[np.isfinite(off)].sum())
        return wrong / self.signal

    def _entry(self, cause: _Cause, power: float, total: float, alone: float, without: float) -> LedgerEntry:
        rig = self.rig
        _, tensor = rig.names[cause.unit]
        fix, cycles = "", 0.0
        if cause.cause in (CLIPPING, WEIGHT_CLIPPING):
            fix = "the range that min-max finds"
        elif cause.cause in (ROUNDING, WEIGHT_ROUNDING):
            bits, now = self.cost.bits(cause.unit, WIDE), self.cost.bits(cause.unit, NARROW)
            if bits > now:
                added = self.cost.delta(self.levels, cause.unit, WIDE)
                fix, cycles = f"{bits} bits", added / self.cost.cycles(self.levels)
        layer = layer_of(rig, cause.unit)
        return LedgerEntry(
            layer, tensor, cause.cause, power / max(total, 1e-30), _db(alone), _db(without), fix, cycles
        )


def _db(noise: float) -> float:
    return EXACT if noise <= 10 ** (-EXACT / 10) else float(-10 * np.log10(noise))


def lines(found: Ledger, most: int = 15) -> Iterator[str]:
    """As a table for a terminal: the largest parts, what the others sum up to, and the remainder."""
    yield (
        f'output "{found.output}": {found.sqnr:.1f} dB on {found.samples} held-out samples; its noise power '
        'by cause:'
    )
    yield ""
    shown = [one for one in found.entries[:most] if abs(one.share) >= 0.001]
    others = sum(one.share for one in found.entries if one not in shown)
    rows = [("share", "cause", "tensor", "layer", "dB without it", "fix", "cycles")]
    for one in shown:
        cycles = "" if not one.fix else f"{100 * one.cycles:+.1f} %"
        places = (one.cause, one.tensor, one.layer if one.layer != one.tensor else "")
        rows.append((f"{100 * one.share:6.1f} %", *places, f"{one.without:.1f}", one.fix, cycles))
    rows.append((f"{100 * others:6.1f} %", f"{len(found.entries) - len(shown)} others", "", "", "", "", ""))
    rows.append((f"{100 * found.remainder:6.1f} %", "remainder: what no split explains", "", "", "", "", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
