"""Models of other quantisers: power-of-two scales by channel, and operators on codes, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from onnxruntime.quantization import QuantFormat, quantize_static
from onnxruntime.quantization import QuantType as Kind

from npuflow.hw.target import Target
from npuflow.ir.types import Array
from npuflow.place.partition import is_npu
from tests.frontends.test_quantized import (
    EXACT,
    Rows,
    imported,
    integers,
    observed,
    per_node,
    session_of,
    shifted,
)

RNG = np.random.default_rng(0)
NET = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,12,12] x) => (float[1,36,9] y) {
    a = Conv<pads=[1,1,1,1]>(x, k1, b1) b = LeakyRelu<alpha=0.1>(a)
    c = AveragePool<kernel_shape=[2,2], strides=[2,2]>(b) d = Conv(c, k2, b2) e = Sigmoid(d) f = Mul(d, e)
    g = Add(f, c) h = Concat<axis=1>(g, c) i = Reshape(h, flat) j = MatMul(i, w)
    k = Transpose<perm=[0,2,1]>(j) l = MatMul(k, j) m = MatMul(j, l) y = Add(m, j) }"""


@pytest.fixture(scope="module")
def net() -> tuple[onnx.ModelProto, list[Array]]:
    model = parser.parse_model(NET)
    shapes = {"k1": (8, 4, 3, 3), "b1": (8,), "k2": (8, 8, 1, 1), "b2": (8,), "w": (16, 9)}
    for name, shape in shapes.items():
        values = RNG.normal(size=shape) * (0.3 if len(shape) > 1 else 0.1)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    flat = numpy_helper.from_array(np.int64([1, 36, 16]), "flat")
    model.graph.initializer.append(flat)
    return model, [RNG.normal(size=(1, 4, 12, 12)).astype(np.float32) for _ in range(8)]


def quantised(net: tuple[onnx.ModelProto, list[Array]], folder: Path, **options: object) -> onnx.ModelProto:
    model, rows = net
    source, result = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save_model(model, str(source))
    quantize_static(str(source), str(result), Rows("x", rows), weight_type=Kind.QInt8, **options)
    return onnx.load_model(str(result))


@pytest.mark.parametrize("per_channel", [False, True])
def test_every_operator_on_codes_gives_onnxruntime_s_codes(
    net: tuple[onnx.ModelProto, list[Array]], per_channel: bool, tmp_path: Path
) -> None:
    """Each layer alone, on the codes that onnxruntime has for its inputs."""
    made = quantised(net, tmp_path, quant_format=QuantFormat.QOperator, per_channel=per_channel, **EXACT)
    kinds = {n.op_type for n in made.graph.node}
    assert {"QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QLinearConcat"} <= kinds
    assert {"QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool"} <= kinds
    graph, notes = integers(imported(made), Target())
    assert not [n for n in notes if n.on_host]
    names = [o for n in made.graph.node for o in n.output if n.op_type != "DequantizeLinear"]
    shown = onnx.ModelProto()
    shown.CopyFrom(made)
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    worst: dict[str, int] = {}
    for row in net[1][:4]:
        theirs = dict(zip(names, session_of(shown).run(names, {"x": row}), strict=True))
        codes = {}
        for name, given in theirs.items():
            for own in (f"{name}:real", f"{name.removesuffix('_quantized')}:q", name):
                value = graph.values.get(own)
                if value is not None and value.quant is not None and value.const is None:
                    zero = np.int64(0) if value.quant.dtype == given.dtype else np.int64(128)
                    base = value.quant.with_(zero_point=(0,))
                    codes[own] = shifted(given, zero, base).astype(value.quant.dtype)
        for node in graph.nodes:
            if not is_npu(node) or node.outputs[0] not in codes:
                continue
            fed = [graph.const(i) if graph.const(i) is not None else codes.get(i) for i in node.inputs if i]
            if all(i is not None for i in fed):
                (mine,) = node.op.integer(graph.site(node), fed, Target().numerics)
                off = int(np.abs(mine.astype(np.int64) - codes[node.outputs[0]].astype(np.int64)).max())
                worst[node.outputs[0]] = max(worst.get(node.outputs[0], 0), off)
    assert len(worst) >= 10 and max(worst.values()) <= 1, worst


def powers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all scales raised to powers of two, as MQBench exports for such hardware; a bias has the
    product of the scales of its layer."""
    held = {t.name: t for t in model.graph.initializer}
    back = {n.output[0]: n for n in model.graph.node if n.op_type == "DequantizeLinear"}
    scales = {n.input[1] for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")}
    for name in scales:
        values = np.exp2(np.ceil(np.log2(numpy_helper.to_array(held[name])))).astype(np.float32)
        held[name].CopyFrom(numpy_helper.from_array(values, name))
    for node in model.graph.node:
        if node.op_type == "Conv":
            x, w, b = (numpy_helper.to_array(held[back[i].input[1]]) for i in node.input)
            product = np.broadcast_to(x * w, b.shape).astype(np.float32)
            held[back[node.input[2]].input[1]].CopyFrom(
                numpy_helper.from_array(product.copy(), back[node.input[2]].input[1])
            )
    return model


def test_power_of_two_scales_by_channel_are_kept(
    net: tuple[onnx.ModelProto, list[Array]], tmp_path: Path
) -> None:
    """On a target whose scales are such."""
    options = {"ActivationSymmetric": True}
    made = powers(
        quantised(
            net, tmp_path, quant_format=QuantFormat.QDQ, per_channel=True, activation_type=Kind.QInt8,
            extra_options=options,
        )
    )
    target = Target()
    target = replace(target, numerics=replace(target.numerics, power_of_two=True))
    found = imported(made)
    graph, _ = integers(found, target)
    stated = {q.scale for n, q in found.stated.items() if found.graph.const(n) is None}
    kept = {v.quant.scale for v in graph.values.values() if v.quant is not None and v.const is None}
    assert stated <= kept
    worst: dict[str, int] = {}
    for row in net[1][:4]:
        apart = per_node(graph, target, observed(made, {"x": row}))
        worst = {name: max(worst.get(name, 0), off) for name, off in apart.items()}
    assert len(worst) >= 8 and max(worst.values()) <= 1, worst
