"""What is left of a model's accuracy: program and float model on the same labelled samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Doc, table_of
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.labels import label_file
from npuflow.input.data.listing import found
from npuflow.input.text.model import TextModel
from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array
from npuflow.metrics import METRICS, Metric, RowMetric, alike, is_ragged, stacked, unlike
from npuflow.run.state import SampleModel

LABELS = "an npz with a label array, a .csv of files and labels, a `labels` key, or a metric that needs none"
CHUNK = 32                                       # samples whose inputs are in memory at once
# what a figure may lose before that is a warning: a point, which 1 - 0.99 is a hair above
POINT = 0.01 + 1e-9
MANY = 32                                        # numbers of an embedding at least
SURE = 0.1                                       # what a Softmax gives the greatest of scores, on average
CLEAR = 30.0     # dB of an output from which on another arg-max is a tie or no answer at all


@dataclass(frozen=True)
class Evaluate(Data):
    """Labelled data, read as [data] reads its own, and the metric. Without `steps` those of [data] apply."""

    choose: Literal["random", "first", "balanced"] = "first"
    metric: Annotated[str, METRICS, Doc("the first figure of it is the one to watch")] = "agreement"
    # who runs the integers: whole tensors, the program's commands, the slow reference; the bits are the same
    by: Literal["executor", "simulator", "reference"] = "executor"

    @property
    def builtin(self) -> str:
        """Another text than that of the calibration."""
        return "evaluation.txt"


@dataclass(frozen=True)
class LabelledTable(Data, table="search.labelled"):
    """Labelled samples that judge thresholds, and their metric. Without `steps` those of [data] apply."""

    choose: Literal["random", "first", "balanced"] = "first"
    metric: Annotated[str, METRICS, Doc("the first figure of it judges")] = "top1"


@dataclass(frozen=True)
class JudgingTable(LabelledTable, table="precision.labelled"):
    """Labelled samples that judge widths by [precision] max_drop, and their metric. Without `steps` those of
    [data] apply."""


def labelled(evaluate: Data, data: Data, model: TextModel | None = None) -> dict[str, FoundSample]:
    """The samples of an evaluation, labels where the data or the label file have them. `model`: whose tokens
    texts become."""
    table = evaluate if evaluate.steps else replace(evaluate, steps=data.steps)
    try:
        listed = found(table, model)
    except DataError as fault:
        raise of_table(fault, evaluate) from None
    if evaluate.labels is None:
        return listed
    known = label_file(evaluate.labels.path)
    kept = {name: replace(one, label=known[name]) for name, one in listed.items() if name in known}
    if not kept:
        first = next(iter(known), "nothing")
        raise DataError(
            f'no sample has a label in "{evaluate.labels.text}"',
            because=f"samples are called {next(iter(listed))}, the labels' first is {first}",
            code="NF-METRIC-001",
        ).at(key=f"{table_of(type(evaluate))}.labels")
    return kept


def of_table(fault: DataError, table: Data) -> DataError:
    """The fault of reading data with the name of the table that says what to read."""
    name = f"[{table_of(type(table))}]"
    fault.hint = fault.hint.replace("[data]", name).replace("[[data.steps]]", f"[{name[:-1]}.steps]]")
    return fault


@dataclass(frozen=True)
class Score:
    """Figures of one evaluation; `delta` is program minus float."""

    metric: str
    samples: int
    figures: Mapping[str, float]
    baseline: Mapping[str, float]
    sqnr_db: Mapping[str, float]
    agreement: float | None
    npu_macs: float
    left_out: Mapping[str, str] = field(default_factory=dict)
    host_macs: int = 0
    # output -> samples in which its shape is another: not compared
    unlike: Mapping[str, int] = field(default_factory=dict)
    # which values of the metric's figures are
    better: Literal["higher", "lower"] = "higher"
    # outputs on which the first figure depends, where it is no more than a point worse
    reads: tuple[str, ...] = ()

    @property
    def delta(self) -> dict[str, float]:
        return {name: self.figures[name] - self.baseline[name] for name in self.figures}

    @property
    def beside(self) -> dict[str, float]:
        """The baseline's figures that can be told beside the program's: of the float model against itself
        there are no decibels."""
        return {name: value for name, value in self.baseline.items() if not name.endswith("_db")}

    @property
    def loss(self) -> float:
        """How much worse the first figure is than the float model's: as a difference of shares and of what
        is below 1, of larger figures (perplexities, say) as a share of the float model's. 0 where the float
        model has no such figure, or where other arg-maxes are no other answers; negative where the program
        is better."""
        watch = next(iter(self.figures))
        no_rows = self.agreement is None or next(iter(self.sqnr_db.values()), 0.0) >= CLEAR
        if watch not in self.beside or (watch == "agreement" and no_rows):
            return 0.0
        lost = self.delta[watch] if self.better == "lower" else -self.delta[watch]
        return lost / max(1.0, abs(self.baseline[watch]))

    @property
    def kept(self) -> bool:
        """Whether the float model has the first figure too, and it is at most a point worse."""
        watch = next(iter(self.figures))
        counts = watch in self.beside and (watch != "agreement" or self.agreement is not None)
        return counts and self.loss <= POINT


def score(
    samples: Iterable[tuple[Mapping[str, Array], Any]],
    program: SampleModel,
    reference: SampleModel,
    metric: Metric,
    name: str,
    npu_macs: float,
) -> Score:
    """Run both on every sample and compare."""
    if isinstance(metric, RowMetric):
        kept = ScoreRows(metric)
        for feed, label in samples:
            (made,), (truth,) = program.run_many([feed]), reference.run_many([feed])
            with _of_metric(name):
                kept.add(made, truth, label)
        if not kept.mine:
            raise DataError("there are no samples to evaluate", code="NF-METRIC-002")
        with _of_metric(name):
            own, real = metric.total(kept.mine), metric.total(kept.theirs)
        return Score(
            name, len(kept.mine), own, real, kept.sqnr_db, kept.agreement, npu_macs, unlike=kept.unlike,
            better=metric.better, reads=tuple(kept.noise) if len(kept.noise) == 1 else (),
        )
    labels: list[Any] = []
    mine: list[dict[str, Array]] = []
    theirs: list[dict[str, Array]] = []
    for part in _parts(samples):
        feeds = [feed for feed, _ in part]
        labels += [label for _, label in part]
        mine += program.run_many(feeds)
        theirs += reference.run_many(feeds)
    if not labels:
        raise DataError("there are no samples to evaluate", code="NF-METRIC-002")
    given = asked(metric, name, labels)
    outputs, truth = stacked(mine, theirs), stacked(theirs, mine)
    numbers = [
        n for n in truth if theirs[0][n].dtype.kind == "f" and unlike(truth[n], outputs[n]) < len(labels)
    ]
    apart = {n: count for n in truth if (count := unlike(truth[n], outputs[n]))}
    found = figures(metric, name, outputs, truth, given)
    scored = Score(
        name, len(labels), found, figures(metric, name, truth, truth, given),
        {n: decibels(truth[n], outputs[n]) for n in numbers}, _agreement(outputs, truth, numbers), npu_macs,
        unlike=apart, better=metric.better,
    )
    if scored.loss > POINT:
        return scored

    def figure(changed: Mapping[str, Array]) -> float | None:
        with np.errstate(all="ignore"):
            try:
                return figures(metric, name, {**outputs, **changed}, truth, given)[next(iter(found))]
            except DataError:
                return None

    return replace(scored, reads=_reads(outputs, figure, found[next(iter(found))]))


def _reads(
    outputs: Mapping[str, Array], figure: Callable[[Mapping[str, Array]], float | None], made: float
) -> tuple[str, ...]:
    """The outputs of which a metric's figure changes, or cannot be had, where they have the opposite sign."""
    if len(outputs) == 1:
        return tuple(outputs)
    return tuple(name for name in outputs if figure({name: _opposite(outputs[name])}) != made)


