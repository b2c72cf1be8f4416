"""How close the quantised network comes to the float one with the thresholds of each rival of [search]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.engine.calibrate.rate import Rating, rate
from npuflow.engine.calibrate.tune import Search
from npuflow.engine.correct.error import outputs_of
from npuflow.engine.quantize.config import Quantize
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Uses, stage
from npuflow.hw.target import Numerics
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rivals import Rival
from npuflow.stages.samples import Sample, feeds


@dataclass(frozen=True)
class Rated(Artifact):
    """A rival's figures."""

    rating: Rating

    def save(self, folder: Writer) -> None:
        folder.json("rating", [self.rating.sqnr, self.rating.cosine])

    @classmethod
    def load(cls, folder: Reader) -> Rated:
        return cls(Rating(*map(float, folder.json("rating"))))

    def summary(self) -> dict[str, Any]:
        return {"sqnr_db": round(self.rating.sqnr, 2)}


@stage(over="rivals", when="search", cpu="native", memory="1GB", batch=4, floats=True, lighter="[search] samples = 4")
def rated(
    rivals: Items[Rival],
    graph: Annotated[Parsed, Uses("infer", "to_onnx", "role", "prepare", "channel_axis", "output_range", "shares_scale", "f")],
    placement: Placement,
    samples: Items[Sample],
    quantize: Quantize,
    numerics: Numerics,
    search: Search,
) -> Iterator[tuple[str, Rated]]:
    """Quantise with the rival's ranges and run some samples of the calibration set."""
    source, placed = graph.graph, placement.placed
    fed = list(feeds(samples, source, search.samples))
    truth = outputs_of(source, fed)
    for name, one in rivals.items():
        found = rate(
            source, placed.on_npu, one.ranges, quantize, numerics, graph.stated, fed, truth, placed.stranded
        )
        yield name, Rated(found)
