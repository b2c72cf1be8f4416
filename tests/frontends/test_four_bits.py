"""Models with weights of 4 bits as onnxruntime writes them: MatMulNBits, blocks in
DequantizeLinear, operators of its own."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.ir.codes import encode
from npuflow.ir.queries import kind
from npuflow.ir.types import GroupedType
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from npuflow.stages.parse import Parsed
from npuflow.stages.simulate import Simulation
from tests.frontends.building import built, model
from tests.frontends.test_quantized import Rows
from tests.tiers import often

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 5, 64)).astype(np.float32)


def read(proto: onnx.ModelProto) -> Reading:
    found: Reading = FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings())
    return found


def network(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], columns: int = 48
) -> onnx.ModelProto:
    ports = (
        helper.make_tensor_value_info(name, 1, [1, 5, size]) for name, size in (("x", 64), ("y", columns))
    )
    graph = helper.make_graph(nodes, "g", [next(ports)], [next(ports)])
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    per = 8 // bits
    rest = np.zeros((*codes.shape[:-1], -codes.shape[-1] % per), np.uint8)
    parts = np.concatenate([codes.astype(np.uint8), rest], -1).reshape(*codes.shape[:-1], -1, per)
    return sum((parts[..., i] << (bits * i)) for i in range(per)).astype(np.uint8)


def narrow(
    bits: int, block: int, zeros: bool = False, bias: bool = False, order: bool = False
) -> onnx.ModelProto:
    """MatMulNBits of 64 inputs and 48 outputs."""
    count = -(-64 // block)
    weights = {
        "w": packed(RNG.integers(0, 1 << bits, (48, count, block)), bits),
        "s": RNG.uniform(0.01, 0.1, 48 * count).astype(np.float32),
    }
    if zeros:
        weights["z"] = packed(RNG.integers(0, 1 << bits, (48, count)), bits).reshape(-1)
    if order:
        weights["g"] = RNG.permutation(np.arange(64) // block).astype(np.int32)
    if bias:
        weights["b"] = RNG.normal(size=48).astype(np.float32)
    names = ["x", "w", "s", "z" if zeros else "", "g" if order else "", "b" if bias else ""]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=64, N=48, bits=bits, block_size=block
    )
    return network([node], weights)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("zeros", [False, True])
def test_packed_weights_are_floats_of_a_matmul(bits: int, block: int, zeros: bool) -> None:
    proto = narrow(bits, block, zeros, bias=zeros)
    reading = read(proto)
    graph = rewrite(reading.graph).graph
    assert not any(kind(n).startswith("host") for n in graph.nodes)
    assert "states the codes of 1 tensor" in reading.notes[0]
    mine, theirs = run(export_model(graph), {"x": X})[0], run(proto.SerializeToString(), {"x": X})[0]
    np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_in_another_order_follow_their_groups(zeros: bool) -> None:
    proto = narrow(4, 16, zeros, order=True)
    graph = read(proto).graph
    np.testing.assert_allclose(
        run(export_model(graph), {"x": X})[0], run(proto.SerializeToString(), {"x": X})[0], 1e-4, 1e-4
    )
    # what onnxruntime makes of zero points here is its own affair: there the node stays whole
    assert kind(graph.nodes[0]) == ("host:matmulnbits" if zeros else "matmul")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_a_channel_state_their_codes(bits: int, zeros: bool) -> None:
    """Codes, zero points and scales are those of the file."""
    proto = narrow(bits, 32, zeros)
    held = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    reading = read(proto)
    quant, real = reading.stated["y:weight"], reading.graph.const("y:weight")
    assert isinstance(quant, GroupedType) and (quant.axis, quant.group, quant.bits) == (1, 32, bits)
    per = 8 // bits
    codes = (held["w"][..., None] >> (bits * np.arange(per)) & ((1 << bits) - 1)).reshape(48, 64)
    np.testing.assert_array_equal(encode(real, quant).T, codes)
    groups = quant.groups(real.shape)
    np.testing.assert_array_equal(groups.scales.reshape(-1), held["s"])
    if zeros:
        rows = held["z"].reshape(48, -1)
        want = (rows[..., None] >> (bits * np.arange(per)) & ((1 << bits) - 1)).reshape(48, -1)[:, :2]
        np.testing.assert_array_equal(groups.zeros, want)
    else:
        assert groups.zeros is None and groups.zero == 1 << (bits - 1)


def test_float_zero_points_that_are_no_codes_leave_the_weight_in_floats() -> None:
    proto = narrow(4, 32)
    proto.graph.node[0].input[3] = "z"
    proto.graph.initializer.append(numpy_helper.from_array(np.full((48, 2), 7.5, np.float32), "z"))
    reading = read(proto)
    assert not reading.stated and "scales by blocks" in reading.notes[0]


@pytest.mark.parametrize("zeros", [False, True])
def test_one_block_a_channel_states_its_codes(zeros: bool) -> None:
    reading = read(narrow(4, 64, zeros))
    quant = reading.stated["y:weight"]
    assert quant.bits == 4 and quant.axis == 1 and len(quant.scale) == 48 and quant.signed is not zeros
    real = reading.graph.const("y:weight")
    codes = real / np.array(quant.scale, np.float32) + np.array(quant.zero_point)
    whole = np.rint(codes)
    np.testing.assert_allclose(codes, whole, atol=1e-3)
    assert quant.lo <= whole.min() and whole.max() <= quant.hi


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_dequantizelinear_are_floats(dtype: str, axis: int, zeros: bool) -> None:
    lo, hi = (-8, 8) if dtype == "int4" else (0, 16)
    shape = [64, 48]
    shape[axis] //= 16
    held = getattr(ml_dtypes, dtype)
    weights = {
        "w": RNG.integers(lo, hi, (64, 48)).astype(held),
        "s": RNG.uniform(0.01, 0.1, shape).astype(np.float32),
    }
    if zeros:
        weights["z"] = RNG.integers(lo, hi, shape).astype(held)
    nodes = [helper.make_node("DequantizeLinear", list(weights), ["d"], axis=axis, block_size=16)]
    proto = network([*nodes, helper.make_node("MatMul", ["x", "d"], ["y"])], weights)
    graph = rewrite(read(proto).graph).graph
    assert [kind(n) for n in graph.nodes] in (["matmul"], ["gemm"])
    options = onnxruntime.SessionOptions()
    # else it rounds the inputs too
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(
        run(export_model(graph), {"x": X})[0], session.run(None, {"x": X})[0], 1e-4, 1e-4
    )


@pytest.mark.parametrize("opset", often([21, 17], 2))
@pytest.mark.parametrize("weight", often(["QInt4", "QUInt4"], 2))
def test_static_models_of_four_bits_keep_their_codes(opset: int, weight: str, tmp_path: Path) -> None:
    text = "g (float[1,3,8,8] x) => (float[1,4,8,8] y) { c = Conv<pads=[1,1,1,1]>(x, k, b) y = Relu(c) }"
    weights = {
        "k": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": RNG.normal(size=4).astype(np.float32),
    }
    rows = [RNG.normal(size=(1, 3, 8, 8)).astype(np.float32) for _ in range(8)]
    source, result = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(model(text, opset, weights), str(source))
    quantize_static(
        str(source), str(result), Rows("x", rows), quant_format=QuantFormat.QDQ, per_channel=True,
        weight_type=getattr(QuantType, weight),
    )
    done = built(tmp_path, onnx.load(str(result)), {"x": np.concatenate(rows)})
    stated = done.artifact("parse", Parsed).stated
    assert {quant.bits for quant in stated.values()} == {4, 8}
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
