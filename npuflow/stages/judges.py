"""The labelled samples of [precision.labelled], which judge the widths by a metric; none of them takes
part in the evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.base.errors import RecipeError, Where
from npuflow.checks.evaluate import JudgingTable as Table
from npuflow.checks.evaluate import labelled as listed
from npuflow.flow.refs import Files, Listing
from npuflow.flow.stage import Items, View, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding
from npuflow.input.preprocess import Preprocess
from npuflow.input.text.model import TextModel
from npuflow.stages._reference import reference_of
from npuflow.stages.judging import Judging
from npuflow.stages.labelled import Labelled, listed_of, metric_judge, read_labelled
from npuflow.stages.parse import Parsed
from npuflow.tune.metric import MetricJudge


@dataclass(frozen=True)
class JudgingSample(Labelled):
    """One of them."""


def listing(
    judging: Table, data: Data, folding: Folding, numerics: Numerics, preprocess: Preprocess | None = None,
    model: TextModel | None = None,
) -> Listing:
    return listed_of(listed(judging, data, model), data, folding, numerics, preprocess)


@stage(over="files", files=listing, when="precision.labelled", batch=32, minor=True)
def judges(files: Files) -> Iterator[tuple[str, JudgingSample]]:
    """Read the samples, with their labels."""
    for name, one in read_labelled(files):
        yield name, JudgingSample(one.sample, one.label, one.identity)


@dataclass(frozen=True)
class LabelledJudges(View):
    """These samples and their metric, where the recipe names some, and the float network."""

    graph: Parsed
    judges: Items[JudgingSample] | None
    judging: Judging | None

    def drop(self, wanted: float | None) -> MetricJudge | None:
        """The judge of `max_drop`; None where the recipe asks for none."""
        if wanted is None:
            return None
        judges, judging = self.judges, self.judging
        if judges is None or judging is None:
            raise RecipeError(
                "max_drop needs labelled samples and a metric",
                where=Where(key="precision.max_drop"),
                hint='[precision.labelled] source = "...", metric = "top1"; '
                "they are left out of the evaluation",
                code="NF-RECIPE-045",
            )
        reference = reference_of(self.graph)
        return metric_judge(reference, judges, judging.metric, f"precision.labelled.{judging.name}")
