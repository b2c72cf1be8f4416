"""What every tensor and weight alone does to the outputs when it is quantised and
everything else is float."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, progress, stage
from npuflow.ir.noise import decibels
from npuflow.stages._calibration import CalibrationData
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages.baseline import Baseline
from npuflow.strategies import Noise
from npuflow.tune.precision.config import Probing
from npuflow.tune.precision.sensitivity import noises


@dataclass(frozen=True)
class Sensitivity(Artifact):
    """`noise` [units, samples, outputs]: noise over signal; `names`: (kind, name) of every unit; `signal`
    [all samples that choose, outputs]: energies. Empty where the recipe's widths are enough."""

    names: tuple[tuple[str, str], ...]
    noise: Noise
    signal: Noise = field(default_factory=lambda: np.zeros((0, 0)))

    def summary(self) -> dict[str, Any]:
        if not self.names:
            return {}
        worst = int(self.noise.mean((1, 2)).argmax())
        return {"units": len(self.names), "largest": self.names[worst][1]}


@stage(cpu="native", memory="1GB", floats=True, minor=True)
def sensitivity(
    baseline: Baseline, candidate: RecipeCandidate, data: CalibrationData, probing: Probing
) -> Sensitivity:
    """Run a few held-out samples with one tensor or weight quantised at a time."""
    if not baseline.search:
        return Sensitivity((), np.zeros((0, 0, 0)))
    chosen = candidate.thresholds.chosen
    ready = data.width_harness(candidate.fake_quantised(), chosen, probing)
    found = noises(ready, probing.probes, progress)
    order = np.argsort(-found.mean((1, 2)), kind="stable")
    for k in order[:20]:
        kind, name = ready.names[k]
        log(f"{kind} {name}: {decibels(1.0, float(found[k].mean())):.1f} dB alone")
    return Sensitivity(tuple(ready.names), found, ready.probed_signal)
