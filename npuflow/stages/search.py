"""Thresholds by the method whose quantised network comes closest to the float one,
where [search] asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from npuflow.base.errors import RecipeError, Where
from npuflow.base.wording import counted
from npuflow.calibrators import CALIBRATORS
from npuflow.checks.evaluate import LabelledTable as Table
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, part, stage
from npuflow.metrics import METRICS, Metric
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._candidates import PlacedNetwork, RecipeCandidate
from npuflow.stages._reference import reference_of
from npuflow.stages.labelled import Labelled, metric_judge
from npuflow.stages.samples import feeds
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.judge import Judge, Rating
from npuflow.tune.metric import Marks
from npuflow.tune.precision.range_search import SearchTable, judged, spans_to_search
from npuflow.tune.ranges.thresholds import Calibrate, choices
from npuflow.tune.ranges.thresholds import thresholds as chosen_by


@dataclass(frozen=True)
class RivalRanges(Artifact):
    """(lo, hi) and method by value id."""

    ranges: dict[str, tuple[float, float]]
    methods: dict[str, str]

    def save(self, folder: Writer) -> None:
        rows = {
            name: {"lo": lo, "hi": hi, "method": self.methods[name]} for name, (lo, hi) in self.ranges.items()
        }
        folder.json("ranges", rows)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows = folder.json("ranges")
        return cls(
            {n: (float(r["lo"]), float(r["hi"])) for n, r in rows.items()},
            {n: str(r["method"]) for n, r in rows.items()},
        )


@dataclass(frozen=True)
class RatedRanges(Artifact, rows=("rating",)):
    """A rival's figures."""

    rating: Rating

    def summary(self) -> dict[str, Any]:
        return {"sqnr_db": round(self.rating.sqnr, 2)}


@dataclass(frozen=True)
class ScoredRanges(Artifact):
    """A rival's figures by the metric, and the float network's; the first one counts."""

    figures: Marks
    baseline: Marks

    def save(self, folder: Writer) -> None:
        folder.json("marks", [[name, value, self.baseline[name]] for name, value in self.figures.items()])

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows = folder.json("marks")
        return cls({name: float(own) for name, own, _ in rows}, {name: float(real) for name, _, real in rows})

    @property
    def first(self) -> tuple[str, float]:
        return next(iter(self.figures.items()))

    def summary(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in self.figures.items()}


@part(cpu="native", memory="1GB", floats=True, lighter="[search] samples = 4")
def rivals(
    placed: PlacedNetwork,
    statistics: Statistics,
    samples: TuningSamples,
    calibrate: Calibrate,
    search: SearchTable,
) -> Iterator[tuple[str, RivalRanges]]:
    """One item per method, named like it; "recipe": what the recipe's own table gives, which also stands
    where a rival has no say; "mix": for each tensor the method with the least error at its consumers."""
    graph, plain = placed.graph, placed.plain
    source, on_npu, quantize, numerics = plain.graph, plain.placed.on_npu, plain.scheme, plain.numerics
    chosen = choices(source, statistics.content, calibrate, quantize, numerics, [])
    free = {name: one for name, one in chosen.items() if not one.fixed}
    own = chosen_by(source, statistics.content, calibrate, quantize, numerics, on_npu, graph.applied)
    yield "recipe", RivalRanges(dict(own.ranges), dict(own.methods))
    if not samples.choose:
        log("one sample cannot both give ranges and judge them: the recipe's are kept")
        return
    found = spans_to_search(free, search.methods)
    for method, ranges in found.items():
        yield method, RivalRanges({**own.ranges, **ranges}, {**own.methods, **dict.fromkeys(ranges, method)})
    if not search.mix or len(found) < 2:
        return
    fed = feeds(samples.fit, source, search.samples)
    spans = {name: [ranges[name] for ranges in found.values()] for name in free}
    losses = judged(source, on_npu, spans, {name: one.grid for name, one in free.items()}, fed)
    picks = {name: int(losses[name].sum(axis=0).argmin()) for name in losses}
    names = list(found)
    mixed, mixture = {n: spans[n][i] for n, i in picks.items()}, {n: names[i] for n, i in picks.items()}
    yield "mix", RivalRanges({**own.ranges, **mixed}, {**own.methods, **mixture})


