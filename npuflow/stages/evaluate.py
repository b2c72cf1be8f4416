"""Accuracy of the program beside the float model's, on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Self

from npuflow.base.errors import DataError, ModelError
from npuflow.base.wording import counted, first_line
from npuflow.checks import evaluate as scoring
from npuflow.checks.evaluate import Evaluate, Score
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, View, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding, adapted
from npuflow.input.data.read import samples as read
from npuflow.input.data.sequence import labelled as labelled_steps
from npuflow.input.pixels.pixels import Pixels, given, model_inputs, pixel_inputs
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.input.text.model import TextModel
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, fields_of
from npuflow.metrics import METRICS, Metric
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import SessionModel
from npuflow.program.container import Program
from npuflow.run.floats import float_session, plain_session
from npuflow.run.interpret import Interpreter
from npuflow.run.state import Following, SampleModel, zeros
from npuflow.runner.feed import dequantize
from npuflow.runner.simulated import ProgramRunner
from npuflow.stages._reference import reference_of
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.judges import JudgingSample
from npuflow.stages.labelled import Labelled, identities
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.tune.quality import answers
from npuflow.whole.execute.executor import Executor

FEW = 100                                        # samples of which one is a point or more
LOST = "npuflow why accuracy RECIPE; [precision] max_drop chooses widths by a metric"


@dataclass(frozen=True)
class Evaluation(Artifact):
    """The figures of one evaluation."""

    score: Score

    def save(self, folder: Writer) -> None:
        folder.json("score", {**asdict(self.score), "delta": self.score.delta})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        held = dict(folder.json("score"))
        held.pop("delta", None)
        return cls(Score(**held))

    def summary(self) -> dict[str, Any]:
        one = self.score
        watch = next(iter(one.figures))
        found: dict[str, Any] = {watch: round(one.figures[watch], 4)}
        if watch in one.beside:
            found |= {"float": round(one.beside[watch], 4), "delta": round(one.delta[watch], 4)}
        if one.agreement is not None and watch != "agreement":
            found["agreement"] = round(one.agreement, 4)
        if one.sqnr_db and watch != "sqnr_db":
            found["sqnr_db"] = round(next(iter(one.sqnr_db.values())), 2)
        if one.loss > scoring.POINT:
            found |= {"warning": _lost(one), "warning_hint": LOST}
        return {
            **found,
            "npu_macs": round(one.npu_macs, 4),
            "host_macs": one.host_macs,
            "samples": one.samples,
        }


def _lost(one: Score) -> str:
    """What a figure that is more than a point worse says."""
    watch = next(iter(one.figures))
    apart = f"{100 * one.loss:.1f} " + ("points" if abs(one.baseline[watch]) <= 1.0 else "%")
    few = " (few samples: one is a point or more)" if one.samples < FEW else ""
    return (
        f"{watch} is {apart} worse than the float network's ({one.figures[watch]:.4g}, float "
        f"{one.baseline[watch]:.4g}) on {counted(one.samples, 'evaluation sample')}{few}"
    )


def listing(
    evaluate: Evaluate, data: Data, folding: Folding, numerics: Numerics,
    preprocess: Preprocess | None = None, model: TextModel | None = None,
) -> Listing:
    known = scoring.labelled(evaluate, data, model)
    labels = {name: one.label for name, one in known.items()}
    try:
        scoring.labels_there(evaluate.options or METRICS[evaluate.metric](), evaluate.metric, labels)
    except DataError as fault:
        raise fault.at(key="evaluate.metric") from None
    listed = adapted(known, data, folding, numerics, pixel_zeros(preprocess))
    return {
        name: Item(tuple(one.files), {"read": dict(one.detail), "label": one.label})
        for name, one in listed.items()
    }


class _Float:
    """An ONNX model in onnxruntime, one sample at a time."""

    def __init__(self, model: SessionModel, start: Callable[[SessionModel], Any] = float_session) -> None:
        self.session = start(model)
        self.names = [output.name for output in self.session.get_outputs()]

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return [
            dict(zip(self.names, self.session.run(self.names, dict(feed)), strict=True)) for feed in samples
        ]


class _Named:
    """A model whose outputs go by the float model's names (where a value is dequantised its id differs),
    integer ones as the real numbers that they stand for.
    """

    def __init__(
        self,
        model: SampleModel,
        own: Sequence[str],
        names: Sequence[str],
        quants: Sequence[Any] | None = None,
    ) -> None:
        self.model = model
        self.ports = list(zip(own, names, quants or [None] * len(own), strict=True))

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = self.model.run_many(samples)
        return [{name: _real(one[own], quant) for own, name, quant in self.ports} for one in found]


def _quant(graph: Graph, name: str) -> Mapping[str, Any] | None:
    quant = graph.values[name].quant
    return None if quant is None else fields_of(quant)


def _real(array: Array, quant: Mapping[str, Any] | None) -> Array:
    return array if quant is None or array.dtype.kind == "f" else dequantize(array, quant)


@dataclass(frozen=True)
class KnownLabels(View):
    """Labelled samples that judged a choice of the build."""

    labelled: Items[Labelled] | None
    judges: Items[JudgingSample] | None

    @property
    def identities(self) -> frozenset[str]:
        some = (one for one in (self.labelled, self.judges) if one is not None)
        return frozenset(one.identity for part in some for one in part.values())


@stage(files=listing, when="evaluate", cpu="native", floats=True, lighter="[evaluate] count = 100")
def evaluate(
    files: Files,
    graph: Parsed,
    quantized: Quantized,
    compiled: CompiledProgram,
    known: KnownLabels,
    evaluate: Evaluate,
    numerics: Numerics,
) -> Evaluation:
    """Run the program's integers beside the float model's numbers: on whole tensors, or as `by` says."""
    seen = known.identities
    if evaluate.by == "simulator":
        program = simulated(compiled.program, graph)
    else:
        own = quantized.graph.outputs
        kind = Executor if evaluate.by == "executor" else Interpreter
        integers: SampleModel = kind(quantized.graph, numerics)
        program = _Named(integers, own, graph.graph.outputs, [_quant(quantized.graph, name) for name in own])
    rest = without(files, seen)
    if len(rest) < len(files):
        log(f"left out: {counted(len(files) - len(rest), 'sample')} that judged the search")
    score = scored(rest, reference_of(graph), quantized.share, program, evaluate)
    score = replace(score, host_macs=quantized.host_macs)
    for name, why in score.left_out.items():
        log(f"left out {name}: {why}")
    for name, count in score.unlike.items():
        log(
            f"{name}: not compared on {count} of {counted(score.samples, 'sample')}, where its shape is "
            "another than in the float model"
        )
    share = f"{100 * score.npu_macs:.2f} % of the multiply-accumulates on the NPU"
    log(f"{counted(score.samples, 'sample')}, {share}, {score.host_macs:,} on the host")
    for figure, value in score.figures.items():
        beside = (
            ""
            if figure not in score.beside
            else f", float {score.baseline[figure]:.4f}, difference {score.delta[figure]:+.4f}"
        )
        log(f"{figure}: {value:.4f}{beside}")
    return Evaluation(score)


def without(files: Files, judges: Collection[str]) -> Files:
    """The listed samples that are none of those."""
    if not judges:
        return files
    known = dict(identities((name, item.files, item.detail["read"]) for name, item in files.items()))
    return Files({name: item for name, item in files.items() if known[name] not in judges})


class _Fed:
    """A model of its own inputs, fed for the compiled graph's: what pixels stand for, or the pixels."""

    def __init__(
        self,
        model: SampleModel,
        pixels: Mapping[str, Pixels],
        held: Mapping[str, tuple[Pixels, str]] | None = None,
    ) -> None:
        self.model, self.pixels, self.held = model, pixels, held or {}

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return self.model.run_many([self.fed(sample) for sample in samples])

    def fed(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        found = model_inputs(sample, self.pixels)
        found.update({name: given(found[name], one, dtype, name) for name, (one, dtype) in self.held.items()})
        return found


def simulated(program: Program, graph: Parsed) -> SampleModel:
    """A program on the simulator, its outputs by the float graph's names, as real numbers."""
    return named(program, graph, ProgramRunner(program))


def named(program: Program, graph: Parsed, runner: SampleModel) -> SampleModel:
    """The same for whatever runs the program under its own ids."""
    ports = program.meta["outputs"]
    model = _Fed(runner, graph.pixels)
    return _Named(model, [p["name"] for p in ports], graph.graph.outputs, [p.get("quant") for p in ports])


def exported(model: SessionModel, graph: Parsed) -> SampleModel:
    """Another ONNX form of the graph, such as the exported QDQ model, in onnxruntime: as it is written,
    without the integer kernels that onnxruntime would put in the place of float operators between roundings,
    which saturate on some processors.
    """
    try:
        made = _Float(model, plain_session)
    except Exception as fault:  # onnxruntime's errors share no public base class
        raise ModelError(
            "onnxruntime cannot load the model",
            because=first_line(fault),
            code="NF-MODEL-004",
        ) from fault
    return _Named(_Fed(made, graph.pixels, pixel_inputs(made.session)), made.names, graph.graph.outputs)


def score_axes(graph: Graph) -> dict[str, int | None]:
    """By output of a fixed shape the dimension of the scores, counted from the end, where a Softmax gives an
    answer for each step or pixel."""
    found: dict[str, int | None] = {}
    for name in (o for o in graph.outputs if graph.type(o).is_static):
        (kind, axis), shape = answers(graph, name), graph.type(name).shape
        many = kind == "argmax" and prod(shape) > shape[axis]
        found[name] = axis % len(shape) - len(shape) if many else None
    return found


def scored(files: Files, graph: Graph, share: float, program: SampleModel, table: Evaluate) -> Score:
    """Read the listed samples and compare the program with the float graph."""
    types = {name: graph.type(name) for name in graph.inputs}
    start = zeros(graph)
    broken: dict[str, str] = {}

    def feeds() -> Iterator[tuple[Mapping[str, Array], Any]]:
        plain = {name: (item.files, item.detail["read"]) for name, item in files.items()}
        for name, sample in read(plain):
            if sample.broken:
                broken[name] = sample.broken
                continue
            try:
                yield from labelled_steps(sample, types, start, files[name].detail["label"])
            except DataError as fault:
                raise scoring.of_table(fault, table).at(item=name) from None

    metric: Metric = (table.options or METRICS[table.metric]()).along(score_axes(graph))
    scoring.ready(metric, f"evaluate.{table.metric}", graph.outputs)
    scoring.labels_there(metric, table.metric, {name: item.detail["label"] for name, item in files.items()})
    reference: SampleModel = _Float(session_model(graph))
    if graph.state:
        program, reference = (Following(one, graph.state, start) for one in (program, reference))
    score = scoring.score(feeds(), program, reference, metric, table.metric, share)
    # rows that a selection keeps are no numbers to compare place by place
    known = {name: level for name, level in score.sqnr_db.items() if graph.type(name).is_static}
    if score.reads:                        # what goes on as state decides the outputs of the next steps
        score = replace(score, reads=(*score.reads, *(made for made, _ in graph.state)))
    if score.agreement is None and table.metric == "agreement" and getattr(metric, "axis", None) is not None:
        score = replace(score, agreement=score.figures["agreement"])
    return replace(score, left_out=broken, sqnr_db=known)