def _opposite(array: Array) -> Array:
    if is_ragged(array):
        held = np.empty(len(array), object)
        for i, one in enumerate(array):
            held[i] = _opposite(one)
        return held
    return ~array if array.dtype == bool else -array if array.dtype.kind in "fiu" else array


def figures(
    metric: Metric, name: str, outputs: Mapping[str, Array], truth: Mapping[str, Array], labels: Any
) -> dict[str, float]:
    """What the metric says; its errors have the place of its table."""
    with _of_metric(name):
        return metric(outputs, truth, labels)


@contextmanager
def _of_metric(name: str) -> Iterator[None]:
    try:
        yield
    except DataError as fault:
        raise fault.at(key=f"evaluate.{name}") from None


def ready(metric: Metric, key: str, outputs: Collection[str]) -> None:
    """Faults of a metric's options, and packages that it lacks, before samples are run; `key`: its table."""
    try:
        metric.ready(outputs)
    except DataError as fault:
        raise fault.at(key=key) from None


def asked(metric: Metric, name: str, labels: list[Any]) -> list[Any] | None:
    """The labels, if the metric asks for them."""
    if not metric.needs_labels:
        return None
    without = sum(label is None for label in labels)
    if without:
        raise DataError(
            f'the metric "{name}" needs labels; {without} of {len(labels)} samples have none',
            hint=LABELS, code="NF-METRIC-003",
        )
    return labels


