"""QONNX models (exports of Brevitas): their codes are stated, and numbers are those of a numpy reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuflow import Runner
from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.ir.queries import kind
from npuflow.ir.types import QuantType
from npuflow.onnx.run import run
from npuflow.stages._reference import reference_of
from npuflow.stages.parse import Parsed
from npuflow.stages.precision import Precision
from npuflow.stages.quantize import Quantized
from npuflow.stages.simulate import Simulation
from npuflow.stages.verdict import Verdict
from npuflow.tune.error import outputs_of
from tests.frontends.building import built
from tests.tiers import often

# against the float model, which is not rounded, a few bits look bad: layers would be left in float
AS_STATED = '[precision]\nstrategy = "none"\n'
DOMAIN = "qonnx.custom_op.general"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)
MODES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil, "DOWN": np.trunc,
    "UP": lambda v: np.sign(v) * np.ceil(np.abs(v)),
    "HALF_UP": lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5),
    "HALF_DOWN": lambda v: np.sign(v) * np.ceil(np.abs(v) - 0.5),
}


def quant(
    x: np.ndarray, scale: Any, zero: Any, bits: int, signed: int = 1, narrow: int = 0, mode: str = "ROUND"
) -> np.ndarray:
    """QONNX's Quant: scaled, clipped to the width, rounded, and back."""
    lo = -(2 ** (bits - 1)) + narrow if signed else 0
    hi = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    codes = MODES[mode](np.clip(x / np.float32(scale) + zero, lo, hi))
    return ((codes - zero) * np.float32(scale)).astype(np.float32)


