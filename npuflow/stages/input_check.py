"""Whether calibration shows the model what it will see: range, colours, layout, variety, and enough of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npuflow.base.errors import DataError
from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, stage
from npuflow.input.data.judge import apart, beyond_codes, judged, unlike
from npuflow.input.data.profile import InputProfile, looked_at, profiled
from npuflow.input.pixels.pixels import model_inputs
from npuflow.ir.types import Array
from npuflow.stages.evaluation_inputs import EvaluationInputs
from npuflow.stages.parse import Parsed
from npuflow.stages.samples import Sample

SHOWN = 3                                 # warnings in a build's output, and files in a warning


@dataclass(frozen=True)
class InputCheck(Artifact, unlike=("unlike", "apart")):
    """What looks wrong, and the profiles it was judged by. `unlike`: the part of it that makes ranges
    worthless; `apart`: all in which calibration and evaluation differ."""

    warnings: tuple[str, ...]
    profiles: Mapping[str, InputProfile]
    unlike: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        if not self.warnings:
            return {"inputs": "as they should be"}
        shown = list(self.warnings[:SHOWN])
        if len(self.warnings) > SHOWN:
            shown.append(f"(and {len(self.warnings) - SHOWN} more: npuflow show input_check RECIPE --log)")
        return {"warning": "\n         ".join(shown)}


@stage(minor=True)
def input_check(
    samples: Items[Sample], evaluation_inputs: EvaluationInputs | None, graph: Parsed
) -> InputCheck:
    """Profile some calibration samples, and hold them against the evaluation's where the recipe has one."""
    types = {name: graph.graph.type(name) for name in graph.graph.inputs}
    left_out: list[str] = []
    noise = 0

    def feeds() -> Iterator[tuple[str, Mapping[str, Array]]]:
        nonlocal noise
        numbers = sum(kind.size for kind in types.values())
        step = -(-len(samples) // max(looked_at(len(samples), numbers), 1))
        for i, name in enumerate(samples):
            content = samples[name].content
            if content.broken:
                left_out.append(f"{name}: {content.broken}")
            elif content.noise is not None:
                noise += 1
            elif i % step == 0:
                try:
                    yield name, model_inputs(content.feed(types), graph.pixels)
                except DataError as fault:
                    raise fault.at(item=name) from None

    profiles = profiled(feeds())
    warnings = []
    if left_out:
        more = f"; and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
        warnings.append(
            f"{len(left_out)} of {len(samples)} samples are left out: {'; '.join(left_out[:SHOWN])}{more}"
        )
    if noise:
        warnings.insert(
            0,
            f"RANDOM DATA: {counted(noise, 'sample')} of random numbers; ranges and accuracy mean nothing "
            "for real inputs",
        )
    other = evaluation_inputs.profiles if evaluation_inputs is not None else None
    states = [given for _, given in graph.graph.state]
    warnings += judged(profiles, other, len(samples) - len(left_out) - noise, states)
    warnings += beyond_codes(profiles, graph.rounded)
    for text in warnings:
        log(f"warning: {text}")
    beside = profiles, other or {}
    return InputCheck(tuple(warnings), profiles, tuple(unlike(*beside)), tuple(apart(*beside)))