def labels_there(metric: Metric, name: str, labels: Mapping[str, Any]) -> None:
    """A metric that asks for labels needs one of every sample."""
    without = [sample for sample, label in labels.items() if label is None]
    if metric.needs_labels and without:
        raise DataError(
            f'the metric "{name}" needs labels; {len(without)} of {len(labels)} samples have none',
            because=f"the first is {without[0]}", hint=LABELS, code="NF-METRIC-003",
        )


def _parts(
    samples: Iterable[tuple[Mapping[str, Array], Any]],
) -> Iterator[list[tuple[Mapping[str, Array], Any]]]:
    walk = iter(samples)
    while part := list(islice(walk, CHUNK)):
        yield part


def decibels(truth: Array, other: Array) -> float:
    """SQNR of the samples whose shapes are equal; 200 where there is no noise."""
    sums = SignalToNoise()
    for real, made in alike(truth, other):
        sums.add(real, made)
    return sums.decibels


def _agreement(
    outputs: Mapping[str, Array], truth: Mapping[str, Array], names: Sequence[str]
) -> float | None:
    """Of the first output, if it is a row of scores."""
    rows = truth[names[0]] if names else np.zeros(0)
    if is_ragged(rows) or rows.ndim != 2 or rows.shape[1] < 2 or not _are_scores(rows):
        return None
    return float(np.mean(outputs[names[0]].argmax(1) == rows.argmax(1)))


def _are_scores(rows: Array) -> bool:
    """Whether the greatest number of a row [samples, numbers] is an answer. Of an embedding it is one of
    many numbers of the same size: a vector of length one, or one of which a Softmax gives no number a tenth.
    Probabilities of several classes that may hold at once are scores too."""
    if rows.shape[1] < MANY:
        return True
    held = rows.astype(np.float64)
    if held.min() >= 0 and held.max() <= 1:
        return not np.allclose(np.linalg.norm(held, axis=1), 1.0, atol=0.01)
    return float(np.mean(1 / np.exp(held - held.max(1, keepdims=True)).sum(1))) >= SURE


@dataclass
class ScoreRows:
    """What is kept of the samples so far: rows of the metric for the program and the float model, sums of
    signal and noise by output, answers that are equal, and outputs whose shapes differ."""

    metric: RowMetric
    mine: list[Any] = field(default_factory=list)
    theirs: list[Any] = field(default_factory=list)
    noise: dict[str, SignalToNoise] = field(default_factory=dict)
    unlike: dict[str, int] = field(default_factory=dict)
    equal: int = 0
    rows: bool = True                     # whether the first output of numbers is a row of scores

    def add(self, made: Mapping[str, Array], truth: Mapping[str, Array], label: Any) -> None:
        """One sample through the program and through the float model."""
        self.mine.append(self.metric.row(made, truth, label))
        self.theirs.append(self.metric.row(truth, truth, label))
        numbers = [name for name in truth if truth[name].dtype.kind == "f"]
        for name in numbers:
            own = self.noise.setdefault(name, SignalToNoise())
            if made[name].shape == truth[name].shape:
                own.add(truth[name], made[name])
            else:
                self.unlike[name] = self.unlike.get(name, 0) + 1
        if not numbers or truth[numbers[0]].ndim != 2 or len(truth[numbers[0]]) != 1:
            self.rows = False
            return
        first = numbers[0]
        self.equal += int(np.argmax(made[first]) == np.argmax(truth[first]))

    @property
    def sqnr_db(self) -> dict[str, float]:
        count = len(self.mine)
        return {n: one.decibels for n, one in self.noise.items() if self.unlike.get(n, 0) < count}

    @property
    def agreement(self) -> float | None:
        return self.equal / len(self.mine) if self.rows else None