class Net:
    """A QONNX model in the making."""

    def __init__(self, domain: str = DOMAIN) -> None:
        self.domain, self.nodes, self.weights = domain, list[onnx.NodeProto](), dict[str, np.ndarray]()

    def const(self, name: str, value: Any) -> str:
        self.weights[name] = np.asarray(value, np.float32)
        return name

    def op(self, kind: str, inputs: list[str], out: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def rounding(self, x: str, out: str, *params: Any, kind: str = "Quant", **attributes: Any) -> str:
        names = [self.const(f"{out}_p{i}", p) for i, p in enumerate(params)]
        return self.op(kind, [x, *names], out, domain=self.domain, **attributes)

    def quant(
        self, x: str, out: str, scale: Any, zero: Any = 0, bits: Any = 8, signed: int = 1, narrow: int = 0,
        mode: str = "ROUND",
    ) -> str:
        return self.rounding(x, out, scale, zero, bits, signed=signed, narrow=narrow, rounding_mode=mode)

    def model(self, opset: int = 13) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 8, 8]), ("y", None))]
        graph = helper.make_graph(self.nodes, "g", ports[:1], ports[1:])
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in self.weights.items())
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(self.domain, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def read(net: Net, opset: int = 13) -> Reading:
    found: Reading = FRONTENDS["onnx"]().read(net.model(opset).SerializeToString(), Bindings())
    return found


def numbers(net: Net, x: np.ndarray = X) -> np.ndarray:
    """What the float model gives."""
    return run(FRONTENDS["onnx"]().runnable(net.model().SerializeToString(), Bindings()), {"x": x})[0]


KERNEL = RNG.normal(size=(8, 3, 3, 3)).astype(np.float32)
SCALES = RNG.uniform(0.1, 0.3, (8, 1, 1, 1)).astype(np.float32)


def convolution(bits: int = 4, act: int = 4, narrow: int = 1, domain: str = DOMAIN) -> Net:
    """As Brevitas exports it: inputs, weights, biases and results of a Relu rounded; then a linear layer."""
    net = Net(domain)
    x = net.quant("x", "xq", 0.03, bits=8)
    k = net.quant(net.const("k", KERNEL), "kq", SCALES, bits=bits, narrow=narrow)
    b = net.quant(net.const("b", RNG.normal(size=8)), "bq", 0.003, bits=32)
    net.op("Conv", [x, k, b], "c", pads=[1, 1, 1, 1])
    net.quant(net.op("Relu", ["c"], "r"), "rq", 0.4, bits=act, signed=0)
    net.op("Flatten", ["rq"], "f")
    w = net.const("w", RNG.normal(size=(10, 512)) * 0.1)
    net.quant(w, "wq", np.full((10, 1), 0.02), bits=8, narrow=1)
    net.op("Transpose", ["wq"], "wt", perm=[1, 0])
    net.quant(net.op("MatMul", ["f", "wt"], "m"), "y", 0.5, bits=8)
    return net


@pytest.mark.parametrize("domain", [DOMAIN, "onnx.brevitas"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_codes_are_stated(bits: int, domain: str) -> None:
    reading = read(convolution(bits, domain=domain))
    stated, scales = reading.stated, tuple(map(float, SCALES.reshape(-1)))
    assert stated["kq"] == QuantType(bits, True, scales, (0,) * 8, 0, narrow=True)
    assert stated["wt"].axis == 1 and stated["wt"].narrow
    assert stated["x"] == QuantType(8, True, (float(np.float32(0.03)),))
    assert stated["rq"] == QuantType(4, False, (float(np.float32(0.4)),))
    assert stated["y"].scale == (0.5,) and "bq" not in stated
    assert not any(kind(n).startswith("host") for n in reading.graph.nodes)
    expected = quant(KERNEL, SCALES, 0, bits, narrow=1)
    np.testing.assert_array_equal(reading.graph.const("kq"), expected)
    assert "states the codes of 5 tensors" in reading.notes[0]


@pytest.mark.parametrize(("bits", "act"), often([(2, 3), (4, 4), (8, 8), (6, 7)], 4))
def test_programs_keep_the_scales(bits: int, act: int, tmp_path: Path) -> None:
    net = convolution(bits, act)
    data = {"x": RNG.normal(size=(8, 3, 8, 8)).astype(np.float32)}
    done = built(tmp_path, net.model(), data, AS_STATED)
    stated, graph = done.artifact("parse", Parsed).stated, done.artifact("quantize", Quantized).graph
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    kernel = graph.values["kq:q"]
    codes = np.rint(quant(KERNEL, SCALES, 0, bits, narrow=1) / SCALES)
    np.testing.assert_array_equal(graph.const(kernel.id), codes)
    assert kernel.quant is not None and kernel.quant.scale == stated["kq"].scale
    found = {v.quant.scale for v in graph.values.values() if v.quant is not None and not v.const}
    assert {stated[name].scale for name in ("x", "y")} <= found
    widths = {v.quant.bits for v in graph.values.values() if v.quant and v.quant.scale == stated["rq"].scale}
    assert widths == {act}


@pytest.mark.slow
def test_a_default_build_keeps_the_stated_widths(tmp_path: Path) -> None:
    """Programs are judged by the network with its roundings, which they compute: nothing is widened or left
    in float, and no bias is moved towards a network that the file does not state."""
    net = convolution(3, 3)
    images = RNG.normal(size=(24, 3, 8, 8)).astype(np.float32)
    done = built(tmp_path, net.model(), {"x": images})
    assert done.artifact("precision", Precision).overrides == ()
    quantized = done.artifact("correct", Quantized)
    stated = done.artifact("parse", Parsed).stated["rq"].scale
    widths = {v.quant.bits for v in quantized.graph.values.values() if v.quant and v.quant.scale == stated}
    assert widths == {3}
    assert done.artifact("verdict", Verdict).statement.ok
    reference, feeds = reference_of(done.artifact("parse", Parsed)), [{"x": x[None]} for x in images[:8]]
    (wanted,), runner = outputs_of(reference, feeds), Runner(done.product(".npu"))
    off = np.abs(np.stack([runner.run(feed)["y"] for feed in feeds]) - np.stack(wanted))
    # the bias is rounded to the accumulator's step, which moves a few of the 512 codes that an output adds
    assert off.max() <= np.float32(0.5) and (off == 0).mean() > 0.9


@pytest.mark.parametrize(("mode", "zero"), often([("ROUND", 3), ("ROUND", 0), ("FLOOR", 0)], 3))
def test_programs_give_the_numbers_of_quant(mode: str, zero: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    net, steps = Net(), (0.03, 0.02, 0.25)
    kernel = rng.normal(size=(4, 3, 1, 1)).astype(np.float32) * 0.1
    x, k = net.quant("x", "xq", steps[0], bits=8), net.quant(net.const("k", kernel), "kq", steps[1], bits=5)
    net.quant(net.op("Conv", [x, k], "c"), "y", steps[2], zero, 5, mode=mode)
    images = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    done = built(tmp_path, net.model(), {"x": images}, AS_STATED)
    found = Runner(done.product(".npu")).run_many([{"x": X}])[0]["y"]
    product = np.einsum("oi,nihw->nohw", quant(kernel, steps[1], 0, 5)[:, :, 0, 0], quant(X, steps[0], 0, 8))
    apart = np.abs(found - quant(product, steps[2], zero, 5, mode=mode)) / steps[2]
    graph = done.artifact("quantize", Quantized).graph
    read_by = [graph.values[n.inputs[0]].quant for n in graph.nodes if n.op.onnx == "Floor"]
    # a computed rounding reads codes: it differs where half of their step crosses a whole number
    near = max((number.scale[0] / 2 for number in read_by if number), default=0.0) * 1.001
    codes = product / steps[2]
    assert len(read_by) == (mode == "FLOOR") and near < 0.01
    assert apart.max() <= 1 and (np.abs(codes - np.rint(codes))[apart > 0] <= near).all()


@pytest.mark.parametrize("mode", [*MODES, "floor"])
@pytest.mark.parametrize(("signed", "narrow", "zero"), [(1, 0, 0), (1, 1, 2), (0, 1, 3), (0, 0, 0)])
def test_constants_are_rounded_in_every_mode(mode: str, signed: int, narrow: int, zero: int) -> None:
    net = Net()
    k = net.quant(net.const("k", KERNEL * 2), "kq", SCALES, zero, 3, signed, narrow, mode)
    net.op("Conv", ["x", k], "y")
    reading = read(net)
    np.testing.assert_array_equal(
        reading.graph.const("kq"), quant(KERNEL * 2, SCALES, zero, 3, signed, narrow, mode.upper())
    )
    assert reading.stated["kq"].bits == 3 and reading.stated["kq"].zero_point == (zero,) * 8


@pytest.mark.parametrize("mode", sorted(set(MODES) - {"ROUND"}))
@pytest.mark.parametrize("zero", [0, 1])
def test_activations_of_other_modes_are_computed(mode: str, zero: int) -> None:
    net = Net()
    net.quant("x", "y", 0.25, zero, 4, mode=mode)
    np.testing.assert_array_equal(numbers(net), quant(X, 0.25, zero, 4, mode=mode))
    reading = read(net)
    assert reading.stated["y"].scale == (0.25,) and any("to the nearest" in n for n in reading.notes)


@pytest.mark.parametrize(
    ("scale", "zero", "bits"), [([[[0.25]], [[0.5]], [[0.1]]], 0, 4), (0.25, 0.5, 4), (0.25, 0, 24)],
)
def test_activations_without_such_codes_are_noted(scale: Any, zero: float, bits: int) -> None:
    net = Net()
    net.quant("x", "y", np.asarray(scale, np.float32), zero, bits)
    np.testing.assert_allclose(
        numbers(net), quant(X, np.asarray(scale, np.float32), zero, bits), rtol=1e-6, atol=1e-6
    )
    reading = read(net)
    assert not reading.stated and any("not kept" in n for n in reading.notes)


def test_bipolar_weights_are_codes_and_activations_are_computed() -> None:
    net = Net()
    k = net.rounding(net.const("k", KERNEL), "kq", 0.7, kind="BipolarQuant")
    net.rounding(net.op("Conv", ["x", k], "c"), "y", 0.5, kind="BipolarQuant")
    reading, signs = read(net), np.where(KERNEL >= 0, 1, -1).astype(np.float32)
    np.testing.assert_array_equal(reading.graph.const("kq"), signs * np.float32(0.7))
    assert reading.stated["kq"].bits == 2 and reading.stated["y"].scale == (0.5,)
    only = Net()
    only.rounding("x", "y", 0.5, kind="BipolarQuant")
    x = X.copy()
    x[0, 0, 0, 0] = 0
    np.testing.assert_array_equal(numbers(only, x), np.where(x >= 0, 0.5, -0.5).astype(np.float32))


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
def test_truncation_is_computed(mode: str) -> None:
    net = Net()
    net.rounding("x", "y", 0.125, 0, 8, 6, kind="Trunc", rounding_mode=mode)
    expected = MODES[mode](np.rint(X / 0.125) / 4) * np.float32(0.125)
    np.testing.assert_array_equal(numbers(net), expected)


def test_two_roundings_of_one_value_stay_two() -> None:
    net = Net()
    net.op("Relu", ["x"], "r")
    net.quant("r", "a", 0.25, bits=4, signed=0)
    net.quant("r", "b", 0.5, bits=2, signed=0)
    net.quant("r", "a2", 0.25, bits=4, signed=0)
    net.op("Concat", ["a", "b", "a2"], "y", axis=1)
    reading = read(net)
    assert reading.stated["a"].scale == (0.25,) and reading.stated["b"].scale == (0.5,)
    assert "a2" not in reading.stated and "r" not in reading.stated


def test_saturation_of_a_narrow_range_is_a_clip() -> None:
    net = Net()
    k = net.const("k", KERNEL)
    net.quant(net.op("Conv", ["x", k], "c"), "y", 0.25, bits=4, narrow=1)
    assert float(numbers(net).min()) == -1.75 and float(numbers(net).max()) == 1.75
    assert read(net).stated["y"].lo == -7


def failing(**changes: Any) -> Net:
    net = Net()
    net.quant("x", "y", **{"scale": 0.5, **changes})
    return net


def without_inputs() -> Net:
    net = Net()
    net.rounding("x", "y", 0.5)
    return net


def of_floats() -> Net:
    net = Net()
    net.rounding("x", "y", 0.5, kind="FloatQuant")
    return net


def second_trunc() -> Net:
    net = Net()
    net.rounding("x", "y", 0.5, 0, 8, 1, 0, 4, kind="Trunc")
    return net


def computed_scale() -> Net:
    net = Net()
    net.op("ReduceMax", ["x"], "s", keepdims=0)
    names = [net.const("k", KERNEL), "s", net.const("z", 0), net.const("n", 8)]
    net.op("Quant", names, "kq", domain=DOMAIN)
    net.op("Conv", ["x", "kq"], "y")
    return net


def zero_scale() -> Net:
    net = Net()
    net.op("Conv", ["x", net.quant(net.const("k", KERNEL), "kq", 0.0)], "y")
    return net


@pytest.mark.parametrize(
    ("net", "code", "opset"),
    [
        (failing(mode="FLOOR"), "NF-MODEL-230", 10),
        (of_floats(), "NF-MODEL-231", 13),
        (without_inputs(), "NF-MODEL-232", 13),
        (failing(mode="STOCHASTIC"), "NF-MODEL-233", 13),
        (second_trunc(), "NF-MODEL-234", 13),
        (failing(bits=2.5), "NF-MODEL-235", 13),
        (failing(bits=[4, 8]), "NF-MODEL-235", 13),
        (computed_scale(), "NF-MODEL-236", 13),
        (zero_scale(), "NF-MODEL-237", 13),
    ],
)
def test_what_cannot_be_read_is_one_error(net: Net, code: str, opset: int) -> None:
    with pytest.raises(ModelError) as caught:
        read(net, opset)
    assert caught.value.code == code
