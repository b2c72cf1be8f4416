"""Quantised ONNX models: their scales are kept, and each layer computes the codes
that onnxruntime computes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization import QuantType as Kind

from npuflow.frontends import Bindings
from npuflow.frontends.onnx import Onnx
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, QuantType, TensorType, Value
from npuflow.place.partition import is_npu
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.quantise.stated import moved
from npuflow.run.interpret import Interpreter
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import Parsed, parsed
from npuflow.testing.quantised import quantize_graph

SMALL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,12,12] x) => (float[1,10] y) {
    a = Conv<pads=[1,1,1,1]>(x, k1, b1) b = Relu(a) c = Conv<pads=[1,1,1,1], group=8>(b, k2, b2) d = Clip(c,
    zero, six)
    e = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d) f = Conv(e, k3, b3) s = Sigmoid(f) m = Mul(f, s)
    r = Add(m, e) q = Concat<axis=1>(r, e) p = GlobalAveragePool(q) l = Flatten(p) y = Gemm<transB=1>(l, w,
    v) }"""


class Rows(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, rows: list[Array]) -> None:
        self.left = iter([{name: row} for row in rows])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.left, None)


@pytest.fixture(scope="module")
def small() -> tuple[onnx.ModelProto, list[Array]]:
    rng = np.random.default_rng(0)
    model = parser.parse_model(SMALL)
    shapes = {"k1": (8, 3, 3, 3), "k2": (8, 1, 3, 3), "k3": (8, 8, 1, 1), "w": (10, 16), "v": (10,)}
    for name, shape in {**shapes, **dict.fromkeys(("b1", "b2", "b3"), (8,))}.items():
        values = rng.normal(size=shape) * (0.3 if len(shape) > 1 else 0.1)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    for name, number in (("zero", 0.0), ("six", 6.0)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    return model, [rng.normal(size=(1, 3, 12, 12)).astype(np.float32) for _ in range(12)]


# 7-bit weights: without VNNI onnxruntime's integer kernels saturate where two products of 8
# bits meet in 16 (21 codes off).
EXACT = {"activation_type": Kind.QUInt8, "reduce_range": True}
FORMS: dict[str, dict[str, Any]] = {
    "qdq per channel": {"quant_format": QuantFormat.QDQ, "per_channel": True, "activation_type": Kind.QUInt8},
    "qdq signed": {"quant_format": QuantFormat.QDQ, "per_channel": False, "activation_type": Kind.QInt8},
    "qdq symmetric": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": Kind.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "qdq weights rounded later": {
        "quant_format": QuantFormat.QDQ,
        "extra_options": {"AddQDQPairToWeight": True},
    },
    "operators": {"quant_format": QuantFormat.QOperator, **EXACT},
    "operators per channel": {"quant_format": QuantFormat.QOperator, "per_channel": True, **EXACT},
}


def made(model: onnx.ModelProto, rows: list[Array], folder: Path, form: str) -> onnx.ModelProto:
    source, result = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save_model(model, str(source))
    quantize_static(
        str(source), str(result), Rows(model.graph.input[0].name, rows), weight_type=Kind.QInt8, **FORMS[form]
    )
    return onnx.load_model(str(result))


def imported(model: onnx.ModelProto) -> Parsed:
    return parsed(model.SerializeToString(), Onnx(), ModelTable(None))  # type: ignore[arg-type]


def integers(found: Parsed, target: Target) -> tuple[Graph, tuple[Any, ...]]:
    """The quantised graph; values without stated codes would need a range, and get none."""
    placed = place(found.graph, target)
    done = quantize_graph(found.graph, placed.on_npu, {}, Quantize(), target.numerics, found.stated)
    return done.graph, done.notes


