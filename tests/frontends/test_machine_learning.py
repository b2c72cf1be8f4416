"""Operators of ai.onnx.ml that are arithmetic, as exporters write scikit-learn's scalers and models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.stages.model import only_arrays
from npuflow.stages.simulate import Simulation
from tests.frontends.building import built, model

ML = ', "ai.onnx.ml" : 3'
RNG = np.random.default_rng(0)
COEFFICIENTS = "coefficients=[" + ", ".join(f"{v:.3f}" for v in RNG.normal(size=12)) + "]"
LINEAR = f"{COEFFICIENTS}, intercepts=[0.1, -0.2, 0.3]"
SCALED = "y = ai.onnx.ml.Scaler<offset=[0.5, 1.0, -2.0, 0.0], scale=[2.0, 0.5, 1.0, 4.0]>(x)"
CLASSIFIER = f"l, y = ai.onnx.ml.LinearClassifier<{LINEAR}, classlabels_ints=[7, -3, 12]"
X, Y = "float[2,4] x", "float[2,4] y"
# inputs, call, outputs, operators; those of them that the host may have
CASES: dict[str, tuple[str, str, str, list[str], set[str]]] = {
    "scaler": (X, SCALED, Y, ["sub", "mul"], set()),
    "one scale for all": (X, "y = ai.onnx.ml.Scaler<offset=[0.0], scale=[3.0]>(x)", Y, ["mul"], set()),
    "whole numbers": (f"int64{X[5:]}", SCALED, Y, ["host:cast", "sub", "mul"], {"host:cast"}),
    "regressor": (
        X, f"y = ai.onnx.ml.LinearRegressor<{LINEAR}, targets=3>(x)", "float[2,3] y", ["gemm"], set()
    ),
    "one target": (
        X, "y = ai.onnx.ml.LinearRegressor<coefficients=[0.5, -1.0, 2.0, 0.25]>(x)", "float[2,1] y",
        ["gemm"], set(),
    ),
    "norm 1": (X, 'y = ai.onnx.ml.Normalizer<norm="L1">(x)', Y, [], set()),
    "norm 2": (X, 'y = ai.onnx.ml.Normalizer<norm="L2">(x)', Y, [], set()),
    "scores": (
        X, f'{CLASSIFIER}, post_transform="SOFTMAX">(x)', "float[2,3] y", ["gemm", "softmax"], set()
    ),
    "columns": (
        X, "i = Constant<value_ints=[2, 0, 3]>() y = ai.onnx.ml.ArrayFeatureExtractor(x, i)", "float[2,3] y",
        ["gather"], set(),
    ),
    "a row": (
        "float[4] x", "i = Constant<value=int64[1,2] {2, 0}>() y = ai.onnx.ml.ArrayFeatureExtractor(x, i)",
        "float[1,2] y", [], set(),
    ),
    "labels": (
        X, f'{CLASSIFIER}, post_transform="LOGISTIC">(x)', "int64[2] l, float[2,3] y", [],
        {"host:cast", "host:gather"},
    ),
}
LEAF = """y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0], nodes_nodeids=[0],
    nodes_featureids=[0], nodes_modes=["LEAF"], nodes_values=[0.0], nodes_truenodeids=[0],
    nodes_falsenodeids=[0], target_treeids=[0], target_nodeids=[0], target_ids=[0],
    target_weights=[1.5]>(x)"""
HOSTED = {
    "a transform that is none": (
        f'y = ai.onnx.ml.LinearRegressor<{LINEAR}, targets=3, post_transform="PROBIT">(x)', "float[2,3] y"
    ),
    "trees": (LEAF, "float[2,1] y"),
}


def feed(kind_of: str) -> np.ndarray:
    if kind_of.startswith("int64"):
        return np.arange(8).reshape(2, 4) - 3
    held = RNG.normal(size=(2, 4)).astype(np.float32)
    held[1] = 0                                 # a row without a norm
    return held if "2,4" in kind_of else held[0]


@pytest.mark.parametrize("name", CASES)
def test_it_is_arithmetic(name: str) -> None:
    source, call, outputs, wanted, hosts = CASES[name]
    proto = model(f"g ({source}) => ({outputs}) {{ {call} }}", 17, None, ML)
    graph = rewrite(FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings()).graph).graph
    feeds = {"x": feed(source)}
    theirs = run(proto.SerializeToString(), feeds, graph.outputs)
    for mine, other in zip(run(export_model(graph), feeds, graph.outputs), theirs, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, 1e-5, 1e-6)
    if wanted:
        assert [kind(n) for n in graph.nodes] == wanted
    assert {kind(n) for n in graph.nodes if kind(n).startswith("host")} <= hosts


@pytest.mark.parametrize("name", HOSTED)
def test_what_is_none_stays_on_the_host(name: str) -> None:
    call, outputs = HOSTED[name]
    proto = model(f"g ({X}) => ({outputs}) {{ {call} }}", 17, None, ML)
    graph = rewrite(FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings()).graph).graph
    assert all("has no operator file" in why for _, why in place(graph, Target()).reasons())


def test_a_map_of_labels_is_the_array_of_scores() -> None:
    """As skl2onnx writes every classifier unless told otherwise."""
    text = f"""g ({X}) => (int64[2] l, seq(map(int64, float)) y) {{
        {CLASSIFIER.replace("l, y", "l, p")}>(x)
        y = ai.onnx.ml.ZipMap<classlabels_int64s=[7, -3, 12]>(p) }}"""
    data = model(text, 17, None, ML).SerializeToString()
    reading = FRONTENDS["onnx"]().read(data, Bindings())
    assert reading.graph.type("y").shape == (2, 3)
    (note,) = (n for n in reading.notes if "y" in n)
    assert note.endswith("its columns are 7, -3, 12")
    feeds = {"x": feed(X)}
    (scores,), (maps,) = run(export_model(reading.graph), feeds, ["y"]), run(data, feeds, ["y"])
    np.testing.assert_allclose(scores, [[one[k] for k in (7, -3, 12)] for one in maps], 1e-5)
    (same,) = run(FRONTENDS["onnx"]().runnable(data, Bindings()), feeds, ["y"])
    np.testing.assert_allclose(scores, same, 1e-5)


def test_an_output_that_is_no_array_is_an_error() -> None:
    text = f"g ({X}) => (seq(float[2,2]) y) {{ a = Relu(x) y = SplitToSequence<axis=1>(a) }}"
    with pytest.raises(ModelError, match='the output "y" is no array') as error:
        only_arrays(FRONTENDS["onnx"]().read(model(text, 17).SerializeToString(), Bindings()).graph)
    assert error.value.hint.startswith("[model] outputs")
    reading = FRONTENDS["onnx"]().read(model(text, 17).SerializeToString(), Bindings(outputs=("a",)))
    assert reading.graph.outputs == ("a",)


def test_a_scaled_perceptron_builds(tmp_path: Path) -> None:
    text = f"""g (float[1,4] x) => (float[1,2] y) {{
        {SCALED.replace("y =", "s =")} a = MatMul(s, w) r = Relu(a) y = MatMul(r, v) }}"""
    weights = {n: RNG.normal(size=s).astype(np.float32) for n, s in {"w": (4, 16), "v": (16, 2)}.items()}
    done = built(tmp_path, model(text, 17, weights, ML), {"x": RNG.normal(size=(32, 4)).astype(np.float32)})
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
