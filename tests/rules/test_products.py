"""What lies between the products of a transformer: matrices of rows, columns that are split, scales."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.rules import Hardware
from npuflow.testing.rule import RuleSuite, check_rewrite, graph_of
from tests.networks.onnx_text import model, normal, ops, rewritten

DENSE = {"w": normal(0, 8, 8), "u": normal(1, 8, 8), "b": normal(2, 8), "c": normal(3, 8)}
ROWS = {**DENSE, "axis": np.array([-1]), "each": normal(4, 1, 5, 8)}
TWO_LAYERS = "g = MatMul(x, w) h = Add(g, b) {between} k = MatMul(z, u) y = Add(k, c)"


def layers(between: str, batch: int = 1) -> bytes:
    """Two dense layers on rows, with something between them."""
    size = f"float[{batch},5,8]"
    return model(f"{size} x => {size} y", TWO_LAYERS.format(between=between), ROWS)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("between", "left"),
    [
        ("z = Erf(h)", ["erf"]),
        ("z = Add(h, x)", ["add"]),
        ("t = Tanh(h) z = Mul(t, each)", ["tanh", "mul"]),
        (
            "m = ReduceMean<axes=[2]>(h) d = Sub(h, m) s = Mul(d, d) t = Tanh(s) z = Div(t, s)",
            ["reducemean", "sub", "mul", "tanh", "div"],
        ),
    ],
)
def test_rows_stay_a_matrix_between_dense_layers(between: str, left: list[str], batch: int) -> None:
    done = check_rewrite(graph_of(layers(between, batch)))
    found = ops(done)
    assert [o for o in found if o not in ("reshape", "gemm")] == left
    assert found.count("reshape") == 2 and found[0] == found[-1] == "reshape"


@pytest.mark.parametrize(
    "between", ["z = Softmax<axis=1>(h)", "t = Tanh(h) m = ReduceMean<axes=[1]>(t) z = Sub(t, m)"]
)
def test_what_looks_across_rows_keeps_its_dimensions(between: str) -> None:
    assert ops(rewritten(layers(between))).count("reshape") == 4


HEADS = "g = MatMul(x, w) h = Add(g, b) r = Reshape(h, heads) t = Transpose<perm=[2,0,3,1,4]>(r)"
SPLIT = f"{HEADS} q, k, v = Split<axis=0>(t, ones) a = Mul(q, k) y = Mul(a, v)"


def attention(rows: int = 5) -> bytes:
    """Queries, keys and values of four heads from one product."""
    given = {
        "w": normal(0, 8, 24),
        "b": normal(1, 24),
        "heads": np.array([1, rows, 3, 4, 2]),
        "ones": np.ones(3, np.int64),
    }
    return model(f"float[1,{rows},8] x => float[1,1,4,{rows},2] y", SPLIT, given)


class TestSplitProduct(RuleSuite):
    name = "split_product"
    applies = (
        model(
            "float[50,8] x => float[50,96] y",
            "g = Gemm(x, w, b) p, q = Split<axis=1>(g, sizes) y = Concat<axis=1>(q, p)",
            {"w": normal(0, 8, 96), "b": normal(1, 96), "sizes": np.array([32, 64])},
        ),
        model(
            "float[50,8] x => float[50,32] y",
            "g = Gemm<transB=1>(x, w) p, q = Split<axis=1>(g, sizes) y = Sub(p, q)",
            {"w": normal(0, 64, 8), "sizes": np.array([32, 32])},
        ),
    )
    leaves = (
        model(
            "float[5,8] x => float[5,4] y",
            "g = Gemm(x, w) t = Tanh(g) p, q = Split<axis=1>(t, sizes) y = Sub(p, q)",
            {"w": normal(0, 8, 8), "sizes": np.array([4, 4])},
        ),
        model(
            "float[1,8] x => float[1,4] y",
            "g = Gemm(x, w) p, q = Split<axis=1>(g, sizes) y = Sub(p, q)",
            {"w": normal(0, 8, 8), "sizes": np.array([4, 4])},
        ),
    )


def test_queries_keys_and_values_are_products_of_their_own() -> None:
    found = ops(check_rewrite(graph_of(attention())))
    assert found.count("gemm") == 3 and "split" not in found and found.count("transpose") <= 3


def test_parts_that_fill_the_array_badly_stay_one_product() -> None:
    wide = Hardware(columns=24, bandwidth=1e9)
    done = check_rewrite(graph_of(attention()), hardware=wide)
    assert ops(done).count("gemm") == 1
    assert any(r.rule == "split_product" and "idle" in r.reason for r in done.refusals)


SCORES = """g = MatMul(x, w) h = Add(g, b) r = Reshape(h, heads) q = Transpose<perm=[0,2,1,3]>(r)
            k = Transpose<perm=[0,2,3,1]>(z) s = MatMul(q, k) {scaled} y = Softmax(m)"""
GIVEN = {
    "w": normal(0, 8, 8),
    "b": normal(1, 8),
    "heads": np.array([1, 5, 2, 4]),
    "half": np.array(0.5, np.float32),
    "less": np.array(-0.5, np.float32),
}


def scores(scaled: str) -> bytes:
    """Products of queries and keys, scaled."""
    return model("float[1,5,8] x, float[1,5,2,4] z => float[1,2,5,5] y", SCORES.format(scaled=scaled), GIVEN)


@pytest.mark.parametrize("scaled", ["m = Mul(s, half)", "m = Mul(half, s)", "m = Div(s, half)"])
def test_the_scale_of_scores_goes_into_weights(scaled: str) -> None:
    found = ops(check_rewrite(graph_of(scores(scaled))))
    assert "mul" not in found and "div" not in found and found.count("matmul") == 1


@pytest.mark.parametrize("scaled", ["m = Div(half, s)", "m = Mul(s, less)", "a = Mul(s, half) m = Add(a, s)"])
def test_other_scales_stay(scaled: str) -> None:
    found = ops(rewritten(scores(scaled)))
    assert "mul" in found or "div" in found


def test_integers_keep_their_shapes() -> None:
    """What lies between a Reshape of positions and their reader is no row of a product."""
    weights = {"to": np.array([3, 1, 2])}
    body = "t = Cast<to=7>(x) r = Reshape(t, to) d = Sub(r, r) y = Add(d, r)"
    done = rewritten(model("float[3,2] x => int64[3,1,2] y", body, weights))
    assert "reshape" in ops(done) and not [a for a in done.applied if a.rule == "sink_reshape"]


MERGED = {"w": normal(0, 32, 24), "u": normal(1, 24, 4), "b": normal(2, 4), "flat": np.array([-1, 24])}


def merged(net: str, **more: np.ndarray) -> list[str]:
    """Operators of a network of rows [1, 6, 32] behind the rules, which must give the same numbers."""
    return ops(check_rewrite(graph_of(model("float[1,6,32] x => float[6,4] y", net, {**MERGED, **more}))))


def test_two_products_by_constants_become_one_where_it_is_smaller() -> None:
    net = "h = MatMul(x, w) r = Reshape(h, flat) y = Gemm(r, u, b)"
    assert merged(net).count("gemm") == 1 and "matmul" not in merged(net)
    turned = "h = MatMul(x, w) r = Reshape(h, flat) y = Gemm<transB=1>(r, u, b)"
    assert merged(turned, u=normal(1, 4, 24)).count("gemm") == 1


@pytest.mark.parametrize("net", [
    "h = MatMul(x, w) g = Relu(h) r = Reshape(g, flat) y = Gemm(r, u, b)",
    "h = MatMul(x, w) r = Reshape(h, flat) t = Gemm(r, u, b) s = ReduceSum(h) y = Add(t, s)",
    "h = MatMul(x, w) r = Reshape(h, flat) y = Gemm<alpha=0.5>(r, u, b)",
])
def test_products_with_something_between_stay_two(net: str) -> None:
    found = merged(net)
    assert found.count("gemm") + found.count("matmul") == 2


def test_factors_of_low_rank_stay() -> None:
    found = merged("h = MatMul(x, w) r = Reshape(h, flat) y = Gemm(r, u, b)", w=normal(0, 32, 3),
                   u=normal(1, 3, 4), flat=np.array([-1, 3]))
    assert found.count("gemm") + found.count("matmul") == 2


FRAMES = "c = Gather<axis=1>(x, places) m = Mul(c, window) h = MatMul(m, waves) y = Add(h, b)"


@pytest.mark.parametrize(("begin", "step", "count"), [(0, 5, 30), (3, 12, 25), (1, 17, 22), (0, 1, 60)])
def test_frames_and_a_product_are_a_convolution(begin: int, step: int, count: int) -> None:
    """Frames of 12 numbers: with overlap, one behind the other, with gaps; past what they read, or not."""
    places = begin + step * np.arange(count)[:, None] + np.arange(12)
    given = {"places": places, "window": normal(0, 12), "waves": normal(1, 12, 7), "b": normal(2, 7)}
    net = model(f"float[1,370] x => float[1,{count},7] y", FRAMES, given)
    found = ops(check_rewrite(graph_of(net)))
    assert "conv" in found and not {"gather", "host:gather", "gemm", "matmul"} & {*found}


@pytest.mark.parametrize("places", [
    np.arange(12) + np.array([0, 5, 11, *range(20, 240, 10)])[:, None],
    np.arange(12)[::-1] + 5 * np.arange(25)[:, None],
    np.arange(12) + np.array([[0], [5], [10]]),           # so few that they are copied
])
def test_other_places_are_no_frames(places: np.ndarray) -> None:
    given = {"places": places, "window": normal(0, 12), "waves": normal(1, 12, 7), "b": normal(2, 7)}
    net = model(f"float[1,370] x => float[1,{len(places)},7] y", FRAMES, given)
    assert "conv" not in ops(check_rewrite(graph_of(net)))


@pytest.mark.parametrize(("net", "left"), [
    ("s = Mul(x, x) y = Pow(s, p)", ["abs", "pow"]),
    ("s = Pow(x, two) y = Sqrt(s)", ["abs"]),
    ("s = Mul(x, x) y = Sqrt(s)", ["abs"]),
    ("s = Mul(x, x) t = Pow(s, p) y = Add(t, s)", ["mul", "pow", "add"]),
    ("s = Pow(x, p) y = Sqrt(s)", ["pow", "sqrt"]),
])
def test_a_power_of_a_square_is_one_of_the_magnitude(net: str, left: list[str]) -> None:
    given = {"p": np.float32(0.23), "two": np.float32(2)}
    assert ops(rewritten(model("float[1,6,32] x => float[1,6,32] y", net, given))) == left
    if "s = Pow(x, p)" not in net:                        # of negative numbers that is none
        check_rewrite(graph_of(model("float[1,6,32] x => float[1,6,32] y", net, given)))
