"""ONNX's node cases with every node on the NPU: within one code of the quantised float
reference, simulated exactly."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from npuflow.quantise.config import Quantize
from tests.networks.onnx_cases import cases
from tests.networks.onnx_npu import TARGET, Verdict, judge, judged

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "onnx-node-cases.md"
# Why cases may miss the NPU: what this file may not excuse is a wrong number.
EXCUSES = ("host: ", "refused: ")
QUICK = (
    "test_basic_conv_with_padding",
    "test_conv_with_strides_and_asymmetric_padding",
    "test_conv_with_autopad_same",
    "test_convtranspose_dilations",
    "test_convtranspose_autopad_same",
    "test_convtranspose_output_shape",
    "test_convtranspose_1d",
    "test_gemm_all_attributes",
    "test_scan9_scalar",
    "test_scan9_sum",
    "test_gemm_default_matrix_bias",
    "test_matmul_4d",
    "test_averagepool_2d_ceil",
    "test_averagepool_2d_pads_count_include_pad",
    "test_averagepool_2d_same_lower",
    "test_averagepool_2d_dilations",
    "test_maxpool_2d_ceil",
    "test_maxpool_2d_dilations",
    "test_maxpool_2d_same_upper",
    "test_globalaveragepool",
    "test_globalmaxpool",
    "test_add_bcast",
    "test_sub",
    "test_mul_bcast",
    "test_div",
    "test_max_example",
    "test_min_one_input",
    "test_prelu_broadcast",
    "test_reduce_mean_keepdims_random",
    "test_reduce_sum_do_not_keepdims_random",
    "test_reduce_max_default_axes_keepdim_example",
)


@cache
def verdicts(names: tuple[str, ...] | None = None) -> tuple[Verdict, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(judge(c, TARGET, Quantize()) for c in cases() if names is None or c.name in names)


@pytest.mark.parametrize("name", QUICK)
def test_case(name: str) -> None:
    (verdict,) = verdicts((name,))
    allowed = name == "test_gemm_default_matrix_bias"                 # its C differs by row: the host's
    assert verdict.passed or (allowed and verdict.reason.startswith("host: ")), verdict.reason


@pytest.mark.slow
def test_all_cases() -> None:
    found = verdicts()
    wrong = [f"{v.name}: {v.reason}" for v in found if not v.passed and not v.reason.startswith(EXCUSES)]
    assert not wrong, "\n".join(wrong)
    counts = Counter(o for v in found if v.passed for o in v.operators)
    assert sum(v.passed for v in found) >= 640, counts


def test_the_page_says_which_cases_run() -> None:
    """A sample of all cases: those that the page lists with a reason do not run, the others do."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text().partition("## On the NPU")[2], re.M))
    sample = tuple(c.name for c in [c for c in cases() if judged(c)][5::40])
    assert len(sample) >= 15
    for one in verdicts(sample):
        assert one.passed == (one.name not in rows), (one.name, one.reason, rows.get(one.name))


def test_nine_of_ten_cases_run() -> None:
    done, whole = re.findall(r"^(\d+) of (\d+) cases with a float32 result", PAGE.read_text(), re.M)[0]
    assert int(whole) >= 600 and int(done) >= 0.9 * int(whole)
