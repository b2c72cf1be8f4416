"""What the keys of stages hold of the code that reads data: nothing, where only its settings are used."""

from __future__ import annotations

import pytest

from npuflow.base.code import Closure, closure
from npuflow.flow.stage import STAGES, steps_of

READERS = ("array", "image", "listing", "python", "read", "zarr_store")
DECODERS = {f"npuflow.input.data.{name}" for name in READERS}
APPLYING = "npuflow.input.data.steps:applied"
FREE = (
    "placement", "segments", "thresholds", "quantize", "costs.layers", "costs.tiles",
    "costs.runs", "costs.groups", "tiling", "codegen", "budget", "qdq",
)


def code_of(stage: str) -> Closure:
    return closure(steps_of(STAGES)[stage].function)


@pytest.mark.parametrize("stage", FREE)
def test_a_stage_that_reads_no_samples_holds_no_decoder(stage: str) -> None:
    found = code_of(stage)
    assert not {"pillow", "zarr"} & set(found.libraries)
    assert not DECODERS & {name.partition(":")[0] for name in found.definitions}
    assert APPLYING not in found.definitions


def test_the_check_can_fail() -> None:
    found = code_of("samples")
    assert "pillow" in found.libraries and APPLYING in found.definitions
    assert DECODERS & {name.partition(":")[0] for name in found.definitions}


@pytest.mark.parametrize("stage", ["costs.layers", "tiling", "codegen", "qdq", "simulate"])
def test_how_the_quantised_graph_is_saved_and_summed_up_concerns_quantize_alone(stage: str) -> None:
    label, form = "npuflow.stages.quantize:Quantized", "npuflow.stages._entries:GraphEntry"
    found = code_of(stage).definitions
    assert {label, f"{form}.load"} <= set(found)
    assert not {f"{form}.save", f"{label}.summary"} & set(found)
    assert {f"{form}.save", f"{label}.summary"} <= set(code_of("quantize").definitions)
