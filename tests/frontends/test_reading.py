"""Reading ONNX: bindings, cut points, external data, old opsets, lying shapes,
subgraphs, foreign operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.onnx.load import external_files
from npuflow.ir.queries import kind
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run


def read(text_or_proto: str | onnx.ModelProto, bindings: Bindings | None = None) -> tuple[Reading, bytes]:
    proto = parser.parse_model(text_or_proto) if isinstance(text_or_proto, str) else text_or_proto
    data = proto.SerializeToString()
    reading = FRONTENDS["onnx"]().read(data, bindings or Bindings())
    verify(reading.graph, "reading")
    return reading, data


def same(reading: Reading, data: bytes, **feeds: np.ndarray) -> None:
    """The exported graph and the original agree."""
    names = reading.graph.outputs
    given = {k: v for k, v in feeds.items() if k in reading.graph.inputs}
    for a, b in zip(run(export_model(reading.graph), given, names), run(data, feeds, names), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def head(opset: int, extra: str = "") -> str:
    return f'<ir_version: 8, opset_import: ["" : {opset}{extra}]>'


X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def test_free_dimensions_are_bound_by_shape_name_or_as_batch() -> None:
    text = head(17) + " g (float[N, T, 4] x) => (float[N, T, 4] y) { y = Relu(x) }"
    assert read(text, Bindings({"x": (2, 3, 4)}))[0].graph.type("y").shape == (2, 3, 4)
    reading, _ = read(text, Bindings(dims={"T": 3}))
    assert reading.graph.type("y").shape == (1, 3, 4) and "dimension 0 (N)" in reading.notes[0]


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (Bindings({"x": (2, 3, 5)}), "cannot have the shape"),
        (Bindings({"z": (1,)}), 'no input "z"'),
        (Bindings({"x": (1, 3, 4)}, outputs=("nope",)), 'no value "nope"'),
        (Bindings(constants={"q": 1.0}), 'no input "q"'),
    ],
)
def test_wrong_bindings_are_named(bindings: Bindings, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(head(17) + " g (float[N, T, 4] x) => (float[N, T, 4] y) { y = Relu(x) }", bindings)


def test_cut_points_end_the_graph() -> None:
    text = head(17) + " g (float[2,3,4] x) => (float[2,3,4] y) { a = Tanh(x) b = Relu(a) y = Exp(b) }"
    reading, _ = read(text, Bindings(outputs=("a",)))
    assert reading.graph.outputs == ("a",) and [kind(n) for n in reading.graph.nodes] == ["tanh"]


def test_declared_shapes_are_not_believed() -> None:
    proto = parser.parse_model(
        head(17) + " g (float[2,3,4] x) => (float[7,7] y) { a = Transpose<perm=[2,0,1]>(x) y = Relu(a) }"
    )
    proto.graph.value_info.append(helper.make_tensor_value_info("a", 1, [9, 9]))
    assert read(proto)[0].graph.type("y").shape == (4, 2, 3)


def test_external_data_is_read_in(tmp_path: Path) -> None:
    proto = parser.parse_model(head(17) + " g (float[2,3,4] x) => (float[2,3,5] y) { y = MatMul(x, w) }")
    weights = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "net.onnx"
    onnx.save_model(proto, str(path), save_as_external_data=True, location="net.bin", size_threshold=0)
    reader = FRONTENDS["onnx"]()
    assert reader.files(path) == (path, tmp_path / "net.bin")
    reading = reader.read(reader.gather(path), Bindings())
    (got,) = run(export_model(reading.graph), {"x": X})
    np.testing.assert_allclose(got, X @ weights, rtol=1e-5)
    (tmp_path / "net.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match="external data"):
        reader.gather(path)
    (tmp_path / "net.bin").unlink()
    with pytest.raises(ModelError, match="external data"):
        reader.gather(path)


OLD = {
    "Softmax<axis=1>(x)": (9, "float[2,3,4]"),
    "Clip<min=0.0, max=6.0>(x)": (7, "float[2,3,4]"),
    "Squeeze<axes=[0]>(t)": (9, "float[3,4]"),
    "ReduceMean<axes=[1], keepdims=0>(x)": (11, "float[2,4]"),
    "Dropout<ratio=0.5>(x)": (7, "float[2,3,4]"),
    "Slice<axes=[1], starts=[1], ends=[3]>(x)": (7, "float[2,2,4]"),
    "Pad<pads=[0,1,0,0,0,2]>(x)": (7, "float[2,4,6]"),
    "Upsample<scales=[1.0,1.0,2.0]>(x)": (7, "float[2,3,8]"),
    "Unsqueeze<axes=[1]>(x)": (7, "float[2,1,3,4]"),
    "Hardmax<axis=1>(x)": (9, "float[2,3,4]"),
    "LogSoftmax(x)": (11, "float[2,3,4]"),
    "Softmax<axis=2>(x)": (11, "float[2,3,4]"),
    'Upsample<mode="linear">(x, s)': (9, "float[2,3,8]"),
    'Resize<mode="linear">(x, s)': (10, "float[2,3,8]"),
    "Resize(x, h)": (10, "float[2,3,2]"),
    "TopK<k=2>(x)": (9, "float[2,3,2]"),
    "Scatter<axis=2>(x, i, x)": (9, "float[2,3,4]"),
    "BatchNormalization(x, v, v, v, v)": (7, "float[2,3,4]"),
}


@pytest.mark.parametrize("call", OLD)
def test_old_opsets_keep_their_meaning(call: str) -> None:
    opset, shape = OLD[call]
    first = "t = Slice<axes=[0], starts=[0], ends=[1]>(x) " if "(t)" in call else ""
    outputs = "y, k" if "TopK" in call else "y"
    proto = parser.parse_model(
        f"{head(opset)} g (float[2,3,4] x) => ({shape} y) {{ {first}{outputs} = {call} }}"
    )
    indices = np.random.default_rng(2).permuted(np.tile(np.arange(4), (2, 3, 1)), axis=2)
    weights = {
        "s": np.float32([1, 1, 2]),
        "h": np.float32([1, 1, 0.5]),
        "v": np.float32([1, 2, 3]),
        "i": indices,
    }
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    reading, data = read(proto)
    same(reading, data, x=X)


def test_weights_may_be_constant_nodes() -> None:
    text = head(17) + """ g (float[2,3,4] x) => (float[2,3,4] y) {
        w = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>() y = Mul(x, w) }"""
    reading, data = read(text)
    assert [kind(n) for n in reading.graph.nodes] == ["mul"] and reading.graph.const("w") is not None
    same(reading, data, x=X)


BRANCHES = """ g (float[2,3,4] x, bool c) => (float[2,3,4] y) {
    t = Tanh(x)
    y = If (c) <then_branch = a () => (float[2,3,4] p) { p = Mul(t, x) }, else_branch = b () =>
    (float[2,3,4] q) { q = Neg(t) }>
}"""


def test_control_flow_runs_on_the_host_with_what_it_captures() -> None:
    reading, data = read(head(17) + BRANCHES)
    node = reading.graph.nodes[-1]
    assert kind(node) == "host:if" and node.inputs == ("c", "t", "x") and node.op.captures == ("t", "x")
    for c in (True, False):
        same(reading, data, x=X, c=np.array(c))


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("Identity(c)", 'depends on "c"; [model] constants = { c = NUMBER }'), ("Cast<to=9>(e)", "on data")],
)
def test_a_branch_that_stays_open_says_what_would_choose_it(condition: str, reason: str) -> None:
    text = head(17) + f""" g (float[2,3,4] x, bool c) => (float[2,3,4] y) {{
        e = ReduceSum<keepdims=0>(x) d = {condition} y = If(d) <then_branch = a () => (float[2,3,4] p)
        {{ p = Neg(x) }}, else_branch = b () => (float[2,3,4] q) {{ q = Tanh(x) }}> }}"""
    (node,) = (n for n in read(text)[0].graph.nodes if kind(n) == "host:if")
    assert reason in node.op.reason


@pytest.mark.parametrize(("value", "name"), [(1.0, "mul"), (0.0, "neg")])
def test_a_constant_condition_leaves_one_branch(value: float, name: str) -> None:
    reading, data = read(head(17) + BRANCHES, Bindings(constants={"c": value}))
    assert [kind(n) for n in reading.graph.nodes][:2] == ["tanh", name]
    same(reading, data, x=X, c=np.array(bool(value)))


def test_loops_build() -> None:
    text = head(17) + """ g (float[3] x, int64 n) => (float[3] y) {
        c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] w) { co =
        Identity(ci) w = Add(v, x) }>
    }"""
    reading, data = read(text)
    same(reading, data, x=np.ones(3, np.float32), n=np.array(3))


def test_operators_of_onnxruntime_are_known_by_their_session() -> None:
    text = head(17, ', "com.microsoft" : 1') + """ g (float[2,3,4] x) => (float[2,3,4] y) {
        s = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>() y =
        com.microsoft.SkipSimplifiedLayerNormalization(x, x, s) }"""
    reading, data = read(text)
    assert kind(reading.graph.nodes[0]) == "host:skipsimplifiedlayernormalization" and reading.graph.type(
        "y"
    ).shape == (2, 3, 4)
    same(reading, data, x=X)


@pytest.mark.parametrize("results", ["y", "y, r"])
def test_a_norm_that_onnxruntime_has_in_the_domain_of_onnx(results: str) -> None:
    """Its optimiser and its exporters of language models write SimplifiedLayerNormalization as such."""
    given = "float[2,3,4] y, float[2,3,1] r" if "r" in results else "float[2,3,4] y"
    reading, data = read(
        head(17) + f""" g (float[2,3,4] x) => ({given}) {{
        s = Constant<value = float[4] {{1.0, 2.0, 3.0, 4.0}}>()
        {results} = SimplifiedLayerNormalization<axis=-1, epsilon=0.001>(x, s) }}"""
    )
    same(reading, data, x=X)


def test_functions_are_inlined() -> None:
    text = head(17, ', "own" : 1') + """ g (float[2,3,4] x) => (float[2,3,4] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    reading, data = read(text)
    assert [kind(n) for n in reading.graph.nodes] == ["add"]
    same(reading, data, x=X)


def test_strings_stay_whole() -> None:
    text = (
        head(20)
        + " g (float[2] x) => (string[2] y) { a = Cast<to=8>(x) b = Cast<to=8>(x) y = StringConcat(a, b) }"
    )
    reading, data = read(text)
    x = np.array([1.5, 2.0], np.float32)
    assert run(export_model(reading.graph), {"x": x})[0].tolist() == run(data, {"x": x})[0].tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" g (float[2,3] x) => (float[2,3] y) { y = Nonesuch(x) }", "not valid ONNX"),
        (" g (float[2,3] x) => (float[2,3] y) { y = Add(x, missing) }", r"cycle|nothing"),
        (" g (float[2,3] x, float[4,5] z) => (float[2,3] y) { y = Add(x, z) }", "not valid ONNX"),
        (" g (float[2,3] x) => (float[2,3] y) { y = Relu<alpha=1.0>(x) }", "not valid ONNX"),
        (" g (float[2,3] x) => (float[2,3] y) { a = Relu(b) b = Relu(a) y = Add(a, x) }", "cycle"),
        (" g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Tanh(x) a = Relu(y) }", "twice"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(head(17) + text)


def test_nodes_in_any_order_are_sorted() -> None:
    proto = parser.parse_model(
        head(17) + " g (float[2,3,4] x) => (float[2,3,4] y) { a = Tanh(x) y = Relu(a) }"
    )
    nodes = [proto.graph.node[1], proto.graph.node[0]]
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(proto)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    assert [kind(n) for n in read(shuffled)[0].graph.nodes] == ["tanh", "relu"]


def test_bindings_that_leave_nothing_to_compute() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }"""
    with pytest.raises(ModelError, match="cannot have the shape"):
        read(text, Bindings({"x": (0, 3)}))
    with pytest.raises(ModelError, match="cannot have the shape") as caught:
        read(text, Bindings({"x": (1, 4)}))
    assert "resize" in caught.value.hint
    with pytest.raises(ModelError, match="the model has no inputs left"):
        read(text, Bindings({"x": (1, 3)}, constants={"x": 1.0}))


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }"""
    file = tmp_path / "net.onnx"
    file.write_bytes(parser.parse_model(text).SerializeToString()[:-3])
    with pytest.raises(ModelError, match=r'"net\.onnx" is not an ONNX model') as caught:
        FRONTENDS["onnx"]().gather(file)
    assert "whole" in str(caught.value.hint)
    with pytest.raises(ModelError, match=r'"net\.onnx" is not an ONNX model') as caught:
        external_files(file)                  # what a build asks first
    assert "whole" in str(caught.value.hint) and caught.value.where.file == str(file)
