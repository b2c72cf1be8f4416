"""The labelled samples of [precision.labelled], which judge the widths by a metric; none of them takes
part in the evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.base.errors import DataError, RecipeError, Where
from npuflow.checks.evaluate import JudgingTable as Table
from npuflow.checks.evaluate import asked, ready
from npuflow.flow.refs import Files, Listing
from npuflow.flow.stage import Items, View, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding
from npuflow.input.preprocess import Preprocess
from npuflow.ir.graph import Graph
from npuflow.stages.judging import Judging
from npuflow.stages.labelled import Labelled, listed_of, read_labelled
from npuflow.tune.precision.drop import MetricDrop


@dataclass(frozen=True)
class Judge(Labelled):
    """One of them."""


def listing(
    judging: Table, data: Data, folding: Folding, numerics: Numerics, preprocess: Preprocess | None = None
) -> Listing:
    return listed_of(judging, data, folding, numerics, preprocess)


@stage(over="files", files=listing, when="precision.labelled", batch=32, minor=True)
def judges(files: Files) -> Iterator[tuple[str, Judge]]:
    """Read the samples, with their labels."""
    for name, one in read_labelled(files):
        yield name, Judge(one.sample, one.label, one.identity)


@dataclass(frozen=True)
class LabelledJudges(View):
    """These samples and their metric, where the recipe names some."""

    judges: Items[Judge] | None
    judging: Judging | None


def metric_drop(graph: Graph, labelled: LabelledJudges, wanted: float | None) -> MetricDrop | None:
    """The judge of `max_drop`; None where the recipe asks for none."""
    if wanted is None:
        return None
    judges, judging = labelled.judges, labelled.judging
    if judges is None or judging is None:
        raise RecipeError(
            "max_drop needs labelled samples and a metric",
            where=Where(key="precision.max_drop"),
            hint='[precision.labelled] source = "...", metric = "top1"; they are left out of the evaluation',
            code="NF-RECIPE-045",
        )
    whole = [one for one in judges.values() if not one.sample.content.broken]
    if not whole:
        raise DataError("no labelled sample could be read", code="NF-DATA-009")
    types = {name: graph.type(name) for name in graph.inputs}
    metric = judging.metric
    ready(metric, f"precision.labelled.{judging.name}", graph.outputs)
    labels = asked(metric, judging.name, [one.label for one in whole])
    feeds = [one.sample.content.feed(types) for one in whole]
    return MetricDrop(graph, metric, labels, feeds)
