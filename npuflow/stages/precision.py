"""Bit widths by need: the overrides that bring every output within the budget at the least cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from npuflow.engine.calibrate.thresholds import Calibrate
from npuflow.engine.correct.config import Correct
from npuflow.engine.precision.config import Precision as Table
from npuflow.engine.precision.config import Probing
from npuflow.engine.precision.fakequant import Network
from npuflow.engine.precision.feedback import budget_of
from npuflow.engine.precision.problem import SearchProblem, cost_of
from npuflow.engine.quantize.config import Override, Quantize
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Compute, Dma, Host, Memory, Numerics, Target
from npuflow.stages._held_out import rig
from npuflow.stages.baseline import Baseline
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.stages.sensitivity import Sensitivity
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.strategies import FLOAT, NARROW, STRATEGIES, WIDE, Output, Strategy


@dataclass(frozen=True)
class Precision(Artifact):
    """Overrides as a recipe writes them and ranges of what they widen; outputs before and after; estimated
    cycles, as multiples of those with the recipe's widths."""

    overrides: tuple[Override, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    before: tuple[Output, ...] = ()
    after: tuple[Output, ...] = ()
    cycles: float = 1.0
    holds: bool = True
    trials: tuple[str, ...] = ()

    def save(self, folder: Writer) -> None:
        folder.json("overrides", [asdict(one) for one in self.overrides])
        folder.json("ranges", {name: list(span) for name, span in self.ranges.items()})
        folder.json("outputs", {k: [asdict(o) for o in getattr(self, k)] for k in ("before", "after")})
        folder.json("about", {"cycles": self.cycles, "holds": self.holds, "trials": list(self.trials)})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows = [{**row, "layers": tuple(row["layers"])} for row in folder.json("overrides")]
        outputs, about = folder.json("outputs"), folder.json("about")
        before, after = (tuple(Output(**o) for o in outputs[k]) for k in ("before", "after"))
        ranges = {name: (float(lo), float(hi)) for name, (lo, hi) in folder.json("ranges").items()}
        overrides = tuple(Override(**row) for row in rows)
        return cls(overrides, ranges, before, after, about["cycles"], about["holds"], tuple(about["trials"]))

    def summary(self) -> dict[str, Any]:
        if not self.overrides:
            least = min((one.sqnr for one in self.before), default=None)
            return {} if least is None else {"wide_tensors": 0, "sqnr_db": round(least, 2)}
        names = {"bits": "wide_tensors", "weight_bits": "wide_weights", "float": "float_layers"}
        layers = {kind: sum(len(o.layers) for o in self.overrides if getattr(o, kind)) for kind in names}
        worst = min(self.after, key=lambda one: min(one.sqnr, one.low))
        was = next(one for one in self.before if one.name == worst.name)
        found: dict[str, Any] = {names[kind]: count for kind, count in layers.items() if count}
        return {
            **found,
            "sqnr_db": f"{was.sqnr:.1f} -> {worst.sqnr:.1f}",
            "estimated_cycles": f"{self.cycles:.2f}x",
        }


@stage(cpu="native", memory="1GB", floats=True)
def precision(
    baseline: Baseline,
    sensitivity: Sensitivity,
    graph: Parsed,
    placement: Placement,
    thresholds: Thresholds,
    statistics: Statistics,
    rounded: Rounded | None,
    samples: Items[Sample],
    calibrate: Calibrate,
    precision: Table,
    probing: Probing,
    correct: Correct,
    quantize: Quantize,
    numerics: Numerics, compute: Compute, memory: Memory, dma: Dma, host: Host,
) -> Precision:
    """Ask the strategy for a level of every unit, and write it as overrides."""
    if not baseline.search or not len(sensitivity.noise):
        return Precision(before=baseline.outputs, after=baseline.outputs, holds=not baseline.search)
    stated = {**graph.stated, **thresholds.codes}
    known = (rounded or Rounded()).weights
    network = Network(graph.graph, placement.placed, quantize, numerics, stated, known)
    ready = rig(
        graph, network, thresholds, statistics.content, calibrate, samples, probing.samples, probing.held_out
    )
    cost = cost_of(ready, Target(numerics=numerics, compute=compute, memory=memory, dma=dma, host=host))
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        log(line)

    narrow = (NARROW,) * len(ready.names)
    budget = budget_of(precision, graph.graph)
    problem = SearchProblem(
        ready, cost, budget, lambda: list(sensitivity.noise), probing.probes, correct.bias != "off", tell,
        verdicts={narrow: baseline.outputs},
    )
    strategy: Strategy = precision.options or STRATEGIES[precision.strategy]()
    levels = strategy(problem)
    after = tuple(problem.verified(levels))
    choice, holds = ready.choice(levels), budget.holds(after)
    cycles = cost.cycles(levels) / cost.cycles(narrow)
    wide, floats = sum(x == WIDE for x in levels), sum(x == FLOAT for x in levels)
    log(f"taken: {wide} of {len(levels)} wide, {floats} float, about {cycles:.2f} times the cycles")
    return Precision(choice.overrides, choice.ranges, baseline.outputs, after, cycles, holds, tuple(told))
