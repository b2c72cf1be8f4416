"""What the model is fed in the evaluation, as a profile to hold the calibration against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npuflow.base.errors import DataError
from npuflow.checks.evaluate import Evaluate, labelled
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding, adapted
from npuflow.input.data.profile import MOST, InputProfile, profiled
from npuflow.input.data.read import samples as read
from npuflow.input.data.sequence import labelled as steps
from npuflow.input.pixels.pixels import model_inputs
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.input.text.model import TextModel
from npuflow.ir.types import Array
from npuflow.run.state import zeros
from npuflow.stages.parse import Parsed


@dataclass(frozen=True)
class EvaluationInputs(Artifact):
    """A profile by model input."""

    profiles: Mapping[str, InputProfile]

    def summary(self) -> dict[str, Any]:
        return {name: f"{one.lo:.4g}..{one.hi:.4g}" for name, one in self.profiles.items()}


def listing(
    evaluate: Evaluate, data: Data, folding: Folding, numerics: Numerics,
    preprocess: Preprocess | None = None, model: TextModel | None = None,
) -> Listing:
    """Some of the evaluation's samples, spread over all of them."""
    listed = adapted(labelled(evaluate, data, model), data, folding, numerics, pixel_zeros(preprocess))
    step = -(-len(listed) // MOST)
    return {
        name: Item(tuple(one.files), dict(one.detail))
        for i, (name, one) in enumerate(listed.items())
        if i % step == 0
    }


@stage(files=listing, when="evaluate", minor=True)
def evaluation_inputs(files: Files, graph: Parsed) -> EvaluationInputs:
    """Read some samples and profile what the model is fed."""
    types = {name: graph.graph.type(name) for name in graph.graph.inputs}
    start = zeros(graph.graph)

    def feeds() -> Iterator[tuple[str, Mapping[str, Array]]]:
        for name, sample in read({name: (item.files, item.detail) for name, item in files.items()}):
            if sample.broken:
                continue
            try:
                for fed, _ in steps(sample, types, start, None):
                    own = {key: array for key, array in fed.items() if key not in start}
                    yield name, model_inputs(own, graph.pixels)
            except DataError as fault:
                raise fault.at(item=name) from None

    return EvaluationInputs(profiled(feeds()))
