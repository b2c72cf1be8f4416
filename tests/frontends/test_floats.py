"""Models of half, double and mixed precision compute in float32, and keep the declared
types of inputs and outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuflow import Runner
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends._nodes.floats import single
from npuflow.ir.graph import Graph
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.fidelity import Fidelity
from npuflow.stages.rewrite_check import RewriteCheck
from npuflow.stages.simulate import Simulation
from npuflow.tune.parts import output_parts
from tests.frontends.building import built, model
from tests.tiers import often

RNG = np.random.default_rng(0)
NET = """g (TYPE[1,3,8,8] x) => (TYPE[1,5] y, TYPE[1,4,8,8] f) {
    c = Conv<pads=[1,1,1,1]>(x, k, b) d = Clip(c, lo, hi) s = Sigmoid(d) f = Mul(d, s)
    e = Cast<to=1>(f) p = GlobalAveragePool(e) q = Cast<to=CODE>(p) l = Flatten(q) y = Gemm(l, w, v) }"""
WEIGHTS = {
    "k": RNG.normal(size=(4, 3, 3, 3)),
    "b": RNG.normal(size=4),
    "w": RNG.normal(size=(4, 5)),
    "v": RNG.normal(size=5),
    "lo": np.array(-1.0),
    "hi": np.array(2.0),
}
X = RNG.normal(size=(8, 3, 8, 8))


def network(dtype: str, opset: int = 17) -> onnx.ModelProto:
    word = {"float16": "float16", "float64": "double", "float32": "float"}[dtype]
    text = NET.replace("TYPE", word).replace("CODE", str(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    return model(text, opset, {name: a.astype(dtype) for name, a in WEIGHTS.items()})


def read(proto: onnx.ModelProto) -> Reading:
    found: Reading = FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings())
    return found


def others(graph: Graph) -> set[str]:
    """Values of other floating-point types."""
    return {
        name for name, value in graph.values.items() if value.type.dtype in ("float16", "float64", "bfloat16")
    }


def test_ports_of_bfloat16_are_float32() -> None:
    """numpy can neither feed nor give them."""
    reading = read(
        model("g (bfloat16[1,5] x) => (bfloat16[1,5] y) { r = Relu(x) y = Neg(r) }", 17, {})
    )
    graph = rewrite(reading.graph).graph
    assert graph.inputs == ("x",) and graph.outputs == ("y",)
    assert graph.type("x").dtype == graph.type("y").dtype == "float32"
    assert any("bfloat16 tensors" in note for note in reading.notes)
    feeds = {"x": np.array([[-2, 0, 1, 2, 1 + 2**-6 + 2**-12]], np.float32)}
    np.testing.assert_array_equal(run(export_model(graph), feeds)[0], [[0, 0, -1, -2, -1 - 2**-6]])
    (part,) = output_parts(graph)
    assert part.value not in others(graph) and graph.nodes[0].outputs[0] != part.value != "y"


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_one_width_inside_and_the_declared_one_outside(dtype: str) -> None:
    reading = read(network(dtype))
    graph = rewrite(reading.graph).graph
    assert others(graph) == {"x", "y", "f"} and [kind(n) for n in graph.nodes].count("host:cast") == 3
    assert any(
        f"{dtype} tensors" in note and "x, y, f keep the declared type" in note for note in reading.notes
    )
    feeds = {"x": X[:1].astype(dtype)}
    plain = run(network("float32").SerializeToString(), {"x": X[:1].astype(np.float32)})
    for mine, theirs in zip(run(export_model(graph), feeds), plain, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, theirs, rtol=2e-2 if dtype == "float16" else 1e-4, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", often(["float16", "float64"], 2))
def test_they_build_and_are_measured(dtype: str, tmp_path: Path) -> None:
    more = '[evaluate]\nsource = "data.npz"\n'
    done = built(tmp_path, network(dtype), {"x": X.astype(np.float32)}, more)
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    score = done.artifact("evaluate", Evaluation).score
    assert score.npu_macs == 1.0 and min(score.sqnr_db.values()) > 20
    assert (
        min(f.sqnr for f in done.artifact("fidelity", Fidelity).tensors.values() if f.sqnr is not None) > 15
    )
    (outputs,) = Runner(done.product(".npu")).run_many([{"x": X[:1].astype(dtype)}])
    assert {name: a.dtype.name for name, a in outputs.items()} == {"y": dtype, "f": dtype}
    shown = onnx.load(str(done.product(".qdq.onnx"))).graph
    assert {p.type.tensor_type.elem_type for p in (*shown.input, *shown.output)} == {
        helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    }


def test_half_networks_pass_the_check_of_rewrites(tmp_path: Path) -> None:
    done = built(tmp_path, network("float16"), {"x": X.astype(np.float32)}, until="rewrite_check")
    found = done.artifact("rewrite_check", RewriteCheck)
    assert found.errors and "warning" not in found.summary() and found.worst.limit > 1e-3


def test_integer_ports_of_a_half_network_are_codes(tmp_path: Path) -> None:
    more = '[quantize]\ninputs = "integer"\noutputs = "integer"\n'
    done = built(tmp_path, network("float16"), {"x": X.astype(np.float32)}, more)
    (outputs,) = Runner(done.product(".npu")).run_many([{"x": X[:1].astype(np.float16)}])
    assert {a.dtype.kind for a in outputs.values()} <= {"i", "u"}


def test_sizes_computed_in_double_keep_their_precision() -> None:
    # 7 / (1/3 + 1e-9) rounds down to 20 in double and is 21 in single precision
    text = """g (float[1,2,7,7] x) => (float[1,2,h,w] y) { s = Shape<start=2>(x) d = Cast<to=11>(s) r =
    Mul(d, f) g = Floor(r)
        i = Cast<to=7>(g) n = Constant<value=int64[2] {1, 2}>() z = Concat<axis=0>(n, i) y =
        Resize<mode="nearest">(x, , , z) }"""
    proto = model(text, 17, {"f": np.array([3 - 1e-9, 3 - 1e-9])})
    assert read(proto).graph.type("y").shape == (1, 2, 20, 20)


def test_double_constants_meet_single_data_and_subgraphs_follow() -> None:
    text = """g (float[2,3] x, bool c) => (float[2,3] y, double[2,3] z) { d = Cast<to=11>(x) e = Mul(d, m)
        z = If(c) <then_branch = a () => (double[2,3] p) { p = Add(e, m) }, else_branch = b () =>
        (double[2,3] q) {
            h = Constant<value = double[1] {2.0}>() q = Mul(e, h) }> y = Cast<to=1>(z) }"""
    proto = model(text, 17, {"m": np.array([1.0, 2.0, 3.0])})
    reading = read(proto)
    assert others(reading.graph) == {"z"}
    for c in (True, False):
        feeds = {"x": RNG.normal(size=(2, 3)).astype(np.float32), "c": np.array(c)}
        for mine, theirs in zip(
            run(export_model(reading.graph), feeds), run(proto.SerializeToString(), feeds), strict=True
        ):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_brain_floats_are_read() -> None:
    proto = model(
        "g (float[1,4] x) => (float[1,3] y) { b = Cast<to=16>(x) m = MatMul(b, w) y = Cast<to=1>(m) }", 17
    )
    weights = RNG.normal(size=(4, 3)).astype(np.float32)
    proto.graph.initializer.append(helper.make_tensor("w", 16, [4, 3], weights.ravel()))
    graph = rewrite(read(proto).graph).graph
    assert [kind(n) for n in graph.nodes] in (["matmul"], ["gemm"]) and not others(graph)
    x = np.ones((1, 4), np.float32)
    stored = numpy_helper.to_array(proto.graph.initializer[0]).astype(np.float32)
    np.testing.assert_allclose(run(export_model(graph), {"x": x})[0], x @ stored, rtol=1e-6)


def test_codes_of_a_half_quantised_model_are_kept() -> None:
    text = """g (float16[1,4] x) => (float16[1,3] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q,
    s, z)
        v = DequantizeLinear(w, t, u) y0 = MatMul(d, v) r = QuantizeLinear(y0, s, z) y = DequantizeLinear(r,
        s, z) }"""
    codes = RNG.integers(-127, 128, (4, 3)).astype(np.int8)
    weights = {"s": np.float16(0.05), "z": np.int8(3), "w": codes, "t": np.float16(0.01), "u": np.int8(0)}
    reading = read(model(text, 19, weights))
    assert reading.graph.const("v").dtype == np.float32 and reading.stated["v"].bits == 8
    assert {"x:float32", "y:float32", "v"} <= set(reading.stated)


def test_finite_numbers_stay_finite() -> None:
    found = single(np.array([1e300, -1e300, np.inf, np.nan, 1.5]))
    assert (
        found.dtype == np.float32
        and np.isfinite(found[[0, 1, 4]]).all()
        and np.isinf(found[2])
        and np.isnan(found[3])
    )
