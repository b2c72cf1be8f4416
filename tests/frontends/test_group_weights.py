"""Models with weights in groups, built whole: their codes, scales and zero points are in the program, and
what it computes is what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuflow.hw.grouped import WeightGroups
from npuflow.ir.types import GroupedType
from npuflow.onnx.run import run
from npuflow.program.container import Program
from npuflow.runner.runner import Runner
from npuflow.stages.quantize import Quantized
from npuflow.stages.simulate import Simulation
from tests.frontends.building import Built, built
from tests.frontends.test_four_bits import packed
from tests.quantise.group_networks import read_back
from tests.tiers import often

Arrays = dict[str, np.ndarray]
TERMS, CHANNELS = 96, 80
# recipe, and the error beside the largest output: of bfloat16, of 16 bits over calibrated ranges
TARGETS = {
    "bm1684x": ('[quantize]\nmode = "bf16"\n', 2.0**-8),
    "edge-8t": ("[quantize]\nactivations = { bits = 16 }\n", 2.0**-13),
}


def network(node: list[onnx.NodeProto], weights: Arrays) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, 1, [4, size]) for n, size in (("x", TERMS), ("y", CHANNELS))]
    graph = helper.make_graph(node, "g", ports[:1], ports[1:])
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def drawn(bits: int, block: int, zeros: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Codes [channels, blocks, block], scales that float16 has and zero points [channels, blocks]."""
    rng, count = np.random.default_rng(bits + block), -(-TERMS // block)
    scales = (rng.uniform(0.5, 1.5, (CHANNELS, count)) / (1 << bits)).astype(np.float16).astype(np.float32)
    codes = rng.integers(0, 1 << bits, (CHANNELS, count, block))
    return codes, scales, rng.integers(0, 1 << bits, (CHANNELS, count)) if zeros else None


def matmulnbits(bits: int, block: int, zeros: bool) -> onnx.ModelProto:
    codes, scales, points = drawn(bits, block, zeros)
    weights = {"w": packed(codes, bits), "s": scales.reshape(-1)}
    if points is not None:
        weights["z"] = packed(points, bits).reshape(-1)
    sizes = {"K": TERMS, "N": CHANNELS, "bits": bits, "block_size": block}
    return network(
        [helper.make_node("MatMulNBits", ["x", *weights], ["y"], "product", domain="com.microsoft", **sizes)],
        weights,
    )


def linear(turned: bool) -> onnx.ModelProto:
    """DequantizeLinear by blocks of 4 bits, as it is or before a Transpose."""
    codes, scales, points = drawn(4, 32, True)
    assert points is not None
    matrix = codes.reshape(CHANNELS, -1)[:, :TERMS]
    held = {"w": matrix.astype(ml_dtypes.uint4), "s": scales, "z": points.astype(ml_dtypes.uint4)}
    weights = held if turned else {name: np.ascontiguousarray(a.T) for name, a in held.items()}
    nodes = [helper.make_node("DequantizeLinear", list(weights), ["d"], axis=int(turned), block_size=32)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"], "product"))
    return network(nodes, weights)


X = np.random.default_rng(0).normal(size=(48, 4, TERMS)).astype(np.float32)


def build_for(target: str, proto: onnx.ModelProto, folder: Path, recipe: str) -> Built:
    return built(folder, proto, {"x": X}, recipe, target=target)


def check_codes(done: Built, bits: int, block: int, zeros: bool) -> None:
    """The quantised network, and the program's constants, hold the file's codes, scales and zero points."""
    codes, scales, points = drawn(bits, block, zeros)
    graph = done.artifact("quantize", Quantized).graph
    (value,) = (v for v in graph.values.values() if isinstance(v.quant, GroupedType))
    stored = graph.const(value.id)
    assert stored is not None and isinstance(value.quant, GroupedType)
    np.testing.assert_array_equal(value.quant.by_channel(stored), codes.reshape(CHANNELS, -1)[:, :TERMS])
    groups = value.quant.groups(stored.shape)
    assert groups.scales.dtype == np.float16
    np.testing.assert_array_equal(groups.scales, scales)
    if points is None:
        assert groups.zeros is None and groups.zero == 1 << (bits - 1)
    else:
        np.testing.assert_array_equal(groups.zeros, points)
    halves = WeightGroups(
        bits, False, block, scales.astype(np.float16), groups.zero,
        None if points is None else points.astype(np.uint8),
    )
    program = Program.from_bytes(done.product("model.npu").read_bytes())
    assert read_back(program.const, codes.reshape(CHANNELS, -1)[:, :TERMS], halves)


def check_outputs(done: Built, proto: onnx.ModelProto, most: float) -> None:
    """But for a few beyond the calibrated range, outputs are near those of MatMulNBits on float32."""
    want = np.stack([run(proto.SerializeToString(), {"x": x})[0] for x in X[:8]]).astype(np.float64)
    runner = Runner(done.product("model.npu"))
    found = np.stack([runner.run({"x": x})["y"] for x in X[:8]])
    assert np.quantile(np.abs(found - want), 0.98) <= most * np.abs(want).max()


@pytest.mark.parametrize("target", often(TARGETS, 2))
@pytest.mark.parametrize(
    ("bits", "block", "zeros"),
    often([(4, 64, True), (4, 32, False), (8, 32, True), (8, 64, False)], 4),
)
def test_products_of_nbits(target: str, bits: int, block: int, zeros: bool, tmp_path: Path) -> None:
    proto, (recipe, most) = matmulnbits(bits, block, zeros), TARGETS[target]
    done = build_for(target, proto, tmp_path, recipe)
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    check_codes(done, bits, block, zeros)
    check_outputs(done, proto, most)


@pytest.mark.parametrize("turned", often([True, False], 2))
def test_blocks_of_dequantizelinear(turned: bool, tmp_path: Path) -> None:
    proto, (recipe, most) = linear(turned), TARGETS["bm1684x"]
    done = build_for("bm1684x", proto, tmp_path, recipe)
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    check_codes(done, 4, 32, True)
    check_outputs(done, proto, most)
