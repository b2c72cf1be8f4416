"""Convolutions over one dimension in TFLite files: images of one row, between which nothing has to move."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.rewrite.rewrite import rewrite
from tests.frontends.test_tflite import outputs
from tests.frontends.tflite_cases import f32
from tests.frontends.tflite_layout import NO_MASKS
from tests.frontends.tflite_models import Net, reference

CONVOLVED = {"strideH": 1, "strideW": 1, "padding": 0, "fusedActivationFunction": 0}
STEP = 0.05
LAST = ["", "mean", "kept", "causal", "concat", "mixed"]


class RowNet(Net):
    """Layers over one dimension as TensorFlow's converter writes them; int8 where `codes`."""

    def __init__(self, codes: bool) -> None:
        super().__init__()
        self.codes, self.rng = codes, np.random.default_rng(0)

    def value(self, name: str, *shape: int) -> str:
        if self.codes:
            return self.tensor(name, shape, "int8", ([STEP], [3], 0))
        return self.tensor(name, shape)

    def number(self, name: str, *shape: int) -> str:
        held = self.rng.normal(size=shape).astype(np.float32)
        if self.codes:
            return self.constant(name, np.rint(held / STEP).clip(-127, 127).astype(np.int8), ([STEP], [0], 0))
        return self.constant(name, held)

    def convolved(self, x: str, y: str, before: int, after: int, width: int) -> None:
        """EXPAND_DIMS, CONV_2D over three places, SQUEEZE."""
        self.constant(f"{y}.at", np.int32(1)), self.value(f"{y}.i", 1, 1, width, before)
        self.op("EXPAND_DIMS", [x, f"{y}.at"], [f"{y}.i"], "ExpandDimsOptions")
        w, b = self.rng.normal(size=(after, 1, 3, before)) * 0.15, self.rng.normal(size=after) * 0.3
        if self.codes:
            wide = STEP * 0.01
            self.constant(f"{y}.w", np.rint(w / 0.01).astype(np.int8), ([0.01] * after, [0] * after, 0))
            self.constant(f"{y}.b", np.rint(b / wide).astype(np.int32), ([wide] * after, [0] * after, 0))
        else:
            self.constant(f"{y}.w", w.astype(np.float32)), self.constant(f"{y}.b", b.astype(np.float32))
        self.value(f"{y}.o", 1, 1, width, after), self.value(y, 1, width, after)
        read = [f"{y}.i", f"{y}.w", f"{y}.b"]
        self.op("CONV_2D", read, [f"{y}.o"], "Conv2DOptions", version=3, **CONVOLVED)
        self.op("SQUEEZE", [f"{y}.o"], [y], "SqueezeOptions", squeezeDims=[1])

    def added(self, a: str, b: str, y: str, *shape: int) -> None:
        self.value(y, *shape)
        self.op("ADD", [a, b], [y], "AddOptions", version=2, fusedActivationFunction=1)


def residual(codes: bool, last: str = "") -> bytes:
    """Two residual blocks with a factor for each channel between them. `last`: what reads the second one."""
    net = RowNet(codes)
    net.value("x", 1, 16, 3)
    net.convolved("x", "a", 3, 8, 16), net.convolved("a", "b", 8, 8, 16)
    net.added("a", "b", "s", 1, 16, 8)
    net.number("factor", 8), net.value("m", 1, 16, 8)
    net.op("MUL", ["s", "factor"], ["m"], "MulOptions", version=2, fusedActivationFunction=0)
    net.number("part", 1, 16, 1)
    net.added("m", "part", "n", 1, 16, 8)
    net.convolved("n", "c", 8, 8, 16), net.added("c", "s", "t", 1, 16, 8)
    y = "t"
    if last == "mean":
        net.constant("over", np.array([1], np.int32)), net.value("y", 1, 8)
        net.op("MEAN", ["t", "over"], ["y"], "ReducerOptions", version=2, keepDims=False)
        y = "y"
    elif last == "kept":
        net.constant("over", np.array([1], np.int32)), net.value("y", 1, 1, 8)
        net.op("MEAN", ["t", "over"], ["y"], "ReducerOptions", version=2, keepDims=True)
        y = "y"
    elif last == "causal":
        net.constant("sides", np.array([[0, 0], [4, 0], [0, 0]], np.int32)), net.value("p", 1, 20, 8)
        net.op("PAD", ["t", "sides"], ["p"], "PadOptions", version=2)
        net.convolved("p", "q", 8, 6, 20)
        bounds = zip(("from", "to", "by"), ((0, 1, 0), (1, 19, 6), (1, 2, 1)), strict=True)
        for name, numbers in bounds:
            net.constant(name, np.array(numbers, np.int32))
        net.value("y", 1, 9, 6)
        net.op("STRIDED_SLICE", ["q", "from", "to", "by"], ["y"], "StridedSliceOptions", **NO_MASKS)
        y = "y"
    elif last == "concat":
        net.value("u", 1, 16, 16)
        joined = {"version": 2, "axis": 2, "fusedActivationFunction": 0}
        net.op("CONCATENATION", ["t", "n"], ["u"], "ConcatenationOptions", **joined)
        net.convolved("u", "y", 16, 4, 16)
        y = "y"
    elif last == "mixed":                     # with a value that no convolution made
        net.value("w", 1, 16, 8)
        net.added("t", "w", "y", 1, 16, 8)
        return net.done(["x", "w"], ["y"])
    return net.done(["x"], [y])


def feeds(data: bytes, codes: bool) -> list[np.ndarray]:
    graph = FRONTENDS["tflite"]().read(data, Bindings()).graph
    made = [f32(*graph.type(name).shape) for name in graph.inputs]
    return [np.rint(x / STEP).astype(np.float32) * np.float32(STEP) for x in made] if codes else made


@pytest.mark.parametrize("last", LAST)
def test_residual_blocks_over_one_dimension_give_the_reference_s_numbers(last: str) -> None:
    data = residual(False, last)
    given = feeds(data, False)
    (mine,), (theirs,) = outputs(data, given), reference(data, given)
    assert mine.shape == theirs.shape and np.abs(mine - theirs).max() <= 1e-5


@pytest.mark.parametrize("last", LAST)
def test_codes_of_such_a_network_are_the_reference_s(last: str) -> None:
    data = residual(True, last)
    given = feeds(data, True)
    coded = [np.rint(x / np.float32(STEP) + 3).clip(-128, 127).astype(np.int8) for x in given]
    graph = FRONTENDS["tflite"]().read(data, Bindings())
    assert graph.stated[graph.graph.outputs[0]].scale == pytest.approx((STEP,))
    (mine,) = outputs(data, [(c.astype(np.float32) - 3) * np.float32(STEP) for c in coded])
    (theirs,) = reference(data, coded)
    # floats between stated codes: what each layer rounds adds up to few steps
    assert np.abs(mine / np.float32(STEP) + 3 - theirs).max() <= 4


@pytest.mark.parametrize(
    ("last", "moves"), [("", 2), ("mean", 1), ("kept", 1), ("causal", 2), ("concat", 2), ("mixed", 2)]
)
def test_nothing_is_transposed_between_the_first_and_the_last_layer(last: str, moves: int) -> None:
    graph = rewrite(FRONTENDS["tflite"]().read(residual(False, last), Bindings()).graph).graph
    found = Counter(type(node.op).__name__ for node in graph.nodes)
    assert found["Transpose"] == moves and found["Conv"] == 3 + (last in ("concat", "causal"))
