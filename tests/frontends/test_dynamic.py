"""Models that quantise their activations while they run: read as floats with the codes of their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantType as Kind
from onnxruntime.quantization import quantize_dynamic

from npuflow.frontends import Bindings
from npuflow.frontends.onnx import Onnx
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from tests.networks.onnx_text import normal, on_npu
from tests.tiers import often

FLOATS = {"w": normal(1, 8, 6), "b": normal(2, 6), "v": normal(3, 6, 4), "k": normal(4, 3, 2, 3, 3)}


def text(signature: str, body: str, arrays: dict[str, np.ndarray]) -> onnx.ModelProto:
    opsets = '"" : 17, "com.microsoft" : 1'
    made = parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> g {signature} {{ {body} }}")
    made.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return made


def exact(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """By ONNX's own reference, whose sums are exact: on processors with AVX2 and no VNNI onnxruntime adds
    pairs of products of uint8 and int8 in 16 bits that saturate. It alone knows the operators of
    com.microsoft, whose weights are uint8 here, of which sums are exact."""
    if any(n.domain == "com.microsoft" for n in model.graph.node):
        return run(model.SerializeToString(), feeds)
    return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]


def judged(model: onnx.ModelProto, codes: int, rows: int = 0) -> list[str]:
    """The network as it is read gives the model's numbers but for roundings of activations, and runs on the
    NPU; operators of its graph. `codes`: weights that have the model's codes; `rows`: of a table, where the
    inputs are numbers of them."""
    data = model.SerializeToString()
    reading = Onnx().read(data, Bindings())
    assert len(reading.stated) == codes
    assert any("quantises while it runs" in note for note in reading.notes)
    feeds = {i: normal(5, *reading.graph.type(i).shape) for i in reading.graph.inputs}
    if rows:
        feeds = {i: np.arange(v.size).reshape(v.shape) * 3 % rows for i, v in feeds.items()}
    done = rewrite(reading.graph)
    (found,), (wanted,) = run(export_model(done.graph), feeds), exact(model, feeds)
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()
    on_npu(done, feeds=feeds, host=("host:cast",) if rows else ())
    return [kind(n) for n in done.graph.nodes]


@pytest.mark.parametrize("weights", [Kind.QInt8, Kind.QUInt8])
@pytest.mark.parametrize("channels", [False, True])
def test_what_quantize_dynamic_makes_of_products(tmp_path: Path, weights: Kind, channels: bool) -> None:
    body = "a = MatMul(x, w) c = Add(a, b) r = Relu(c) y = MatMul(r, v)"
    model = text("(float[5,8] x) => (float[5,4] y)", body, {n: FLOATS[n] for n in "wbv"})
    onnx.save(model, str(tmp_path / "f.onnx"))
    options = {"per_channel": channels, "weight_type": weights}
    quantize_dynamic(str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx"), **options)
    quantised = onnx.load(str(tmp_path / "q.onnx"))
    assert {"MatMulInteger", "DynamicQuantizeLinear"} <= {n.op_type for n in quantised.graph.node}
    assert not any(k.startswith("host:") for k in judged(quantised, 2))


def test_a_convolution_of_quantize_dynamic(tmp_path: Path) -> None:
    model = text(
        "(float[1,2,6,6] x) => (float[1,3,6,6] y)",
        "y = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, k)",
        {"k": FLOATS["k"]},
    )
    onnx.save(model, str(tmp_path / "f.onnx"))
    quantize_dynamic(str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx"), weight_type=Kind.QUInt8)
    quantised = onnx.load(str(tmp_path / "q.onnx"))
    assert "ConvInteger" in {n.op_type for n in quantised.graph.node}
    assert judged(quantised, 1) == ["conv"]


@pytest.mark.parametrize("channels", often([False, True], 2))
def test_a_recurrent_layer_of_quantize_dynamic(tmp_path: Path, channels: bool) -> None:
    """Its first output is not used, so that only the last state has a name."""
    arrays = {"w": normal(5, 1, 20, 4), "r": normal(6, 1, 20, 5), "b": normal(7, 1, 40)}
    body = "none, y = LSTM<hidden_size=5>(x, w, r, b)"
    model = text("(float[7,1,4] x) => (float[1,1,5] y)", body, arrays)
    model.graph.node[0].output[0] = ""
    onnx.save(model, str(tmp_path / "f.onnx"))
    quantize_dynamic(str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx"), per_channel=channels)
    quantised = onnx.load(str(tmp_path / "q.onnx"))
    assert {"DynamicQuantizeLSTM"} <= {n.op_type for n in quantised.graph.node}
    assert not any(k.startswith("host:") for k in judged(quantised, 0))


@pytest.mark.parametrize("weights", [Kind.QInt8, Kind.QUInt8])
def test_a_table_of_quantize_dynamic(tmp_path: Path, weights: Kind) -> None:
    """onnxruntime picks codes, turns them and makes floats of them only then: the NPU picks the floats."""
    body = """e = Gather(t, x) s = Transpose<perm=[1,0,2]>(e) h = Tanh(s) m = MatMul(h, v) size = Shape(e)
        all = ReduceProd<keepdims=0>(size) f = Cast<to=1>(all) y = Div(m, f)"""
    arrays = {"t": normal(4, 9, 6), "v": FLOATS["v"]}
    model = text("(int64[1,7] x) => (float[7,1,4] y)", body, arrays)
    model.opset_import[0].version = 19      # the reference knows DequantizeLinear from then on
    onnx.save(model, str(tmp_path / "f.onnx"))
    quantize_dynamic(str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx"), weight_type=weights)
    quantised = onnx.load(str(tmp_path / "q.onnx"))
    kinds = [n.op_type for n in quantised.graph.node]
    assert kinds.index("Gather") < kinds.index("Transpose") < kinds.index("DequantizeLinear")
    found = judged(quantised, 2, rows=9)
    assert [k for k in found if k.startswith("host:")] == ["host:cast"]      # of the numbers of rows
    assert "lookup" in found


TABLE = {"t": np.random.default_rng(2).integers(0, 255, (9, 6)).astype(np.uint8), "z": np.uint8(120)}
STAYS = {
    "codes are an output": ("float[1,7,6] y, uint8[1,7,6] e", np.float32(0.02)),
    "scales of columns": ("float[1,7,6] y", np.linspace(0.01, 0.02, 6, dtype=np.float32)),
}


@pytest.mark.parametrize("case", STAYS.values(), ids=STAYS)
def test_codes_of_a_table_that_stay(case: tuple[str, np.ndarray]) -> None:
    outputs, scale = case
    arrays = {**TABLE, "z": np.full(scale.shape, 120, np.uint8), "s": scale}
    body = "e = Gather(t, x) y = DequantizeLinear<axis=2>(e, s, z)"
    model = text(f"(int64[1,7] x) => ({outputs})", body, {k: np.asarray(v) for k, v in arrays.items()})
    reading = Onnx().read(model.SerializeToString(), Bindings())
    assert [kind(n) for n in reading.graph.nodes] == ["host:gather", "host:dequantizelinear"]
    assert not reading.stated


CODES = np.random.default_rng(1).integers(0, 255, (8, 6)).astype(np.uint8)
MANY = np.linspace(0.01, 0.02, 6, dtype=np.float32)
PARAMS = {"w": CODES, "s": np.float32(0.02), "z": np.uint8(120), "b": FLOATS["b"]}
EACH = {**PARAMS, "s": MANY, "z": np.full(6, 120, np.uint8)}
FUSED = {
    "one scale": ("y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z)", PARAMS),
    "scales of columns, a bias": ("y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, b)", EACH),
    "codes of its input": (
        "q, t, o = DynamicQuantizeLinear(x) y = com.microsoft.MatMulIntegerToFloat(q, w, t, s, o, z, b)",
        PARAMS,
    ),
}


@pytest.mark.parametrize("form", FUSED.values(), ids=FUSED)
def test_fused_products(form: tuple[str, dict[str, np.ndarray]]) -> None:
    body, arrays = form
    used = {name: np.asarray(a) for name, a in arrays.items() if name != "b" or " b)" in body}
    found = judged(text("(float[5,8] x) => (float[5,6] y)", body, used), 1)
    assert not any(k.startswith("host:") for k in found)


def test_codes_that_are_read_elsewhere_stay_on_the_host() -> None:
    body = """q, t, o = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, o, z) f = Cast<to=1>(i) m = Mul(t, s)
        y = Mul(f, m)"""
    signature = "(float[5,8] x) => (float[5,6] y, int32[5,6] i)"
    model = text(signature, body, {n: np.asarray(PARAMS[n]) for n in "wsz"})
    reading = Onnx().read(model.SerializeToString(), Bindings())
    assert any("scales that are not known before" in note for note in reading.notes)
    assert "host:matmulinteger" in [kind(n) for n in reading.graph.nodes]
