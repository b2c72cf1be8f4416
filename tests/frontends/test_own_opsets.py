"""Nodes whose newest form onnxruntime lacks, alone and in loops: they keep a form that it
has, through a whole build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import load_program
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends._nodes.upgrade import compatible
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.stages.simulate import Simulation
from tests.frontends.building import Arrays, built, model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)
BOXES = {"r": np.float32([[0, 0, 6, 6], [2, 2, 9, 9]]), "b": np.array([0, 0])}
ROI = "RoiAlign<output_height=2, output_width=2, sampling_ratio=2, spatial_scale=0.5>(x, r, b)"
LOOP = """g (float[1,3,8,8] x, int64 n) => (float[1,3,8,8] y, float[k,1,3,a,b] z) {
    go = Constant<value = bool {1}>() r = Constant<value = float[1,4] {0.0, 0.0, 4.0, 4.0}>() b =
    Constant<value = int64[1] {0}>()
    y, z = Loop(n, go, x) <body = b (int64 i, bool ci, float[1,3,8,8] v) => (bool co, float[1,3,8,8] w,
    float[1,3,c,d] u) {
        co = Identity(ci) w = Tanh(v) u = BODY }> }"""
SCAN = """g (float[2,4,3] x, float[2,3] s) => (float[2,3] y, float[2,4,3] z) { y, z = Scan(, s, x)
    <num_scan_inputs=1, DIR body =
    b (float[3] a, float[3] v) => (float[3] w, float[3] u) { w = Add(a, v) u = Relu(w) }> }"""
SCANNED = {"x": RNG.normal(size=(2, 4, 3)).astype(np.float32), "s": np.ones((2, 3), np.float32)}
CASES: dict[str, tuple[int, str, Arrays]] = {
    **{
        f"RoiAlign {o}": (
            o,
            f"g (float[1,3,8,8] x, float[2,4] r, int64[2] b) => (float[2,3,2,2] y) {{ y = {ROI} }}",
            {"x": X, **BOXES},
        )
        for o in (10, 16, 22)
    },
    **{
        f"GlobalLpPool {o}": (
            o,
            "g (float[1,3,8,8] x) => (float[1,3,1,1] y) { y = GlobalLpPool<p=1>(x) }",
            {"x": X},
        )
        for o in (7, 13, 22)
    },
    "Loop of RoiAlign": (16, LOOP.replace("BODY", ROI.replace("(x,", "(v,")), {"x": X, "n": np.array(2)}),
    "Loop of GlobalLpPool": (9, LOOP.replace("BODY", "GlobalLpPool(v)"), {"x": X, "n": np.array(2)}),
    "Loop of Upsample": (
        9,
        LOOP.replace("BODY", 'Upsample<mode="nearest">(v, t)').replace(
            "go =", "t = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() go ="
        ),
        {"x": X, "n": np.array(2)},
    ),
    "Scan over a batch": (8, SCAN.replace("DIR", ""), SCANNED),
    "Scan backwards": (8, SCAN.replace("DIR", "directions=[1],"), SCANNED),
}


@pytest.mark.parametrize("name", CASES)
def test_the_meaning_stays_where_the_newest_form_does_not_run(name: str) -> None:
    opset, text, feeds = CASES[name]
    data = model(text, min(opset, 21)).SerializeToString()          # onnxruntime has no kernel of opset 22
    written = data if opset < 22 else model(text, opset).SerializeToString()
    graph = FRONTENDS["onnx"]().read(written, Bindings({n: a.shape for n, a in feeds.items()})).graph
    found = run(export_model(graph), feeds, graph.outputs)
    for mine, theirs in zip(found, run(data, feeds, graph.outputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_only_forms_of_equal_meaning_replace_each_other() -> None:
    assert compatible("RoiAlign", 16, 22) and not compatible("RoiAlign", 15, 16)
    assert not compatible("GroupNormalization", 20, 21) and not compatible("Split", 17, 18)


@pytest.mark.slow
def test_loops_and_boxes_build_through_every_step(tmp_path: Path) -> None:
    text = """g (float[1,3,8,8] x) => (float[2,4,2,2] y, float[1,4,1,1] z, float[1,4,8,8] w, float[g,4,1,1]
    grown) {
        c = Conv<pads=[1,1,1,1]>(x, k) f = Relu(c) y = RoiAlign<output_height=2, output_width=2>(f, r, b) z
        = GlobalLpPool(f)
        n = Constant<value = int64 {2}>() go = Constant<value = bool {1}>()
        w = Loop(n, go, f) <body = l (int64 i, bool ci, float[1,4,8,8] v) => (bool co, float[1,4,8,8] o) {
            co = Identity(ci) p = GlobalLpPool(v) o = Div(v, p) }>
        grown = Loop(n, go, z) <body = l (int64 i, bool ci, float[q,4,1,1] v) => (bool co, float[r,4,1,1] o) {
            co = Identity(ci) o = Concat<axis=0>(v, z) }> }"""
    weights = {"k": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), **BOXES}
    data = {"x": RNG.normal(size=(4, 3, 8, 8)).astype(np.float32)}
    done = built(tmp_path, model(text, 11, weights), data, '[evaluate]\nsource = "data.npz"\n')
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    shapes = {port["name"]: port["shape"] for port in load_program(done.product(".npu")).meta["outputs"]}
    assert shapes == {"y": [2, 4, 2, 2], "z": [1, 4, 1, 1], "w": [1, 4, 8, 8], "grown": [3, 4, 1, 1]}
