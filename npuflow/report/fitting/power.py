"""A target's table of energy by least squares, from a log of the energy or power of measured layers.

The energy of a layer is a sum of what its commands do, each times a constant, so that the fit is linear.
Errors are ratios. No constant is negative; one that no measured layer depends on keeps its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from npuflow.base.errors import DataError
from npuflow.hw.elements import ELEMENTS, WIDEST
from npuflow.hw.energy import SPARSE_SKIPS, Energy, FloatMacEnergy, MacEnergy
from npuflow.report.fitting import measured
from npuflow.report.fitting.fit import FittedConstants, Mask, Row, measured_layers
from npuflow.report.fitting.measured import Floats, Subject
from npuflow.report.profile.energy import CountedWork
from npuflow.report.profile.measure import Profile
from npuflow.sim.clock import timeline_of

UNITS = {"uj": 1.0, "nj": 1e-3, "mj": 1e3}   # in microjoules
POWER = "mw"
KEPT = 1e-3                               # weight of staying where it was, beside a layer's ratio
PICO = 1e-6                               # microjoules of a picojoule
BYTES = {"local_byte": "local", "shared_byte": "shared", "external_byte": "external"}


@dataclass(frozen=True)
class PowerFit(FittedConstants):
    """The fitted table; layers are in microjoules."""

    energy: Energy


def read(path: Path, subjects: Sequence[Subject], milliseconds: Sequence[Floats]) -> list[Floats]:
    """Microjoules of every layer of every program; NaN where nothing was measured. Of a power the energy is
    that of the layer's measured time."""
    rows = measured.read(path, (*UNITS, POWER), "energies or powers of layers")
    unit = next(u for u in (*UNITS, POWER) if u in rows[0])
    found = measured.by_layer(rows, subjects, unit, UNITS.get(unit, 1.0))
    return found if unit != POWER else [p * t for p, t in zip(found, milliseconds, strict=True)]


def fit(
    subjects: Sequence[Subject], spent: Sequence[Floats], milliseconds: Sequence[Floats],
    start: Energy | None, held_out: float,
) -> PowerFit:
    """The table whose sums come closest to the measured energies, but for those of the share that judges."""
    there, apart = measured_layers(spent, held_out)
    works = [list(_works(one)) for one in subjects]
    table = _complete(start or Energy(), [works[p][g] for p, g in there])
    names = list(_constants(table))
    if len(there) - int(apart.sum()) < 1:
        raise DataError(
            "the power log measures no layer that the fit may use", hint="measure more layers",
            code="NF-RUN-055",
        )
    times = [float(np.nan_to_num(milliseconds[p][g])) for p, g in there]
    counts = np.array(
        [_column(table, works[p][g], t) for (p, g), t in zip(there, times, strict=True)], np.float64
    )
    truth = np.array([spent[p][g] for p, g in there])
    before = np.array([_constants(table)[name] for name in names])
    dark = np.asarray(~(counts[~apart] > 0).any(axis=0), bool)
    solved = np.where(dark, before, _solved(counts[~apart], truth[~apart], before, dark))
    rounded = np.array([float(f"{value:.4g}") for value in solved])
    layers = [list(one.layers) for one in subjects]
    rows = tuple(
        Row(subjects[p].name, layers[p][g], float(m), float(b), float(a), bool(h))
        for (p, g), m, b, a, h in zip(there, truth, counts @ before, counts @ rounded, apart, strict=True)
    )
    pairs = zip(names, before.tolist(), rounded.tolist(), strict=True)
    constants = {f"energy.{name}": (old, new) for name, old, new in pairs}
    hidden = tuple(f"energy.{name}" for name, gone in zip(names, dark, strict=True) if gone)
    source = "fitted to a power log by npuflow target fit"
    made = replace(_with(table, dict(zip(names, rounded.tolist(), strict=True))), source=source)
    return PowerFit(constants, hidden, rows, made)


def _solved(counts: Floats, truth: Floats, before: Floats, dark: Mask) -> Floats:
    """Constants of the least squared ratios, none below zero; a little is kept of what they were."""
    from scipy.optimize import nnls

    scale = np.where(dark, 1.0, np.abs(counts).max(axis=0))
    rows = counts / truth[:, None] / scale
    stay = KEPT * np.eye(len(scale)) * rows.max(axis=0)
    left, right = np.vstack([rows, stay]), np.concatenate([np.ones(len(truth)), stay @ (before * scale)])
    found, _ = nnls(left, right)
    return np.asarray(found / scale)


def _works(one: Subject) -> Iterator[CountedWork]:
    """What the commands of each layer do."""
    profile = Profile(one.program, one.order, timeline_of(one.program, one.order))
    for members in one.layers.values():
        yield profile.work(np.flatnonzero(np.isin(profile.nodes, members)).tolist())


def _complete(table: Energy, works: Sequence[CountedWork]) -> Energy:
    """The table with an entry for every arithmetic that was measured, and one for any integers."""
    widths = {one for work in works for one in work.macs}
    integers = table.macs or (MacEnergy(8, 8, 0.0), MacEnergy(WIDEST, WIDEST, 0.0))
    known = {one.type for one in table.float_macs}
    floats = {n for _, _, n in widths if n and ELEMENTS[n].sparse is None} - known
    more = (FloatMacEnergy(name, 0.0) for name in sorted(floats))  # type: ignore[arg-type]
    return replace(table, macs=integers, float_macs=(*table.float_macs, *more))


def _constants(table: Energy) -> dict[str, float]:
    """Every number of a table by its name."""
    found = {f"macs {one.activations} x {one.weights}": one.pj for one in table.macs}
    found |= {f"float_macs {one.type}": one.pj for one in table.float_macs}
    return found | {name: getattr(table, name) for name in (*BYTES, "vector_op", "idle_mw")}


def _with(table: Energy, values: Mapping[str, float]) -> Energy:
    macs = tuple(replace(e, pj=values[f"macs {e.activations} x {e.weights}"]) for e in table.macs)
    floats = tuple(replace(e, pj=values[f"float_macs {e.type}"]) for e in table.float_macs)
    return replace(
        table, macs=macs, float_macs=floats, local_byte=values["local_byte"],
        shared_byte=values["shared_byte"], external_byte=values["external_byte"],
        vector_op=values["vector_op"], idle_mw=values["idle_mw"],
    )


def _column(table: Energy, work: CountedWork, milliseconds: float) -> list[float]:
    """Microjoules that one unit of each constant adds to a layer."""
    found = dict.fromkeys(_constants(table), 0.0)
    for (activations, weights, number), count in work.macs.items():
        sparse = bool(number) and ELEMENTS[number].sparse is not None
        if number and not sparse:
            found[f"float_macs {number}"] += count * PICO
            continue
        entry = table.entry(activations, weights)
        share = 1 / SPARSE_SKIPS if sparse else 1.0
        found[f"macs {entry.activations} x {entry.weights}"] += share * count * PICO
    for name, memory in BYTES.items():
        found[name] = getattr(work, memory) * PICO
    found["vector_op"], found["idle_mw"] = work.operations * PICO, milliseconds
    return list(found.values())
