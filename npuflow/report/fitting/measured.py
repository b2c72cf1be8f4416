"""Measured layer times: a CSV file, and the layers of a program that its rows are about."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, suggestion
from npuflow.hw.target import Target
from npuflow.program.container import Program
from npuflow.program.order import Order, order_of
from npuflow.report.profile.measure import Profile
from npuflow.report.profile.path import critical_path
from npuflow.sim.clock import timeline_of

UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}  # in microseconds
CYCLES = "cycles"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """A program that was measured, and its layers: names, and the nodes of each."""

    name: str
    program: Program
    order: Order
    layers: Mapping[str, tuple[int, ...]]

    def cycles(self, target: Target) -> Floats:
        """Every layer's part of the critical path on a target, as `npuflow profile` reports it."""
        found = Profile(self.program, self.order, timeline_of(self.program, self.order, target))
        nodes = found.nodes.tolist()
        spent = np.zeros(len(self.program.meta["nodes"]))
        for step in critical_path(found.timeline, self.order, found.kinds, found.blockers, nodes, target):
            spent[step["node"]] += step["cycles"]
        return np.array([spent[list(members)].sum() for members in self.layers.values()])


def subject(name: str, program: Program) -> Subject:
    """A program with the layers that have commands; nodes of one name are one layer."""
    order = order_of(program)
    found = Profile(program, order, timeline_of(program, order))
    layers: dict[str, tuple[int, ...]] = {}
    for node in sorted(set(found.nodes.tolist())):
        layers[found.name(node)] = (*layers.get(found.name(node), ()), node)
    return Subject(name, program, order, layers)


def read(
    path: Path, units: Sequence[str] = (*UNITS, CYCLES), what: str = "layer times"
) -> list[Mapping[str, str]]:
    """The rows of a CSV file with a header, in one of the units; empty ones are left out."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.DictReader(file) if any((v or "").strip() for v in row.values() if v)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f'"{path}" is not a readable CSV file', because=str(error), code="NF-RUN-030"
        ) from None
    unit = [u for u in units if rows and u in rows[0]]
    if not rows or "layer" not in rows[0] or len(unit) != 1:
        raise DataError(
            f'"{path}" has no {what}',
            because=f"its columns are {', '.join(rows[0]) if rows else 'none'}",
            hint=f"columns layer, one of {', '.join(units)}, and program where there are several",
            code="NF-RUN-031",
        )
    return list(rows)


def measured(
    rows: Sequence[Mapping[str, str]], subjects: Sequence[Subject], clock_mhz: float
) -> list[Floats]:
    """Cycles of every layer of every program; NaN where nothing was measured. Rows of one layer add up."""
    unit = next(u for u in (*UNITS, CYCLES) if u in rows[0])
    return by_layer(rows, subjects, unit, 1.0 if unit == CYCLES else UNITS[unit] * clock_mhz)


def by_layer(
    rows: Sequence[Mapping[str, str]], subjects: Sequence[Subject], unit: str, scale: float
) -> list[Floats]:
    """A column of the rows for every layer of every program, scaled; NaN where nothing was measured."""
    places = [{name: i for i, name in enumerate(one.layers)} for one in subjects]
    found = [np.full(len(one.layers), np.nan) for one in subjects]
    for number, row in enumerate(rows, 2):
        which = _subject(row.get("program") or "", subjects, number)
        layer, text = (row["layer"] or "").strip(), (row[unit] or "").strip()
        if layer not in places[which]:
            raise DataError(
                f'line {number}: the program "{subjects[which].name}" has no layer "{layer}"',
                hint=suggestion(layer, list(places[which])),
                code="NF-RUN-032",
            )
        try:
            taken = float(text) * scale
        except ValueError:
            taken = -1.0
        if not 0 < taken < 1e15:
            raise DataError(f'line {number}: "{text}" is not a positive number of {unit}', code="NF-RUN-033")
        index = places[which][layer]
        before = found[which][index]
        found[which][index] = taken + (0.0 if np.isnan(before) else before)
    return found


def _subject(name: str, subjects: Sequence[Subject], line: int) -> int:
    if not name.strip() and len(subjects) == 1:
        return 0
    names = [one.name for one in subjects]
    if name.strip() not in names:
        raise DataError(
            f'line {line}: "{name}" is not one of the programs',
            because=f"programs: {', '.join(names)}",
            hint="the column program has the names of the files, without .npu",
            code="NF-RUN-034",
        )
    return names.index(name.strip())
