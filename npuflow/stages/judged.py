"""What each range that [tune] tries does to the layers that read the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from npuflow.engine.calibrate.tune import Tune
from npuflow.engine.calibrate.tune import judged as judge
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Uses, stage
from npuflow.stages.candidates import Candidates
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.samples import Sample, feeds


@dataclass(frozen=True)
class Judged(Artifact):
    """The ranges, and [consumers, ranges]: squared error of what each consumer writes; no rows without consumers."""

    spans: tuple[tuple[float, float], ...]
    losses: npt.NDArray[np.float64]

    def save(self, folder: Writer) -> None:
        folder.json("spans", [list(span) for span in self.spans])
        folder.array("losses", self.losses)

    @classmethod
    def load(cls, folder: Reader) -> Judged:
        return cls(tuple((float(lo), float(hi)) for lo, hi in folder.json("spans")), folder.array("losses"))


@stage(over="candidates", when="tune", cpu="native", memory="1GB", batch=64, floats=True, lighter="[tune] samples = 2")
def judged(
    candidates: Items[Candidates],
    graph: Annotated[Parsed, Uses("to_onnx", "role")],
    placement: Placement,
    samples: Items[Sample],
    tune: Tune,
) -> Iterator[tuple[str, Judged]]:
    """Run the layers that read each tensor with every one of its ranges, on a few samples."""
    fed = feeds(samples, graph.graph, tune.samples)
    spans = {name: one.spans for name, one in candidates.items()}
    grids = {name: one.grid for name, one in candidates.items()}
    losses = judge(graph.graph, placement.placed.on_npu, spans, grids, fed)
    for name, tried in spans.items():
        yield name, Judged(tried, losses.get(name, np.zeros((0, len(tried)))))