def observed(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, tuple[Array, Array, Array]]:
    """By float tensor (the one rounded, and the one after): codes, scale and zero point, in
    onnxruntime as the model says."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    rounding = [n for n in shown.graph.node if n.op_type == "QuantizeLinear"]
    known = {o.name for o in shown.graph.output}
    shown.graph.output.extend(
        helper.make_empty_tensor_value_info(n.output[0]) for n in rounding if n.output[0] not in known
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [n.output[0] for n in rounding]
    codes = dict(zip(names, session.run(names, dict(feed)), strict=True))
    consts = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    back = {n.input[0]: n.output[0] for n in shown.graph.node if n.op_type == "DequantizeLinear"}
    found = {}
    for node in rounding:
        row = codes[node.output[0]], consts[node.input[1]], consts[node.input[2]]
        found.update({node.input[0]: row, back.get(node.output[0], node.output[0]): row})
    return found


def shifted(codes: Array, zero: Array, quant: QuantType) -> Array:
    """Their codes in our signedness: both differ from the zero point by the same."""
    return codes.astype(np.int64) - int(zero) + quant.zero_point[0]


def per_node(graph: Graph, target: Target, truth: Mapping[str, tuple[Array, Array, Array]]) -> dict[str, int]:
    """Every integer node alone, fed with onnxruntime's codes: how far its codes are from onnxruntime's."""
    apart = {}
    codes = {}
    for value_id, value in graph.values.items():
        name = value_id.removesuffix(":q")
        if value.quant is not None and value.const is None and name in truth:
            code, scale, zero = truth[name]
            assert value.quant.scale == (float(scale),), value_id
            codes[value_id] = shifted(code, zero, value.quant).astype(value.quant.dtype)
    for node in graph.nodes:
        if not is_npu(node) or node.outputs[0] not in codes:
            continue
        inputs = [graph.const(i) if graph.const(i) is not None else codes.get(i) for i in node.inputs if i]
        if any(i is None for i in inputs):
            continue                                   # behind a requantisation of npuflow's own
        (mine,) = node.op.integer(graph.site(node), inputs, target.numerics)
        apart[node.outputs[0]] = int(
            np.abs(mine.astype(np.int64) - codes[node.outputs[0]].astype(np.int64)).max()
        )
    return apart


@pytest.mark.parametrize("form", [f for f in FORMS if f.startswith("qdq")])
def test_each_layer_gives_the_codes_of_onnxruntime(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path, form: str
) -> None:
    model, rows = small
    target = Target()
    quantised = made(model, rows, tmp_path, form)
    found = imported(quantised)
    graph, notes = integers(found, target)
    assert not [n for n in notes if n.on_host] and all(is_npu(n) for n in graph.nodes if n.params is not None)
    assert sum(is_npu(n) for n in graph.nodes) >= 12
    worst: dict[str, int] = {}
    signal = noise = 0.0
    for row in rows[:4]:
        feed = {"x": row}
        apart = per_node(graph, target, observed(quantised, feed))
        worst = {name: max(worst.get(name, 0), off) for name, off in apart.items()}
        (theirs,) = session_of(quantised).run(["y"], feed)
        mine = Interpreter(graph, target.numerics).run(feed)[graph.outputs[0]]
        signal += float((theirs.astype(np.float64) ** 2).sum())
        noise += float(((theirs - mine).astype(np.float64) ** 2).sum())
    assert len(worst) >= 9, worst
    assert max(worst.values()) <= 1, worst
    assert noise == 0 or 10 * np.log10(signal / noise) > 30


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("form", [f for f in FORMS if f.startswith("operators")])
def test_operators_on_codes_mean_the_same(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path, form: str
) -> None:
    model, rows = small
    target = Target()
    quantised = made(model, rows, tmp_path, form)
    assert any(n.op_type.startswith("QLinear") for n in quantised.graph.node)
    found = imported(quantised)
    assert not any(getattr(n.op, "op_type", "") for n in found.graph.nodes), (
        "everything is an operator that npuflow knows"
    )
    graph, notes = integers(found, target)
    assert not [n for n in notes if n.on_host]
    shown = onnx.ModelProto()
    shown.CopyFrom(quantised)
    names = [
        o
        for n in quantised.graph.node
        if n.op_type.startswith(("QLinear", "QGemm", "MaxPool"))
        for o in n.output
    ]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    apart: dict[str, int] = {}
    for row in rows[:6]:
        codes = dict(zip(names, session_of(shown).run(names, {"x": row}), strict=True))
        values = Interpreter(graph, target.numerics).run({"x": row}, keep=set(graph.values))
        for name in names:
            mine = next(
                (values[v] for v in (f"{name}:real", f"{name.removesuffix('_quantized')}:q") if v in values),
                None,
            )
            if mine is not None:
                off = int(np.abs(mine.astype(np.int64) - codes[name].astype(np.int64)).max())
                apart[name] = max(apart.get(name, 0), off)
    # over the whole network, not layer by layer
    assert len(apart) >= 8 and max(apart.values()) <= 2, apart
    scales = {
        float(numpy_helper.to_array(t))
        for t in quantised.graph.initializer
        if t.name.endswith("scale") and not t.dims
    }
    mine = {v.quant.scale[0] for v in graph.values.values() if v.quant is not None and v.const is None}
    assert mine <= scales


def test_the_float_network_keeps_what_saturation_did(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path
) -> None:
    """onnxruntime takes out the Relu that the rounding's saturation does; without
    rounding it has to be there again."""
    from npuflow.onnx.export import export_model

    model, rows = small
    quantised = made(model, rows, tmp_path, "qdq per channel")
    assert not any(n.op_type in ("Relu", "Clip") for n in quantised.graph.node)
    graph = imported(quantised).graph
    clip = next(n.op.clip for n in graph.nodes if n.op.onnx == "Conv")
    assert clip is not None and clip[0] == 0.0
    float_session = onnxruntime.InferenceSession(export_model(graph), providers=["CPUExecutionProvider"])
    signal = noise = 0.0
    for row in rows:
        (theirs,), (mine,) = session_of(model).run(["y"], {"x": row}), float_session.run(["y"], {"x": row})
        signal, noise = signal + float((theirs**2).sum()), noise + float(((theirs - mine) ** 2).sum())
    assert 10 * np.log10(signal / noise) > 25, "only the weights are rounded"


def test_codes_of_weights_are_the_models_own(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path
) -> None:
    model, rows = small
    quantised = made(model, rows, tmp_path, "qdq per channel")
    stored = {t.name: numpy_helper.to_array(t) for t in quantised.graph.initializer}
    graph, _ = integers(imported(quantised), Target())
    mine = [
        graph.const(v.id)
        for v in graph.values.values()
        if v.quant is not None and v.const is not None and v.quant.bits == 8
    ]
    theirs = [a for n, a in stored.items() if n.endswith("_quantized") and a.dtype == np.int8]
    assert sorted(a.tobytes() for a in mine if a is not None) == sorted(a.tobytes() for a in theirs)


@pytest.mark.parametrize("form", ["qdq per channel", "operators per channel"])
def test_channels_with_next_to_no_weights_keep_their_scales(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path, form: str
) -> None:
    """onnxruntime widens such a scale until the bias just fits 32 bits; what codes are left
    need little room beside it."""
    model, rows = small
    thin = onnx.ModelProto()
    thin.CopyFrom(model)
    for tensor in thin.graph.initializer:
        if tensor.name in ("k1", "k3"):
            values = numpy_helper.to_array(tensor).copy()
            values[2] *= np.float32(1e-9)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    found = imported(made(thin, rows, tmp_path, form))
    graph, _ = integers(found, Target())
    weights = {
        n: q for n, q in found.stated.items() if n in found.graph.consts or found.graph.const(n) is not None
    }
    thinnest = [
        min(q.scale) / max(q.scale) for q in weights.values() if q.axis is not None and len(q.scale) == 8
    ]
    assert sum(ratio < 1e-4 for ratio in thinnest) == 2 and not list(moved(found.stated, graph))
    for name, quant in weights.items():
        kept = graph.values[f"{name}:q"].quant
        assert kept is not None and kept.scale == quant.scale, name


def test_a_channel_without_a_multiplier_is_named() -> None:
    stated = QuantType(8, True, (0.1, 1e-12, 0.2), (0, 0, 0), axis=0)
    graph = SimpleNamespace(
        values={"w:q": Value("w:q", TensorType((3, 1)), stated.with_(scale=(0.1, 1.02e-12, 0.2)), const="c")}
    )
    assert list(moved({"w": stated}, graph)) == [                     # type: ignore[arg-type]
        ("w", "1 of 3 stated scales are raised, so that biases and multipliers fit: channel 1 (1e-12) by 2 %")
    ]


def test_a_target_without_zero_points_says_what_it_changes(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path
) -> None:
    from dataclasses import replace

    model, rows = small
    found = imported(made(model, rows, tmp_path, "qdq per channel"))
    target = Target()
    target = replace(target, numerics=replace(target.numerics, activation_zero_point=False))
    _, notes = integers(found, target)
    said = [n.reason for n in notes]
    assert any("zero point of" in text for text in said)


def test_what_cannot_be_lifted_stays_and_is_told() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y, uint8[1,4] z) {
        z = QuantizeLinear(x, s, o) d = DequantizeLinear(z, s, o) e = QuantizeLinear(x, t, o) f =
        DequantizeLinear(e, t, o)
        y = Add(d, f) }"""
    model = parser.parse_model(text)
    for name, array in (("s", np.float32(0.1)), ("t", np.float32(0.2)), ("o", np.uint8(3))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    reading = Onnx().read(model.SerializeToString(), Bindings())
    assert not reading.stated and any("stay as they are" in note for note in reading.notes)
    assert [getattr(n.op, "op_type", type(n.op).__name__) for n in reading.graph.nodes].count(
        "QuantizeLinear"
    ) == 2
    dynamic = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4] x) => (uint8[1,4] y, float s, uint8 o) { y, s, o = DynamicQuantizeLinear(x) }""")
    assert any(
        "quantised while it runs" in note
        for note in Onnx().read(dynamic.SerializeToString(), Bindings()).notes
    )


@pytest.mark.parametrize("form", ["qdq per channel", "operators per channel"])
def test_damaged_models_are_refused_in_words(
    small: tuple[onnx.ModelProto, list[Array]], tmp_path: Path, form: str
) -> None:
    import random

    from npuflow.base.errors import NpuflowError

    quantised, draw = made(*small, tmp_path, form), random.Random(1)
    for _ in range(60):
        broken = onnx.ModelProto()
        broken.CopyFrom(quantised)
        node, stored = draw.choice(broken.graph.node), broken.graph.initializer
        match draw.randrange(6):
            case 0:
                del node.input[draw.randrange(len(node.input))]
            case 1:
                node.input[draw.randrange(len(node.input))] = ""
            case 2:
                node.input[draw.randrange(len(node.input))] = draw.choice(stored).name
            case 3:
                node.input[draw.randrange(len(node.input))] = draw.choice(broken.graph.node).output[0]
            case 4:
                del stored[draw.randrange(len(stored))]
            case _:
                others = [
                    np.float32(0),
                    np.zeros((2, 3), np.float32),
                    np.int8(3),
                    np.float32([1, 2]),
                    np.float32(np.nan),
                ]
                tensor = draw.choice(stored)
                tensor.CopyFrom(numpy_helper.from_array(np.asarray(draw.choice(others)), tensor.name))
        with contextlib.suppress(NpuflowError):        # everything else than a fault in words is a failure
            Onnx().read(broken.SerializeToString(), Bindings())
