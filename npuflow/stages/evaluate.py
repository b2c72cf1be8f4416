"""Accuracy of the program beside the float model's, on labelled data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from npuflow.engine import evaluate as scoring
from npuflow.engine.data import Data
from npuflow.engine.data_read import samples as read
from npuflow.engine.evaluate import Evaluate, Score
from npuflow.engine.interpret import Interpreter
from npuflow.engine.observe import session
from npuflow.engine.runner import Runner
from npuflow.engine.to_onnx import export_model
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Uses, log, stage
from npuflow.hw.target import Numerics
from npuflow.ir.contracts import METRICS, Metric
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.stages.codegen import Compiled
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.quantize import Quantized


@dataclass(frozen=True)
class Evaluation(Artifact):
    """The figures of one evaluation."""

    score: Score

    def save(self, folder: Writer) -> None:
        folder.json("score", {**asdict(self.score), "delta": self.score.delta})

    @classmethod
    def load(cls, folder: Reader) -> Evaluation:
        held = dict(folder.json("score"))
        held.pop("delta", None)
        return cls(Score(**held))

    def summary(self) -> dict[str, Any]:
        one = self.score
        watch = next(iter(one.figures))
        found: dict[str, Any] = {
            watch: round(one.figures[watch], 4), "float": round(one.baseline[watch], 4),
            "delta": round(one.delta[watch], 4),
        }  # fmt: skip
        if one.agreement is not None and watch != "agreement":
            found["agreement"] = round(one.agreement, 4)
        if one.sqnr_db and watch != "sqnr_db":
            found["sqnr_db"] = round(next(iter(one.sqnr_db.values())), 2)
        return {**found, "npu_macs": round(one.npu_macs, 4), "samples": one.samples}


def listing(evaluate: Evaluate, data: Data) -> Listing:
    listed = scoring.labelled(evaluate, data)
    return {name: Item(tuple(one.files), {"read": dict(one.detail), "label": one.label}) for name, one in listed.items()}


class _Float:
    """The float model, one sample at a time."""

    def __init__(self, graph: Graph) -> None:
        self.session, self.names = session(export_model(graph)), list(graph.outputs)

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return [dict(zip(self.names, self.session.run(self.names, dict(feed)), strict=True)) for feed in samples]


class _Integers:
    """The reference interpreter."""

    def __init__(self, graph: Graph, numerics: Numerics) -> None:
        self.interpreter = Interpreter(graph, numerics)

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return [self.interpreter.run(feed) for feed in samples]


class _Named:
    """A model whose outputs go by the float model's names: where a value is dequantised its id differs."""

    def __init__(self, model: scoring.Model, own: Sequence[str], names: Sequence[str]) -> None:
        self.model, self.pairs = model, list(zip(own, names, strict=True))

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return [{name: found[own] for own, name in self.pairs} for found in self.model.run_many(samples)]


@stage(files=listing, when="evaluate", cpu="native", floats=True)
def evaluate(
    files: Files,
    graph: Annotated[Parsed, Uses("to_onnx")],
    placement: Placement,
    quantized: Annotated[Quantized, Uses("integer", "to_onnx")],
    compiled: Compiled,
    evaluate: Evaluate,
    numerics: Numerics,
) -> Evaluation:
    """Run the program on the simulator (or its integers on the reference) beside the float model."""
    types = {name: graph.graph.type(name) for name in graph.graph.inputs}
    broken: dict[str, str] = {}

    def feeds() -> Iterator[tuple[Mapping[str, Array], Any]]:
        plain = {name: (item.files, item.detail["read"]) for name, item in files.items()}
        for name, sample in read(plain):
            if sample.broken:
                broken[name] = sample.broken
            else:
                yield sample.feed(types), files[name].detail["label"]

    if evaluate.by == "simulator":
        own = [entry["name"] for entry in compiled.program.meta["outputs"]]
        program = _Named(Runner(compiled.program), own, graph.graph.outputs)
    else:
        program = _Named(_Integers(quantized.graph, numerics), quantized.graph.outputs, graph.graph.outputs)
    metric: Metric = evaluate.options or METRICS[evaluate.metric]()
    share = placement.placed.share
    score = scoring.score(feeds(), program, _Float(graph.graph), metric, evaluate.metric, share)
    for name, why in broken.items():
        log(f"left out {name}: {why}")
    log(f"{score.samples} samples, {100 * score.npu_macs:.2f} % of the multiply-accumulates on the NPU")
    for figure, value in score.figures.items():
        log(f"{figure}: {value:.4f}, float {score.baseline[figure]:.4f}, difference {score.delta[figure]:+.4f}")
    return Evaluation(Score(**{**asdict(score), "left_out": broken}))