@part(
    over="rivals", when="search.labelled", cpu="native", memory="1GB", batch=4, floats=True,
    lighter="[search.labelled] count = 100",
)
def marked(
    rivals: Items[RivalRanges],
    recipe: RecipeCandidate,
    labelled: Items[Labelled],
    table: Table,
) -> Iterator[tuple[str, ScoredRanges]]:
    """Quantise with the rival's ranges, run the labelled samples and ask the metric."""
    graph = recipe.placed.graph
    metric: Metric = table.options or METRICS[table.metric]()
    by = metric_judge(reference_of(graph), labelled, metric, f"search.labelled.{table.metric}")
    scores = ", ".join(f"{n} {v:.4f}" for n, v in by.baseline.items())
    log(f"float network on {counted(len(by.judge.held), 'sample')}: {scores}")
    for name, one in rivals.items():
        candidate = recipe.with_thresholds(taken(recipe.thresholds, name, one)).with_(graph=graph.graph)
        figures = by.marks(by.judge.score(candidate).made)
        yield name, ScoredRanges(figures, by.baseline)


def winner(
    rated: Items[RatedRanges],
    thresholds: Thresholds,
    rivals: Items[RivalRanges],
    marked: Items[ScoredRanges] | None,
    search: SearchTable,
) -> Thresholds:
    """Replace the recipe's ranges, where they come from a method, if a rival is
    better by the stated objective."""
    ratings = {name: one.rating for name, one in rated.items()}
    marks = {name: one.first for name, one in marked.items()} if marked is not None else {}
    if search.objective == "metric" and not marks:
        raise RecipeError(
            'objective = "metric" needs labelled samples', where=Where(key="search.objective"),
            hint='[search.labelled] source = "...", metric = "top1"; they are left out of the evaluation',
            code="NF-RECIPE-041",
        )

    def worth(name: str) -> tuple[float, float, bool]:
        by_metric = marks[name][1] if search.objective == "metric" else 0.0
        return (
            by_metric,
            ratings[name].by("cosine" if search.objective == "cosine" else "sqnr"),
            name == "recipe",
        )

    first = max(ratings, key=worth)
    for name in sorted(ratings, key=worth, reverse=True):
        one, figure = ratings[name], "{} {:.4f}, ".format(*marks[name]) if marks else ""
        log(f"{name}: {figure}{one.sqnr:.2f} dB, cosine {one.cosine:.6f}{', taken' if name == first else ''}")
    return taken(thresholds, first, rivals[first])


def taken(thresholds: Thresholds, name: str, rival: RivalRanges) -> Thresholds:
    """The thresholds with a rival's ranges where a method chose them; those of "recipe" are as they were."""
    if name == "recipe":
        return thresholds
    ranges, methods = dict(thresholds.ranges), dict(thresholds.methods)
    for value, span in rival.ranges.items():
        if value not in thresholds.codes and methods[value] in CALIBRATORS:
            ranges[value], methods[value] = span, rival.methods[value]
    return replace(thresholds, ranges=ranges, methods=methods)


@stage(
    refines="thresholds",
    when="search",
    after=("clipping", "ranges"),
    parts=(rivals, marked),
    over="rivals",
    merge=winner,
    cpu="native",
    memory="1GB",
    batch=4,
    floats=True,
    lighter="[search] samples = 4",
)
def search(
    rivals: Items[RivalRanges],
    recipe: RecipeCandidate,
    samples: TuningSamples,
    table: SearchTable,
) -> Iterator[tuple[str, RatedRanges]]:
    """Quantise with the rival's ranges and run some samples of the calibration set."""
    graph = recipe.placed.graph
    source = with_fixed_outputs(graph.graph)
    judges = samples.choose or samples.fit  # alone, the recipe's ranges have no rival
    fed = list(feeds(judges, source, table.samples))
    judge = Judge(source, fed, reference=with_fixed_outputs(reference_of(graph)))
    for name, one in rivals.items():
        candidate = recipe.with_thresholds(taken(recipe.thresholds, name, one))
        yield name, RatedRanges(judge.score(candidate).rating)
