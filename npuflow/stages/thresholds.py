"""The range of every quantised activation, from its statistics alone: no inference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from npuflow.base.wording import counted
from npuflow.calibrators import CALIBRATORS
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import ends
from npuflow.ir.types import QuantType, fields_of, quant_of
from npuflow.quantise.config import Quantize, floats_alone
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.statistics import Statistics
from npuflow.statistics.statistics import ObservedStatistics
from npuflow.tune.improve import Trial, summary
from npuflow.tune.ranges import thresholds as choosing
from npuflow.tune.ranges.thresholds import Calibrate

BOUNDED, BEYOND = "bounded", 4.0          # how far, in what samples had
TAMED = (
    "a layer that divides, takes a root or a logarithm: look at what it reads, or set [[calibrate.layers]] "
    "bounds"
)
LONGER = "a larger [model] max_steps; results of such samples are those of its last step"


@dataclass(frozen=True)
class Thresholds(Artifact):
    """(lo, hi) by value id, and the method that chose it; codes where a table states them."""

    ranges: dict[str, tuple[float, float]]
    methods: dict[str, str]
    notes: tuple[str, ...] = ()
    codes: Mapping[str, QuantType] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()        # what unification of scales did
    endless: tuple[str, ...] = ()         # loops that samples had not ended when their steps were over

    @property
    def chosen(self) -> frozenset[str]:
        """Values whose range the build chose itself; those that a user or a table
        states are not among them."""
        own = ("tune", "unify")
        return frozenset(
            v for v, m in self.methods.items() if v not in self.codes and (m in CALIBRATORS or m in own)
        )

    def save(self, folder: Writer) -> None:
        rows = {
            name: {"lo": lo, "hi": hi, "method": self.methods[name]} for name, (lo, hi) in self.ranges.items()
        }
        folder.json("thresholds", rows)
        folder.json("notes", list(self.notes))
        if self.trials:
            folder.json("corrections", [asdict(t) for t in self.trials])
        if self.endless:
            folder.json("endless", list(self.endless))
        if self.codes:
            folder.json("codes", {name: fields_of(quant) for name, quant in self.codes.items()})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows = folder.json("thresholds")
        ranges = {name: (float(row["lo"]), float(row["hi"])) for name, row in rows.items()}
        methods = {name: str(row.get("method", "by hand")) for name, row in rows.items()}
        notes = tuple(folder.json("notes")) if "notes" in folder.names() else ()
        endless = tuple(folder.json("endless")) if "endless" in folder.names() else ()
        codes = folder.json("codes") if "codes" in folder.names() else {}
        trials = folder.json("corrections") if "corrections" in folder.names() else []
        stated = {name: quant_of(row) for name, row in codes.items()}
        return cls(ranges, methods, notes, stated, tuple(Trial(**t) for t in trials), endless)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "tensors": len(self.ranges),
            **dict(Counter(self.methods.values()).most_common(2)),
        }
        found |= summary(self.trials)
        strange = [note for note in self.notes if " NaN, " in note]
        endless = f"a loop has not ended: {'; '.join(self.endless)}"
        if self.endless:
            found |= {"warning": endless, "warning_hint": LONGER}
        if strange:
            more = (
                f" (and {len(strange) - 1} more: npuflow show thresholds RECIPE --log)"
                if len(strange) > 1
                else ""
            )
            text = f"the float model computes values that are not numbers: {strange[0]}{more}"
            text += f"; {endless}" if self.endless else ""
            found |= {"warning": text, "warning_hint": TAMED}
        return found


@stage(minor=True, unless=floats_alone)
def thresholds(
    graph: Parsed,
    placement: Placement,
    statistics: Statistics,
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
) -> Thresholds:
    """Ask each tensor's method for its range."""
    on_npu, history = placement.placed.on_npu, graph.applied
    source, known = graph.graph, statistics.content
    found = choosing.thresholds(source, known, calibrate, quantize, numerics, on_npu, history)
    for note in found.notes:
        log(note)
    bounds = dict(_bounded(graph, found))
    methods = {**found.methods, **dict.fromkeys(bounds, BOUNDED)}
    endless = tuple(_endless(source, known))
    for text in endless:
        log(f"a loop has not ended: {text}")
    return Thresholds({**found.ranges, **bounds}, methods, found.notes, endless=endless)


def _endless(graph: Graph, known: ObservedStatistics) -> Iterator[str]:
    """Loops whose end depends on data that some samples had not reached, in words."""
    for name, loop in ends(graph).items():
        samples = int(np.count_nonzero(known[name].sample_max > 0.5)) if name in known else 0
        if samples:
            yield f'"{loop}" in {samples} of {counted(len(known.samples), "sample")}'


def _bounded(graph: Parsed, found: choosing.ChosenThresholds) -> Iterator[tuple[str, tuple[float, float]]]:
    """Ranges of what the norms of massive streams make: far beyond what samples had, as one row outside of
    them is another token, and no further than any row can be."""
    for one in graph.massive.values():
        for name, (low, high) in one.bounds.items():
            if found.methods.get(name) in CALIBRATORS:
                least, most = found.ranges[name]
                yield name, (max(low, BEYOND * least), min(high, BEYOND * most))
