"""Whether the rewritten float graph still computes what the source model does, on a
few calibration samples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from npuflow.base.errors import ModelError
from npuflow.base.tables import Config, Range
from npuflow.checks import rewrite_check as engine
from npuflow.checks.rewrite_check import OutputError, RewriteCulprit, SourceModel
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files
from npuflow.flow.stage import Items, log, stage
from npuflow.frontends import Runnable
from npuflow.input.pixels.pixel_padding import exactly_padded
from npuflow.input.pixels.pixels import model_inputs
from npuflow.input.sources import address, gathered
from npuflow.ir.graph import Graph
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import SessionModel, fed_from
from npuflow.onnx.run import CannotRunError
from npuflow.rewrite.rewrite import Applied
from npuflow.stages.model import Model, ModelTable, written
from npuflow.stages.parse import Parsed, ReadingOptions, rewritten
from npuflow.stages.samples import Sample, feeds

AFTER = "a step after the rewrites"


@dataclass(frozen=True)
class RewriteCheckTable(Config, table="rewrite_check"):
    """Comparison of the rewritten float graph with the source model."""

    samples: Annotated[int, Range(0, None)] = 2
    """How many calibration samples both are run on."""


@dataclass(frozen=True)
class RewriteCheck(Artifact, rows=("culprits",), about=("cured", "samples", "reason")):
    """The error of every output, what moved it, whether the graph is right without that,
    and why nothing was compared."""

    errors: tuple[OutputError, ...] = ()
    culprits: tuple[RewriteCulprit, ...] = ()
    cured: bool = False
    samples: int = 0
    reason: str = ""

    @property
    def worst(self) -> OutputError | None:
        """The output that is farthest off, if there is one."""
        return max(
            self.errors,
            key=lambda e: float("inf") if e.relative is None else e.relative / e.limit,
            default=None,
        )

    def summary(self) -> dict[str, Any]:
        if self.worst is None:
            return {"compared": f"nothing: {self.reason}"}
        error = self.worst.note if self.worst.relative is None else float(f"{self.worst.relative:.2g}")
        found = {"outputs": len(self.errors), "largest_error": error, "samples": self.samples}
        return {**found, "warning": self.text(), "warning_hint": self.hint()} if self.worst.moved else found

    def text(self) -> str:
        """What is wrong with the outputs, and which rule did it."""
        assert self.worst is not None
        one = self.worst
        away = (
            one.note
            if one.relative is None
            else f"{one.absolute:.3g} off ({shown(one.relative)} of its largest value)"
        )
        found = (
            f'the rewritten float graph does not compute what the model does: the output "{one.name}": {away}'
        )
        return "; ".join([found, *map(cause, self.culprits)])

    def hint(self) -> str:
        rules = [c.change.rule for c in self.culprits if c.change.rule not in (engine.READING, AFTER)]
        if not rules:
            return "npuflow show rewrite_check RECIPE --log; please report it with the model"
        what = "restores every output of the model" if self.cured else "is not enough"
        return f"[parse] skip = {json.dumps(rules)} {what}; please report it with the model"


def shown(share: float | None) -> str:
    """A relative error for the eye."""
    return "not comparable" if share is None else f"{100 * share:.3g} %" if share > 1e-3 else f"{share:.1e}"


def cause(culprit: RewriteCulprit) -> str:
    """What a change did to the outputs, in words."""
    one = culprit.change
    if one.rule in (engine.READING, AFTER):
        return f"{one.rule} moved it"
    return (
        f'the rule "{one.rule}" moved it from {shown(culprit.before)} to {shown(culprit.after)} '
        f'({one.line()})'
    )


@stage(files=written, cpu="native", floats=True, minor=True)
def rewrite_check(
    files: Files,
    source: Model,
    reading: ReadingOptions,
    graph: Parsed,
    samples: Items[Sample],
    rewrite_check: RewriteCheckTable,
) -> RewriteCheck:
    """Run both on the same samples; where they differ by more than float32 rounding, replay
    the rewrites to name the rule."""
    fed = list(feeds(samples, graph.graph, rewrite_check.samples))
    found = _checked(files["model"].files[0], source, reading, graph, fed)
    if found.reason:
        log(f"not compared: {found.reason}")
    for e in found.errors:
        noise = f", the model itself {e.noise:.1e} when it is not optimised" if e.noise else ""
        error = f"largest error {e.absolute:.3g}, {shown(e.relative)} of its largest value"
        log(f"{e.name}: {e.note or error}{noise}")
    for one in found.culprits:
        log(f"warning: {cause(one)}")
    return found


def _checked(
    path: Path, read: Model, reading: ReadingOptions, parsed: Parsed, fed: list[Any]
) -> RewriteCheck:
    model, parse = reading.model, reading.parse
    # Padding with whole pixels is known to be off, and by how much; `quantize` reports it.
    graph = exactly_padded(parsed.whole, parsed.borders)
    if not fed:
        return RewriteCheck(reason="no samples")
    try:
        real = [model_inputs(feed, parsed.pixels) for feed in fed]
        runnable, rounding = _runnable(address(model.path, path), read, model, parse.most)
        fewer = model.max_steps is not None
        original = SourceModel(runnable, graph.outputs, real, rounding, fewer)
    except CannotRunError as fault:
        return RewriteCheck(reason=f"onnxruntime does not run the model as it is written: {fault}")
    errors = original.errors(graph, fed)
    if not any(e.moved for e in errors):
        return RewriteCheck(errors, samples=len(fed))
    if not original.repeats:
        return RewriteCheck(reason="the model gives other numbers every time it runs")

    def replay(skip: tuple[str, ...], most: int | None) -> tuple[Graph, tuple[Applied, ...]]:
        skipped, known = (*parse.skip, *skip), reading.asked.known
        done = rewritten(read.reading, skipped, most, known, parse.loops, parse.stated)
        return done.graph.replaced(fed=graph.fed), done.applied

    found, cured = engine.culprits(original, replay)
    if not found:                         # the rules alone keep the values
        found = (RewriteCulprit(Applied(AFTER, ""), 0.0, engine.worst(errors)),)
    return RewriteCheck(errors, found, cured, len(fed))


def _runnable(path: Path, read: Model, model: ModelTable, most: int) -> tuple[SessionModel, float]:
    """The model for onnxruntime, and the relative rounding of what it computes in: as it is written, or, of
    other formats than ONNX and where the recipe asks for other inputs or outputs, as it was read."""
    _, reader, source = gathered(path)
    if isinstance(reader, Runnable) and not read.changed:
        return reader.runnable(source, model.bindings, most), reader.rounding(source)
    graph = read.reading.graph
    held = sum(array.nbytes for array in graph.consts.values())
    try:
        return session_model(graph.replaced(fed=fed_from(held, most))), 0.0
    except ModelError as fault:
        raise CannotRunError(fault.message) from fault
