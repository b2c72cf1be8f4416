"""What a component makes of the evaluation's samples in floats: those of the components that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from npuflow.checks.evaluate import Evaluate, labelled
from npuflow.flow.refs import Files, Listing
from npuflow.flow.stage import Items, stage
from npuflow.input.data.config import Data
from npuflow.input.text.model import TextModel
from npuflow.stages.component_outputs import (
    ComponentOutputs,
    ComponentTable,
    HandedOn,
    handed_on,
    items_of,
    npz_of,
)
from npuflow.stages.model import Model


@dataclass(frozen=True)
class ComponentEvaluationTable(ComponentTable, table="component.evaluation"):
    """What a component hands on of the evaluation, in `evaluation-outputs.npz`; a recipe with [components]
    writes it."""


@dataclass(frozen=True)
class ComponentEvaluation(ComponentOutputs):
    """A file of the outputs of all samples, with their labels."""

    product: ClassVar[str] = "evaluation_outputs"


def gathered(parts: Items[HandedOn]) -> ComponentEvaluation:
    """All outputs in one file."""
    return ComponentEvaluation(npz_of(list(parts.values())))


def listing(evaluate: Evaluate, data: Data, model: TextModel | None = None) -> Listing:
    """The evaluation's samples as files hold them, each with its place."""
    return items_of(labelled(evaluate, data, model))


@stage(
    over="files", files=listing, when="component.evaluation", batch=32, merge=gathered, cpu="native",
    floats=True, minor=True,
)
def component_evaluation(
    files: Files, source: Model, evaluation: ComponentEvaluationTable
) -> Iterator[tuple[str, HandedOn]]:
    """Run the float model on the samples."""
    yield from handed_on(files, source.reading.graph, evaluation)
