"""Node cases of onnx that rules bring to the NPU: a sample by operator of what docs/node_cases.py judges."""

from __future__ import annotations

import pytest

from npuflow.quantise.config import Quantize
from tests.networks.onnx_cases import case_named
from tests.networks.onnx_npu import TARGET, judge

CHOSEN = (
    "test_compress_0",
    "test_compress_default_axis",
    "test_pow_bcast_array",
    "test_pow_types_float32_uint64",
    "test_spacetodepth_crd_mode_example",
    "test_spacetodepth_dcr_mode_example",
)


@pytest.mark.parametrize("name", CHOSEN)
def test_runs_on_the_npu(name: str) -> None:
    verdict = judge(case_named(name), TARGET, Quantize())
    assert verdict.passed, verdict.reason
