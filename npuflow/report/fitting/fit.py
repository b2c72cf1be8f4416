"""A target's set-up costs, bandwidths and rates by least squares, from measured layer times.

The commands of a program stay as they are; the clock runs them on the target in question. Errors are ratios,
so that short layers count as long ones do. A constant that no measured layer depends on keeps its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.hw.target import Target
from npuflow.report.fitting.measured import Floats, Subject

Mask = npt.NDArray[np.bool_]

LEAST = 4  # measured layers
STEP = 0.02  # of a logarithm, for derivatives: costs are whole cycles
KEPT = 0.01  # weight of staying where it was
OUTLIER = 0.2  # a residual from which it counts less than its square
STARTS = 12  # at most: the first and those that leave a local minimum
LEAP = float(np.log(2))
GAIN = 0.01  # of the cost: what another start has to save
DETERMINED = 0.02  # summed change of all logarithms of times for a change by e


@dataclass(frozen=True)
class Constant:
    """A number of the target: its table and key, its bounds, and whether it is a whole number."""

    low: float
    high: float
    whole: bool = True


CONSTANTS: Mapping[str, Constant] = {
    "compute.fill_cycles": Constant(0, 1 << 16),
    "compute.pass_cycles": Constant(0, 1 << 12),
    "compute.command_cycles": Constant(0, 1 << 16),
    "compute.depthwise_macs": Constant(1, 1 << 16),
    "compute.vector_lanes": Constant(1, 1 << 12),
    "memory.external_bandwidth": Constant(0.01, 1e4, whole=False),
    "dma.setup_cycles": Constant(0, 1 << 16),
    "dma.row_cycles": Constant(0, 1 << 12),
}


@dataclass(frozen=True)
class Row:
    """A layer: cycles measured, by the target as it was, and by the fitted one."""

    program: str
    layer: str
    measured: float
    before: float
    after: float
    held_out: bool


@dataclass(frozen=True)
class FittedConstants:
    """Each constant before and after, those that no measured layer depends on, and the layers."""

    constants: Mapping[str, tuple[float, float]]
    undetermined: tuple[str, ...]
    rows: tuple[Row, ...]

    def error(self, after: bool, held_out: bool) -> float:
        """Mean of |predicted / measured - 1|."""
        rows = [row for row in self.rows if row.held_out == held_out]
        return float(np.mean([abs((row.after if after else row.before) / row.measured - 1) for row in rows]))


@dataclass(frozen=True)
class Fit(FittedConstants):
    """The fitted target."""

    target: Target


def measured_layers(values: Sequence[Floats], held_out: float) -> tuple[list[tuple[int, int]], Mask]:
    """Program and layer of every measured value (the others are NaN), and which of them are held out."""
    there = [(p, g) for p, one in enumerate(values) for g in np.flatnonzero(~np.isnan(one)).tolist()]
    every = max(2, round(1 / held_out)) if held_out else 0
    return there, np.array([bool(every) and i % every == every - 1 for i in range(len(there))], bool)


def fit(
    subjects: Sequence[Subject], times: Sequence[Floats], start: Target, names: Sequence[str], held_out: float
) -> Fit:
    """Fit the named constants to the measured layers but for the share that is held out, which judges."""
    there, apart = measured_layers(times, held_out)
    if len(there) - int(apart.sum()) < LEAST:
        raise DataError(
            f"{len(there)} layers are measured, {int(apart.sum())} of them held out",
            because=f"a fit needs {LEAST} besides",
            hint="measure more layers, or --held-out 0",
            code="NF-RUN-035",
        )
    truth = np.array([times[p][g] for p, g in there])

    def predicted(target: Target) -> Floats:
        found = [one.cycles(target) for one in subjects]
        return np.array([found[p][g] for p, g in there])

    codes = {name: _coded(_get(start, name), CONSTANTS[name]) for name in names}
    origin = np.array(list(codes.values()))
    solved, slopes = _solved(predicted, truth, ~apart, start, names, origin)
    dark = tuple(name for name, slope in zip(names, slopes, strict=True) if slope < DETERMINED)
    kept = {n: _get(start, n) if n in dark else _value(x, n) for n, x in zip(names, solved, strict=True)}
    target = with_constants(start, {name: _rounded(value, CONSTANTS[name]) for name, value in kept.items()})
    before, after = predicted(start), predicted(target)
    layers = [list(one.layers) for one in subjects]
    rows = tuple(
        Row(subjects[p].name, layers[p][g], *figures)
        for (p, g), figures in zip(
            there,
            zip(truth.tolist(), before.tolist(), after.tolist(), apart.tolist(), strict=True),
            strict=True,
        )
    )
    changed = {name: (_get(start, name), _get(target, name)) for name in names}
    return Fit(changed, dark, rows, target)


def _solved(
    predicted: Any, truth: Floats, chosen: Any, start: Target, names: Sequence[str], origin: Floats
) -> tuple[Floats, Floats]:
    """The best codes of the constants, and how much all times depend on each."""
    from scipy.optimize import least_squares

    goal = np.log1p(truth[chosen])

    def residuals(x: Floats) -> Floats:
        values = {name: _value(code, name) for name, code in zip(names, x - 1 + origin, strict=True)}
        found = np.log1p(predicted(with_constants(start, values))[chosen])
        return np.concatenate([found - goal, KEPT * (x - 1)])

    def cost(x: Floats) -> float:
        return float((np.sqrt(1 + (residuals(x) / OUTLIER) ** 2) - 1).sum())

    low = np.array([_coded(CONSTANTS[n].low, CONSTANTS[n]) for n in names]) - origin + 1 - 1e-9
    high = np.array([_coded(CONSTANTS[n].high, CONSTANTS[n]) for n in names]) - origin + 1 + 1e-9
    leaps = [np.eye(len(names))[i] * leap for i in range(len(names)) for leap in (-LEAP, LEAP)]

    def found(begin: Floats) -> Any:
        return least_squares(
            residuals, begin, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER, diff_step=STEP, max_nfev=25
        )

    done, left = found(np.ones(len(names))), STARTS - 1
    while left:
        # slow rates and long set-ups explain the same layers: leave a local minimum by halves and doubles
        begins = sorted((np.clip(done.x + leap, low, high) for leap in leaps), key=cost)[:left]
        for begin in begins:
            other, left = found(begin), left - 1
            if other.cost < done.cost * (1 - GAIN):
                done = other
                break
        else:
            break
    slopes = np.abs(done.jac[: len(goal)]).sum(axis=0)
    return np.asarray(done.x - 1 + origin), np.asarray(slopes)


def with_constants(target: Target, values: Mapping[str, float]) -> Target:
    """The target with other constants, by "table.key"."""
    tables: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        table, _, key = name.partition(".")
        tables.setdefault(table, {})[key] = value
    made = {table: replace(getattr(target, table), **changes) for table, changes in tables.items()}
    return replace(target, **made)


def _get(target: Target, name: str) -> float:
    table, _, key = name.partition(".")
    return float(getattr(getattr(target, table), key))


def _coded(value: float, constant: Constant) -> float:
    """A constant as what is solved for: a logarithm, of one more where 0 is allowed."""
    return float(np.log1p(value) if constant.low == 0 else np.log(value))


def _value(code: float, name: str) -> float:
    one = CONSTANTS[name]
    value = float(np.expm1(code) if one.low == 0 else np.exp(code))
    return min(max(value, one.low), one.high)


def _rounded(value: float, constant: Constant) -> float:
    return round(value) if constant.whole else float(f"{value:.4g}")
