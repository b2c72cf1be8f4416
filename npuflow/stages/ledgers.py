"""The noise of the network's outputs, split by layer and cause: `npuflow why accuracy RECIPE`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.base.tables import Config, Range
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, progress, stage
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import CalibrationData
from npuflow.stages._chosen import ChosenCandidate
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.input_check import InputCheck
from npuflow.stages.quantize import Quantized
from npuflow.tune.precision.config import Probing
from npuflow.tune.precision.ledger import Ledger, ledger, lines
from npuflow.tune.precision.problem import cost_of


@dataclass(frozen=True)
class LedgerTable(Config, table="ledger"):
    """An account of each output's noise; the table switches it on, `npuflow why
    accuracy` runs it in any case."""

    outputs: Annotated[int, Range(1, None)] = 4
    """Outputs that are split, the worst first, at most."""


@dataclass(frozen=True)
class Ledgers(Artifact, about=("reason", "inputs")):
    """By output, the worst first. `reason`: why there is none; `inputs`: what is wrong
    with the samples themselves."""

    ledgers: tuple[Ledger, ...] = ()
    reason: str = ""
    inputs: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        if not self.ledgers:
            return {"not_split": self.reason} if self.reason else {}
        worst = self.ledgers[0]
        first = worst.entries[0]
        return {
            "output": worst.output,
            "sqnr_db": round(worst.sqnr, 2),
            "largest": f"{first.cause} of {first.tensor}",
        }


@stage(when="ledger", cpu="native", memory="1GB", floats=True, minor=True)
def ledgers(
    chosen: ChosenCandidate,
    data: CalibrationData,
    quantized: Quantized,
    input_check: InputCheck,
    table: LedgerTable,
    probing: Probing,
    planned: PlannedTarget,
) -> Ledgers:
    """Switch every cause on alone and off alone on the held-out samples."""
    if data.is_random:
        return Ledgers(reason="the calibration samples are random numbers")
    network, thresholds = chosen.fake_quantised(), chosen.choices.thresholds
    free = thresholds.chosen if thresholds is not None else frozenset()
    ready = data.harness(network, free, probing.samples, probing.held_out)
    if not ready.judge.held or not network.groups or not ready.judge.parts:
        return Ledgers(reason="no held-out sample, nothing on the NPU, or no output of real numbers")
    cost = cost_of(ready, planned.target)
    columns = range(len(ready.judge.parts))
    made = with_fixed_outputs(quantized.graph)
    found = [ledger(ready, made, cost, column, progress) for column in columns[: table.outputs]]
    found.sort(key=lambda one: one.sqnr)
    for one in found:
        for line in lines(one):
            log(line)
    return Ledgers(tuple(found), inputs=input_check.apart)
