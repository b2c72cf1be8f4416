"""How far every quantised tensor is from the float network, on a few calibration samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.base.tables import Config, Range
from npuflow.checks import fidelity as engine
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.samples import Sample, feeds


@dataclass(frozen=True)
class FidelityTable(Config, table="fidelity"):
    """Layer-by-layer comparison of the quantised with the float network."""

    samples: Annotated[int, Range(1, None)] = 4
    """How many calibration samples are compared."""


@dataclass(frozen=True)
class Fidelity(Artifact):
    """By value id: SQNR, cosine, share of codes at an end of the range, and pairs of values."""

    tensors: Mapping[str, engine.TensorFidelity]

    def summary(self) -> dict[str, Any]:
        known = {name: f.sqnr for name, f in self.tensors.items() if f.sqnr is not None}
        if not known:
            return {}
        worst = min(known, key=lambda name: known[name])
        return {"worst_sqnr_db": round(known[worst], 2), "worst_tensor": worst}


@stage(lighter="[fidelity] samples = 1", minor=True)
def fidelity(
    parse: Parsed,
    quantize: Quantized,
    samples: Items[Sample],
    fidelity: FidelityTable,
    numerics: Numerics,
) -> Fidelity:
    """Compare tensor by tensor."""
    fed = list(feeds(samples, parse.graph, fidelity.samples))
    found = engine.measure(parse.graph, quantize.graph, numerics, fed)
    for name, f in found.items():
        log(f"{name}: {f}")
    return Fidelity(found)
