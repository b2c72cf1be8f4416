"""Outputs whose shape depends on the data: they build, are compared where shapes match
and named where they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import Runner
from npuflow.cli._run_model import joined
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.fidelity import Fidelity
from npuflow.stages.simulate import Simulation
from tests.frontends.building import built, model

NONZERO = """g (float[1,3,8,8] x) => (int64[a,b] places, float[n,4] kept, float[1,4] scores) {
    c = Conv<pads=[1,1,1,1]>(x, k) r = Relu(c) p = GlobalAveragePool(r) scores = Flatten(p)
    rows = Transpose<perm=[0,2,3,1]>(r) flat = Reshape(rows, s) first = ReduceMax<keepdims=0>(flat, one)
    big = Greater(first, level) places = NonZero(big) at = Squeeze(places, zero) kept = Gather(flat, at) }"""
BOXES = """g (float[1,16] x) => (float[n,4] best) {
    h = Gemm(x, w, b) e = Sigmoid(h) boxes = Reshape(e, s) one = Gemm(x, v) t = Sigmoid(one) scores =
    Reshape(t, u)
    chosen = NonMaxSuppression(boxes, scores, most, overlap, level) at = Gather<axis=1>(chosen, two)
    flat = Squeeze(boxes, zero) best = Gather(flat, at) }"""
RNG = np.random.default_rng(0)


@pytest.mark.slow
def test_places_of_values_build_through_every_step(tmp_path: Path) -> None:
    weights = {
        "k": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), "s": np.array([64, 4]), "one": np.array([1]),
        "zero": np.array([0]), "level": np.float32(5),
    }
    more = '[evaluate]\nsource = "data.npz"\n[search]\nsamples = 2\n[correct]\nsamples = 4\nheld_out = 2\n'
    done = built(
        tmp_path,
        model(NONZERO, weights=weights),
        {"x": RNG.normal(size=(6, 3, 8, 8)).astype(np.float32)},
        more,
    )
    tensors = done.artifact("fidelity", Fidelity).tensors
    assert (
        tensors["kept"].apart > 0
        and "of another shape" in str(tensors["kept"])
        and not tensors["scores"].apart
    )
    score = done.artifact("evaluate", Evaluation).score
    assert 0 < score.unlike["kept"] < 6 and score.sqnr_db["scores"] > 20 and score.figures["agreement"] > 0.5
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    outputs = Runner(done.product(".npu")).run_many(
        [{"x": row[None]} for row in np.load(tmp_path / "data.npz")["x"]]
    )
    assert len({one["places"].shape for one in outputs}) > 1
    assert joined(outputs)["places[0]"].shape == outputs[0]["places"].shape and joined(outputs)[
        "scores"
    ].shape == (6, 4)


def test_boxes_after_suppression_build(tmp_path: Path) -> None:
    weights = {
        "w": RNG.normal(size=(16, 24)).astype(np.float32),
        "b": np.zeros(24, np.float32),
        "s": np.array([1, 6, 4]),
        "v": RNG.normal(size=(16, 6)).astype(np.float32),
        "u": np.array([1, 1, 6]),
        "most": np.array([4]),
        "overlap": np.float32([0.3]),
        "level": np.float32([0.4]),
        "two": np.array(2),
        "zero": np.array([0]),
    }
    more = '[evaluate]\nsource = "data.npz"\n'
    done = built(
        tmp_path, model(BOXES, weights=weights), {"x": RNG.normal(size=(8, 16)).astype(np.float32)}, more
    )
    score = done.artifact("evaluate", Evaluation).score
    assert 0 <= score.figures["agreement"] <= 1 and score.unlike.get("best", 0) <= 8
