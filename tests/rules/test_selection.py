"""Selections by constant indices, samplings and look-ups as moves and products."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.rule import check_rewrite, graph_of
from tests.networks.onnx_text import model, normal, on_npu, ops, refused, rewritten

GRID = np.random.default_rng(0).uniform(-1.2, 1.2, (1, 4, 5, 2)).astype(np.float32)
WEIGHTS = {
    "rows": np.array([[[0], [2]]], np.int64),
    "boxes": np.stack(np.meshgrid([0], range(3), range(4), [0, 1], indexing="ij"), -1).astype(np.int64),
    "picked": np.array([[2, 2, 0, 1], [0, 1, 1, 2]], np.int64),
    "places": np.array([[1, 3], [0, 0]], np.int64),
    "backwards": np.array([3, 1, 4], np.int64),
    "size": np.array([4, 2], np.int64),
    "grid": GRID,
    "grids": np.concatenate([GRID, GRID[:, ::-1]]),
    "image": np.array([5, 5], np.int64),
    "block": np.array([1, 5], np.int64),
    "sizes": np.array([2, 3, 4, 5], np.int64),
    "by": np.array(1.5, np.float32),
    "zero": np.array(0.0, np.float32),
    "none": np.zeros(4, bool),
}


@pytest.mark.parametrize(
    ("signature", "body", "made"),
    [
        (
            "float[1,3,4,6] x, float[1,3,4,2] u => float[1,3,4,6] y",
            "y = ScatterND(x, boxes, u)",
            {"slice", "concat"},
        ),
        (
            "float[1,4,3] x, float[1,2,3] u => float[1,4,3] y",
            "y = ScatterND(x, deep, u)",
            {"slice", "concat"},
        ),
        ("float[3,4] x => float[2,4] y", "y = GatherElements(x, picked)", {"gather", "reshape"}),
        ("float[2,4] x => float[2] y", "y = GatherND(x, places)", {"gather", "reshape"}),
        (
            "float[4,3] x => float[4,3] y",
            "y = ReverseSequence<time_axis=0>(x, backwards)",
            {"gather", "reshape"},
        ),
        ("float[3,4,5] x => float[4,4,2] y", "y = CenterCropPad<axes=[0,2]>(x, size)", {"slice", "concat"}),
        ("float[2,4,4] x => float[2,4,4] y", "y = Trilu<upper=0>(x)", {"mul"}),
        (
            "float[1,2,6,7] x => float[1,2,4,5] y",
            'y = GridSample<mode="linear", padding_mode="zeros">(x, grid)',
            {"reshape", "matmul"},
        ),
        (
            "float[2,3,6,7] x => float[2,3,4,5] y",
            'y = GridSample<mode="cubic", padding_mode="reflection", align_corners=1>(x, grids)',
            {"reshape", "slice", "matmul", "concat"},
        ),
        (
            "float[4,3] x, float[3,3] u => float[4,3] y",
            'y = ScatterND<reduction="add">(x, twice, u)',
            {"slice", "concat", "add"},
        ),
        (
            "float[4,3] x, float[2,3] u => float[4,3] y",
            'y = ScatterElements<reduction="max">(x, columns, u)',
            {"slice", "concat", "max", "gather", "reshape"},
        ),
        ("float[2,15,5] x => float[2,3,5,5] y", "y = Col2Im(x, image, block)", {"reshape", "matmul"}),
        ("float[2,2,3] x => float[2,4,5,2] y", "y = AffineGrid(x, sizes)", {"reshape", "matmul"}),
        ("float[2,4,3] x => float[2,3,3] y", "y = Compress<axis=1>(x, kept)", {"gather", "slice", "concat"}),
        ("float[2,2] x => float[3] y", "y = Compress(x, kept)", {"gather", "reshape"}),
        ("float[3,4] x => float[6] y", "y = Compress(x, odd)", {"gather", "reshape", "slice"}),
        (
            "float[2,4,3] x => float[2,3,3] y",
            "a = Relu(x) c = Compress<axis=-2>(a, kept) y = Tanh(c)",
            {"relu", "gather", "slice", "concat", "tanh"},
        ),
        ("float[3,4] x => float[3,4] y", "y = Mod<fmod=1>(x, by)", {"mod"}),
        ("float[3,4] x => float[3,4] y", "y = Mod<fmod=1>(x, each)", {"mul", "abs", "floor", "sign", "sub"}),
    ],
)
def test_spelled(signature: str, body: str, made: set[str]) -> None:
    weights = {
        **WEIGHTS,
        "deep": np.array([[[0, 3], [0, 1]]], np.int64),
        "kept": np.array([True, False, True, True]),
        "odd": np.arange(12) % 2 == 1,
        "twice": np.array([[1], [3], [1]], np.int64),
        "columns": np.array([[0, 2, 1], [0, 3, 1]], np.int64),
        "each": np.array([0.5, 0.75, 1.5, 2.0], np.float32),
    }
    done = rewritten(model(signature, body, weights, opset=20))
    assert set(ops(done)) <= made, ops(done)
    on_npu(done)


LOW = -np.inf
MASKS = {
    "causal": np.where(np.tri(3, dtype=bool), 0.0, LOW).astype(np.float32),
    "empty": np.array([[0, LOW, LOW], [LOW, LOW, LOW], [0, 0, LOW]], np.float32),
    "low": np.array(LOW, np.float32),
    "zero": np.array(0.0, np.float32),
}
SAFE = (
    # a row that attends to nothing is 0: by its largest score, by each of them, by the result
    "a = Add(x, {0}) s = Softmax(a) m = ReduceMax<axes=[-1]>(a) e = Equal(m, low) y = Where(e, zero, s)",
    "a = Add(x, {0}) s = Softmax(a) e = Equal(a, low) y = Where(e, zero, s)",
    "a = Add(x, {0}) s = Softmax(a) e = IsNaN(s) y = Where(e, zero, s)",
)


@pytest.mark.parametrize("body", SAFE)
@pytest.mark.parametrize("mask", ["causal", "empty"])
def test_rows_that_are_masked_whole(body: str, mask: str) -> None:
    """Comparisons with infinity are as constant as the mask is: a causal one leaves nothing for the host; a
    row that attends to nothing is 0 / 0, and its 0 is chosen there."""
    done = rewritten(model("float[3,3] x => float[3,3] y", body.format(mask), MASKS))
    assert ("host:where" in ops(done)) == (mask == "empty")
    if mask == "causal":
        assert not any(name.startswith("host:") for name in ops(done))
        on_npu(done)


def test_a_mask_that_depends_on_data_keeps_its_comparison_with_infinity() -> None:
    body = "k = Greater(x, zero) a = Where(k, x, low) s = Softmax(a) e = IsNaN(s) y = Where(e, zero, s)"
    data = model("float[3,3] x => float[3,3] y", body, MASKS)
    feeds = {"x": np.array([[1, 2, -1], [-1, -2, -3], [3, -1, -1]], np.float32)}
    done = rewritten(data, feeds=feeds)
    assert "host:where" in ops(done)
    assert any(r.reason == "rows that are masked whole are looked for" for r in done.refusals)


@pytest.mark.parametrize(
    ("signature", "body", "rule", "reason"),
    [
        (
            "float[4] x, float[2] u, int64[2,1] i => float[4] y",
            "y = ScatterND(x, i, u)",
            "spell_selection",
            "its indices are not a constant",
        ),
        (
            "float[1,1,6,7] x, float[1,4,5,2] g => float[1,1,4,5] y",
            "y = GridSample(x, g)",
            "spell_sampling",
            "the grid is not a constant",
        ),
        (
            "float[4,3] x => float[n,3] y",
            "y = Compress<axis=0>(x, none)",
            "spell_selection",
            "it selects nothing",
        ),
        (
            "float[3] x => float[3] y",
            "y = Mod<fmod=1>(x, zero)",
            "spell_mod",
            "a divisor that is 0 or infinite",
        ),
    ],
)
def test_what_stays_says_why(signature: str, body: str, rule: str, reason: str) -> None:
    data = model(signature, body, WEIGHTS, opset=20)
    assert refused(rewrite(graph_of(data)), rule) == reason


LOOKUP = {
    "table": normal(0, 7, 4),
    "depth": np.array(7),
    "values": np.array([0, 1], np.float32),
    "other": np.array([0, 2], np.float32),
    "iota": np.arange(7),
    "last": np.array([-1]),
    "bias": normal(1, 4),
}
LOOKED_UP = ["host:cast", "lookup", "reshape"]


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("o = OneHot(i, depth, values) y = MatMul(o, table)", LOOKED_UP),
        ("u = Unsqueeze(i, last) e = Equal(u, iota) o = Cast<to=1>(e) y = MatMul(o, table)", LOOKED_UP),
        ("u = Unsqueeze(i, last) e = Equal(iota, u) o = Cast<to=1>(e) y = Gemm(o, table, bias)",
         [*LOOKED_UP, "add"]),
        ("o = OneHot(i, depth, other) y = MatMul(o, table)", [*LOOKED_UP, "matmul"]),
    ],
)
def test_one_hot_products_are_lookups(body: str, made: list[str]) -> None:
    done = check_rewrite(graph_of(model("int64[3] i => float[3,4] y", body, LOOKUP)))
    assert ops(done) == made
