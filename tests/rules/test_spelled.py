"""Operators spelled in simpler ones: onnxruntime's results, whole on the NPU."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model, normal, on_npu, ops, refused, rewritten
from tests.tiers import often

WEIGHTS = {
    "m": normal(1, 6, 4),
    "t": normal(2, 4, 6),
    "row": normal(3, 4),
    "full": normal(4, 3, 4),
    "v": normal(5, 6),
    "keep": np.array([[True, False, True, True, False, True]]),
    "low": np.array(-np.inf, np.float32),
    "shut": np.array([0.0, -np.inf, 0.0, 1.0, -np.inf, 0.0], np.float32),
    "zero": np.array(0.0, np.float32),
    "half": np.array(0.5, np.float32),
    "axis": np.array(1, np.int64),
    "reps": np.array([2, 1, 3], np.int64),
    "flags": np.array([[False], [True], [True]]),
    "all": np.ones(6, bool),
    "none": np.zeros((1, 6), bool),
}
SAME = "float[3,6] x => float[3,6] y"
PICKED = "i = ArgMax<axis=1, keepdims=0>(x) c = Gather(all, i) e = Unsqueeze(c, axis)"
PAIR = "float[3,6] x, float[3,6] z => float[3,6] y"


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("float[3,6] x, float[6,4] z => float[3,4] y", "y = Gemm(x, z, row)"),
        (
            "float[6,3] x, float[4,6] z => float[3,4] y",
            "y = Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>(x, z, full)",
        ),
        ("float[3,6] x => float[3,4] y", "y = Gemm(x, m, full)"),
        ("float[3,6] x => float[3,4] y", "y = Gemm<alpha=-1.0>(x, m)"),
        ("float[3,6] x => float[3,4] y", "g = Gemm<beta=0.5>(x, m, full) y = Relu(g)"),
        ("float[2,3,6] x => float[2,3] y", "y = MatMul(x, v)"),
        ("float[6] x => float[4] y", "y = MatMul(x, m)"),
        ("float[2,3,4] x => float[4,3,12] y", "y = Tile(x, reps)"),
        ("float[3,6] x => float[3,6] y", "y = CumSum(x, axis)"),
        ("float[2,6,3] x => float[2,6,3] y", "y = CumSum<reverse=1>(x, axis)"),
        ("float[2,6,3] x => float[2,6,3] y", "y = CumSum<reverse=1, exclusive=1>(x, axis)"),
        ("float[2,6] x => float[2,6] y", "y = CumSum<exclusive=1>(x, axis)"),
        (SAME, "y = Hardmax(x)"),
        (SAME, "y = Hardmax<axis=0>(x)"),
        ("float[3,6] x => float[3,6] y", "r = Round(x) y = Hardmax(r)"),
        (PAIR, "y = Mean(x, z, v)"),
        (SAME, "y = Mean(x)"),
        ("float[1,3,6,6] x => float[1,3,3,3] y", "y = LpPool<kernel_shape=[2,2], strides=[2,2]>(x)"),
        ("float[1,3,6,6] x => float[1,3,6,6] y", "y = LpPool<kernel_shape=[3,3], pads=[1,1,1,1], p=1>(x)"),
        ("float[1,3,6,6] x => float[1,3,4,4] y", "y = LpPool<kernel_shape=[3,3], p=3>(x)"),
        ("float[2,3,6,6] x => float[2,3,1,1] y", "y = GlobalLpPool(x)"),
        (SAME, "peak = ReduceMax<keepdims=0>(x) f = Sub(peak, half) y = Clip(x, f)"),
        (SAME, "peak = ReduceMax<keepdims=0>(x) f = Sub(peak, half) y = Clip(x, , f)"),
        (PAIR, "mean = ReduceMean<keepdims=0>(x) high = ReduceMax<keepdims=0>(z) y = Clip(x, mean, high)"),
        (SAME, "peak = ReduceMax<keepdims=0>(x) f = Sub(peak, half) y = Clip(x, zero, f)"),
        (PAIR, "c = Greater(x, z) y = Where(c, x, z)"),
        (PAIR, "c = LessOrEqual(x, z) y = Where(c, x, half)"),
        (SAME, "c = Less(x, half) y = Where(c, zero, x)"),
        (SAME, "y = Where(keep, x, half)"),
        (SAME, "y = Where(flags, x, zero)"),
        (PAIR, "y = Where(keep, x, z)"),
        (SAME, "a = Where(all, x, low) b = Where(none, low, a) y = Relu(b)"),
        (SAME, f"{PICKED} w = Where(e, x, low) y = Relu(w)"),
        (SAME, "w = Where(keep, x, low) y = Softmax(w)"),
        (PAIR, "a = Greater(x, zero) b = Less(z, half) c = And(a, b) y = Where(c, x, z)"),
        (PAIR, "a = GreaterOrEqual(x, zero) b = Not(a) c = Or(b, keep) y = Cast<to=1>(c)"),
        (PAIR, "a = Greater(x, zero) b = Greater(z, zero) c = Xor(a, b) y = Cast<to=1>(c)"),
        (SAME, "r = Round(x) c = Equal(r, zero) y = Where(c, half, r)"),
        (
            "float[3,6] x, float[6,3] z => float[6,3] y",
            "a = Greater(x, zero) u = Transpose<perm=[1,0]>(a) y = Where(u, z, half)",
        ),
        (SAME, "c = Cast<to=9>(x) y = Cast<to=1>(c)"),
        (SAME, "c = Equal(x, low) s = Sigmoid(x) y = Where(c, zero, s)"),
        (SAME, "a = Add(x, shut) b = Add(a, v) y = Softmax(b)"),
    ],
)
def test_spelled(signature: str, body: str) -> None:
    done = rewritten(model(signature, body, WEIGHTS, opset=18))
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


COMPUTED = "the exponent is not a constant, and the base not known to be positive"
POWERS = {
    "by": np.array([2, 1, 3, 2, 0.5, 1], np.float32),
    "whole": np.array([[2], [3], [2]], np.int64),
    "each": np.array([[2, 1, 3], [1, 2, 2]], np.float32),
    "many": np.linspace(-2, 2, 40, dtype=np.float32),
    "two": np.array(2, np.float32),
    "six": np.array([0.5, 1, 2, 3, 4, 5], np.float32),
    "small": np.array(0.1, np.float32),
    "large": np.array(4, np.float32),
    "signs": np.array([1, -1, 1, -1, 1, -1], np.float32),
}


@pytest.mark.parametrize(
    ("signature", "body", "made"),
    [
        (SAME, "a = Abs(x) y = Pow(a, by)", {"abs", "gather", "slice", "pow", "concat"}),
        (SAME, "y = Pow(x, whole)", {"gather", "slice", "pow", "concat"}),
        ("float[2,3] x => float[2,3] y", "y = Pow(x, each)", {"reshape", "gather", "slice", "pow", "concat"}),
        ("float[6] x => float[3,6] y", "y = Pow(x, whole)", {"expand", "reshape", "gather", "slice", "pow",
                                                            "concat"}),
        (SAME, "y = Pow(six, x)", {"mul", "exp"}),
        (PAIR, "a = Relu(x) b = Add(a, small) y = Pow(b, z)", {"relu", "add", "log", "mul", "exp"}),
        (PAIR, "a = Clip(x, small, large) y = Pow(a, z)", {"clip", "log", "mul", "exp"}),
        ("float[2,40] x => float[2,40] y", "a = Clip(x, small, two) y = Pow(a, many)",
         {"clip", "log", "mul", "exp"}),
        (PAIR, "a = Mul(z, z) b = Add(a, small) y = Mod<fmod=1>(x, b)",
         {"mul", "add", "div", "sub", "floor", "abs", "sign"}),
    ],
)
def test_powers_and_remainders(signature: str, body: str, made: set[str]) -> None:
    done = rewritten(model(signature, body, POWERS, opset=18))
    assert set(ops(done)) <= made, ops(done)
    on_npu(done)


@pytest.mark.parametrize(
    ("signature", "body", "rule", "reason"),
    [
        (PAIR, "y = Pow(x, z)", "spell_pow", COMPUTED),
        (PAIR, "a = Sigmoid(x) y = Pow(a, z)", "spell_pow", COMPUTED),
        (SAME, "y = Pow(signs, x)", "spell_pow", COMPUTED),
        ("float[40] x => float[40] y", "y = Pow(x, many)", "spell_pow",
         "40 different exponents, and a base that is not known to be positive"),
        (PAIR, "y = Mod<fmod=1>(x, z)", "spell_mod",
         "the divisor is neither a constant nor known to be positive"),
    ],
)
def test_powers_and_remainders_that_stay(signature: str, body: str, rule: str, reason: str) -> None:
    assert refused(rewrite(graph_of(model(signature, body, POWERS, opset=18))), rule) == reason


@pytest.mark.parametrize("by", ["z", "wild"])
def test_a_remainder_with_the_sign_of_its_divisor_is_exported(by: str) -> None:
    """Below opset 28 ONNX has no such Mod of floats; onnxruntime refuses it."""
    wild = np.array([np.inf, -np.inf, 0.0, 2.0, -2.0, np.nan, -3.0, 3.0], np.float32)
    text = "float[8] x, float[8] z => float[8] y"
    done = rewrite(graph_of(model(text, f"y = Mod(x, {by})", {"wild": wild}, opset=21)))
    x = np.array([3.0, 3.0, 1.0, -0.0, 0.0, 1.0, 7.5, -7.5], np.float32)
    z = np.array([-2.0, 2.0, -0.5, 0.5, 4.0, -4.0, 1e-30, -1e30], np.float32)
    (y,) = run(export_model(done.graph), {"x": x, "z": z}, ["y"])
    with np.errstate(invalid="ignore"):
        wanted = np.mod(x, wild if by == "wild" else z)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(wanted[wanted == 0]))


def test_the_sign_of_a_base_is_looked_up_over_a_few_nodes_only() -> None:
    doubled = " ".join(f"s{k + 1} = Add(s{k}, s{k})" for k in range(60))
    body = f"s0 = Relu(x) {doubled} b = Add(s60, small) y = Pow(b, z)"
    assert refused(rewrite(graph_of(model(PAIR, body, POWERS))), "spell_pow") == COMPUTED


def test_where_at_the_end_of_a_chain_longer_than_python_recurses() -> None:
    steps = " ".join(f"s{i + 1} = Add(s{i}, z)" for i in range(1200))
    graph = graph_of(model(PAIR, f"s0 = Sub(x, z) {steps} c = Greater(x, z) y = Where(c, s1200, x)"))
    done = rewrite(graph, ("spell_where",))
    assert "host:where" not in ops(done) and not done.refusals


def test_tile_of_many_dimensions_is_several_copies() -> None:
    repeats = {"r": np.array([2, 3, 2, 2], np.int64)}
    done = rewritten(model("float[2,3,2,2] x => float[4,9,4,4] y", "y = Tile(x, r)", repeats))
    ranks = [len(done.graph.type(o).shape) for n in done.graph.nodes for o in n.outputs]
    assert set(ops(done)) == {"reshape", "expand"} and max(ranks) <= 6
    on_npu(done)


EINSUMS = (
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 5, 4)),
    ("bshd,hdo->bso", (1, 3, 2, 4), (2, 4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->i", (3, 4)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ij,ij", (3, 4), (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("abc,cd->adb", (2, 3, 4), (4, 5)),
    ("bij,k->bik", (2, 3, 4), (5,)),
    ("nchw,cd->ndhw", (1, 3, 2, 2), (3, 4)),
    ("bij,bj->bi", (2, 3, 4), (2, 4)),
)


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EINSUMS])
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = "xzu"[: len(shapes)]
    result = np.einsum(equation, *(np.zeros(s) for s in shapes)).shape
    inputs = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in zip(names, shapes, strict=True))
    kind = f"float[{','.join(map(str, result))}]" if result else "float"
    body = f'y = Einsum<equation="{equation}">({", ".join(names)})'
    done = rewritten(model(f"{inputs} => {kind} y", body))
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


RESIZES = (
    ("float[1,2,5,6] x => float[1,2,10,9] y", 'mode="cubic"', (1, 1, 2, 1.5)),
    ("float[1,2,8,6] x => float[1,2,4,3] y", 'mode="cubic", antialias=1', (1, 1, 0.5, 0.5)),
    ("float[1,2,8,6] x => float[1,2,5,4] y", 'mode="linear", antialias=1', (1, 1, 0.7, 0.7)),
    (
        "float[1,2,5,6] x => float[1,2,10,6] y",
        'mode="cubic", coordinate_transformation_mode="align_corners"',
        (1, 1, 2, 1),
    ),
    (
        "float[1,2,5,6] x => float[1,2,8,9] y",
        'mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1',
        (1, 1, 1.6, 1.5),
    ),
)


@pytest.mark.parametrize(("signature", "attributes", "scales"), RESIZES)
def test_resize(signature: str, attributes: str, scales: tuple[float, ...]) -> None:
    body = f'y = Resize<{attributes}>(x, "", scales)'
    data = model(signature, body, {"scales": np.array(scales, np.float32)}, opset=18)
    done = rewritten(data)
    assert set(ops(done)) <= {"matmul", "transpose", "reshape"}
    on_npu(done)


@pytest.mark.parametrize("attributes", often(["interleaved=0", "interleaved=1", "rotary_embedding_dim=4"], 3))
def test_rotary_embedding(attributes: str) -> None:
    turned = 4 if "dim" in attributes else 8
    positions = np.array([[0, 2, 4], [1, 3, 5]], np.int64)
    angles = np.outer(np.arange(6), 1 / 10 ** np.arange(turned // 2))
    weights = {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32), "p": positions}
    four = f"y = RotaryEmbedding<{attributes}>(x, c, s, p)"
    three = f"y = RotaryEmbedding<num_heads=2, {attributes}>(x, c, s, p)"
    for signature, body in (
        ("float[2,2,3,8] x => float[2,2,3,8] y", four), ("float[2,3,16] x => float[2,3,16] y", three),
    ):
        done = rewritten(model(signature, body, weights, opset=23))
        assert not any(name.startswith("host:") for name in ops(done))
        on_npu(done)


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("float[2,8,1] x => float[2,8,2] y", "y = DFT(x)"),
        ("float[2,8,1] x => float[2,5,2] y", "y = DFT<onesided=1>(x)"),
        ("float[2,8,2] x => float[2,8,2] y", "y = DFT<inverse=1>(x)"),
        ("float[2,8,1] x => float[2,6,2] y", "y = DFT(x, six)"),
        ("float[6,3,1] x => float[6,3,2] y", 'y = DFT(x, "", first)'),
        ("float[2,20,1] x => float[2,7,5,2] y", "y = STFT(x, two, window)"),
        ("float[2,20,1] x => float[2,7,8,2] y", "y = STFT<onesided=0>(x, two, window, eight)"),
    ],
)
def test_fourier(signature: str, body: str) -> None:
    weights = {"six": np.array(6), "first": np.array(0), "two": np.array(2), "eight": np.array(8),
               "window": np.hanning(8).astype(np.float32)}
    done = rewritten(model(signature, body, weights, opset=20), atol=1e-4)
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


@pytest.mark.parametrize(
    ("signature", "body", "rule", "reason"),
    [
        (
            "float[3,3] x => float[3] y",
            'y = Einsum<equation="ii->i">(x)',
            "spell_einsum",
            "a label twice in one operand",
        ),
        (SAME, "y = Where(keep, x, low)", "spell_where", "an infinite constant"),
        (SAME, "a = Add(x, low) y = Softmax(a)", "bound_mask", "a row of it is infinite all along"),
        (
            "bool[3,6] x => float[3,6] y",
            "y = Cast<to=1>(x)",
            "spell_where",
            'the truth value "x" comes from outside',
        ),
        (
            "int64[3,6] x => float[3,6] y",
            "b = Equal(x, x) y = Cast<to=1>(b)",
            "spell_where",
            "a comparison of int64",
        ),
    ],
)
def test_what_stays(signature: str, body: str, rule: str, reason: str) -> None:
    whole = {"bool": normal(1, 3, 6) > 0, "int64": np.arange(18).reshape(3, 6)}
    feeds = {"x": whole[signature.split("[")[0]]} if signature.split("[")[0] in whole else None
    assert refused(rewritten(model(signature, body, WEIGHTS, opset=18), feeds=feeds), rule) == reason


MASKED = {
    "filled": "n = Not(keep) f = Where(n, low, zero) r = Reshape(f, wide) e = Expand(r, full) a = Add(x, e) "
    "y = Softmax(a)",
    "chosen": "r = Reshape(keep, wide) s = Where(r, x, low) y = Softmax(s)",
    "moved": "r = Reshape(keep, wide) s = Where(r, x, low) t = Transpose<perm=[0,2,1]>(s) "
    "y = Softmax<axis=1>(t)",
    "added twice": "f = Where(keep, zero, low) a = Add(x, f) b = Add(a, f) y = Softmax(b)",
    "plain": "y = Where(keep, x, half)",
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_truth_values_from_outside_is_cast_by_the_host(name: str) -> None:
    """As padding masks of encoders are: minus infinity in front of a Softmax is a finite number, and only
    the truth values themselves are the host's."""
    weights = {
        "low": np.array(-np.inf, np.float32), "zero": np.array(0.0, np.float32),
        "half": np.array(0.5, np.float32), "wide": np.array([1, 1, 6], np.int64),
        "full": np.array([2, 6, 6], np.int64),
    }
    data = model("float[2,6,6] x, bool[1,6] keep => float[2,6,6] y", MASKED[name], weights, opset=18)
    feeds = {"x": normal(7, 2, 6, 6), "keep": np.array([[True, True, False, True, True, False]])}
    done = rewritten(data, feeds=feeds)
    assert {kind for kind in ops(done) if kind.startswith("host:")} == {"host:cast"}
    assert all(np.isfinite(array).all() for array in done.graph.consts.values())
    on_npu(done, feeds=feeds, host=("host:cast",))
