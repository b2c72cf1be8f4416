"""How well the quantised network does its task with the thresholds of each rival of [search]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.base.errors import DataError
from npuflow.engine.calibrate.rate import Marks, by_name, mark
from npuflow.engine.correct.error import outputs_of
from npuflow.engine.evaluate import Labelled as Table
from npuflow.engine.evaluate import asked
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Uses, log, stage
from npuflow.hw.target import Numerics
from npuflow.ir.contracts import METRICS, Metric
from npuflow.stages.labelled import Labelled
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rivals import Rival


@dataclass(frozen=True)
class Marked(Artifact):
    """A rival's figures by the metric, and the float network's; the first one counts."""

    figures: Marks
    baseline: Marks

    def save(self, folder: Writer) -> None:
        folder.json("marks", [[name, value, self.baseline[name]] for name, value in self.figures.items()])

    @classmethod
    def load(cls, folder: Reader) -> Marked:
        rows = folder.json("marks")
        return cls({name: float(own) for name, own, _ in rows}, {name: float(real) for name, _, real in rows})

    @property
    def first(self) -> tuple[str, float]:
        return next(iter(self.figures.items()))

    def summary(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in self.figures.items()}


@stage(
    over="rivals", when="search.labelled", cpu="native", memory="1GB", batch=4, floats=True,
    lighter="[search.labelled] count = 100",
)
def marked(
    rivals: Items[Rival],
    graph: Annotated[Parsed, Uses("infer", "to_onnx", "role", "prepare", "channel_axis", "output_range", "shares_scale", "f")],
    placement: Placement,
    labelled: Items[Labelled],
    table: Table,
    quantize: Quantize,
    numerics: Numerics,
) -> Iterator[tuple[str, Marked]]:
    """Quantise with the rival's ranges, run the labelled samples and ask the metric."""
    source, on_npu = graph.graph, placement.placed.on_npu
    types = {name: source.type(name) for name in source.inputs}
    whole = [one for one in labelled.values() if not one.sample.content.broken]
    if not whole:
        raise DataError("no labelled sample could be read", code="NF-DATA-009")
    feeds = [one.sample.content.feed(types) for one in whole]
    metric: Metric = table.options or METRICS[table.metric]()
    labels = asked(metric, table.metric, [one.label for one in whole])
    truth = by_name(outputs_of(source, feeds), source.outputs)
    baseline = dict(metric(truth, truth, labels))
    log(f"float network on {len(whole)} samples: {', '.join(f'{n} {v:.4f}' for n, v in baseline.items())}")
    for name, one in rivals.items():
        stranded = placement.placed.stranded
        made = quantize_graph(source, on_npu, one.ranges, quantize, numerics, graph.stated, stranded).graph
        yield name, Marked(mark(outputs_of(made, feeds), truth, source.outputs, metric, labels), baseline)
