"""Thresholds by each method that [search] tries, and by a mixture of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from npuflow.engine.calibrate.thresholds import Calibrate, choices, thresholds
from npuflow.engine.calibrate.tune import Search, judged, spans_to_search
from npuflow.engine.quantize.config import Quantize
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Uses, stage
from npuflow.hw.target import Numerics
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.samples import Sample, feeds
from npuflow.stages.statistics import Statistics


@dataclass(frozen=True)
class Rival(Artifact):
    """(lo, hi) and method by value id."""

    ranges: dict[str, tuple[float, float]]
    methods: dict[str, str]

    def save(self, folder: Writer) -> None:
        rows = {name: {"lo": lo, "hi": hi, "method": self.methods[name]} for name, (lo, hi) in self.ranges.items()}
        folder.json("ranges", rows)

    @classmethod
    def load(cls, folder: Reader) -> Rival:
        rows = folder.json("ranges")
        return cls({n: (float(r["lo"]), float(r["hi"])) for n, r in rows.items()}, {n: str(r["method"]) for n, r in rows.items()})


@stage(when="search", cpu="native", memory="1GB", floats=True, lighter="[search] samples = 4")
def rivals(
    graph: Annotated[Parsed, Uses("to_onnx", "role", "output_range", "f")],
    placement: Placement,
    statistics: Statistics,
    samples: Items[Sample],
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
    search: Search,
) -> Iterator[tuple[str, Rival]]:
    """One item per method, named like it; "recipe": what the recipe's own table gives, which also stands where a rival
    has no say; "mix": for each tensor the method with the least error at its consumers."""
    source, on_npu = graph.graph, placement.placed.on_npu
    chosen = choices(source, statistics.content, calibrate, quantize, numerics, [])
    free = {name: one for name, one in chosen.items() if not one.fixed}
    own = thresholds(source, statistics.content, calibrate, quantize, numerics, on_npu, graph.applied)
    yield "recipe", Rival(dict(own.ranges), dict(own.methods))
    found = spans_to_search(free, search.methods)
    for method, ranges in found.items():
        yield method, Rival({**own.ranges, **ranges}, {**own.methods, **dict.fromkeys(ranges, method)})
    if not search.mix or len(found) < 2:
        return
    fed = feeds(samples, source, search.samples)
    spans = {name: [ranges[name] for ranges in found.values()] for name in free}
    losses = judged(source, on_npu, spans, {name: one.grid for name, one in free.items()}, fed)
    picks = {name: int(losses[name].sum(axis=0).argmin()) for name in losses}
    names = list(found)
    mixed, mixture = {n: spans[n][i] for n, i in picks.items()}, {n: names[i] for n, i in picks.items()}
    yield "mix", Rival({**own.ranges, **mixed}, {**own.methods, **mixture})
