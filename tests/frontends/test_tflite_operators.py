"""Every operator that the TFLite front end converts, alone and in floats, against LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.tflite.convert import CONVERTERS
from npuflow.frontends.tflite.recurrent import RECURRENT
from npuflow.frontends.tflite.variables import VARIABLES
from npuflow.frontends.tflite.while_loops import STEPS
from tests.frontends.test_tflite import outputs
from tests.frontends.tflite_arithmetic import ARITHMETIC
from tests.frontends.tflite_cases import f32, i32
from tests.frontends.tflite_converted import stored
from tests.frontends.tflite_layout import LAYOUT, NO_MASKS
from tests.frontends.tflite_models import Net, reference

CASES = ARITHMETIC | LAYOUT
# The reference resolver lacks these; its kernel of the last leaves out the window's end.
DEFAULT = ("CEIL", "ELU", "ROUND", "BROADCAST_TO", "LOCAL_RESPONSE_NORMALIZATION")


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_reference_s_numbers(name: str) -> None:
    data, feeds = CASES[name]()
    wanted, got = reference(data, feeds, name not in DEFAULT), outputs(data, feeds)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        if mine.dtype == np.float32:
            assert np.abs(mine - theirs).max() <= 1e-5 * max(1.0, float(np.abs(theirs).max()))
        else:
            assert (mine == theirs).all()
    FRONTENDS["tflite"]().read(data, Bindings())


def test_topk_gives_values_and_places() -> None:
    net, x = Net(), np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    (
        net.tensor("x", (3, 5)),
        net.constant("k", np.int32(2)),
        net.tensor("v", (3, 2)),
        net.tensor("i", (3, 2), "int32"),
    )
    net.op("TOPK_V2", ["x", "k"], ["v", "i"], "TopKV2Options")
    data = net.done(["x"], ["v", "i"])
    for mine, theirs in zip(outputs(data, [x]), reference(data, [x]), strict=True):
        assert mine.dtype == theirs.dtype and (mine == theirs).all()


def test_shapes_that_the_network_computes_are_known() -> None:
    """SHAPE, and the slices and reshapes of it that exporters write in front of a RESHAPE."""
    net, x = Net(), np.random.default_rng(0).standard_normal((1, 4, 6)).astype(np.float32)
    (
        net.tensor("x", (1, 4, 6)),
        net.tensor("s", (3,), "int32"),
        net.tensor("n", (2,), "int32"),
        net.tensor("y", (1, 4)),
    )
    (
        net.constant("lo", i32(0)),
        net.constant("hi", i32(2)),
        net.constant("by", i32(1)),
        net.tensor("c", (1, 4, 1)),
    )
    net.op("SHAPE", ["x"], ["s"], "ShapeOptions", outType=2)
    net.op("STRIDED_SLICE", ["s", "lo", "hi", "by"], ["n"], "StridedSliceOptions", **NO_MASKS)
    net.constant("a", i32(0, 0, 2)), net.constant("z", i32(1, 4, 1))
    net.op("SLICE", ["x", "a", "z"], ["c"], "SliceOptions")
    net.op("RESHAPE", ["c", "n"], ["y"], "ReshapeOptions")
    data = net.done(["x"], ["y"])
    (mine,), (theirs,) = outputs(data, [x]), reference(data, [x])
    assert (mine == theirs).all()


def test_rounding_inside_a_float_network() -> None:
    """QUANTIZE and DEQUANTIZE around one operator on codes, one of them to other codes; weights of half
    precision. The graph is the float network, from which the reference is half a step of each scale away;
    the steps are stated beside it."""
    net, x = Net(), np.random.default_rng(0).standard_normal((1, 8)).astype(np.float32)
    (
        net.tensor("x", (1, 8)),
        net.constant("h", f32(8).astype(np.float16)),
        net.tensor("w", (8,)),
        net.tensor("m", (1, 8)),
    )
    net.op("DEQUANTIZE", ["h"], ["w"], "DequantizeOptions")
    net.op("MUL", ["x", "w"], ["m"], "MulOptions", fusedActivationFunction=0)
    for name, scale, zero in (("q", 0.05, 3), ("r", 0.05, 3), ("s", 0.13, -7)):
        net.tensor(name, (1, 8), "int8", ([scale], [zero], 0))
    net.tensor("y", (1, 8))
    net.op("QUANTIZE", ["m"], ["q"], "QuantizeOptions", version=2)
    net.op("RELU", ["q"], ["r"], version=2)
    net.op("QUANTIZE", ["r"], ["s"], "QuantizeOptions", version=2)
    net.op("DEQUANTIZE", ["s"], ["y"], "DequantizeOptions", version=2)
    data = net.done(["x"], ["y"])
    (mine,), (theirs,) = outputs(data, [x]), reference(data, [x])
    assert np.abs(mine - theirs).max() <= (0.05 + 0.13) / 2
    stated = FRONTENDS["tflite"]().read(data, Bindings()).stated
    assert {q.zero_point for q in stated.values()} == {(3,), (-7,)}


def test_every_converter_has_a_case() -> None:
    # in the tests above and in test_tflite_{loops,recurrent,converted,variables}.py, test_while_files.py
    elsewhere = {"QUANTIZE", "DEQUANTIZE", "SHAPE", "TOPK_V2", "IF", "WHILE", STEPS, *VARIABLES}
    elsewhere |= {name.split()[1] for name in stored()} | set(RECURRENT)
    assert set(CONVERTERS) - elsewhere <= {name.split()[0] for name in CASES}
