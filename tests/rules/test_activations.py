"""Activations: fused as clips, recognised when spelled out, left alone when they only look alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks.onnx_text import model, normal, ops, refused, rewritten

X = "float[1,3,4,4] x => float[1,3,4,4] y"
NUMBERS = {
    "half": 0.5,
    "one": 1.0,
    "three": 3.0,
    "six": 6.0,
    "sixth": 1 / 6,
    "zero": 0.0,
    "root2": 2**0.5,
    "rroot2": 0.5**0.5,
    "k": (2 / np.pi) ** 0.5,
    "c": 0.044715,
    "slope": 0.1,
    "minus": -0.1,
    "big": 1.5,
    "alpha": 1.702,
}
C = {name: np.array(value, np.float32) for name, value in NUMBERS.items()}

CUBE = "q = Mul(x, x) p = Mul(q, x) "


@pytest.mark.parametrize(
    ("body", "clip"),
    [
        ("t = Add(x, x) y = Relu(t)", (0.0, np.inf)),
        ("t = Add(x, x) y = Clip(t, zero, six)", (0.0, 6.0)),
        ("t = Add(x, x) u = Relu(t) y = Clip(u, minus, six)", (0.0, 6.0)),
        ("t = Add(x, x) u = Clip(t, three, six) y = Clip(u, zero, one)", (1.0, 1.0)),
        ("t = Add(x, x) u = Max(t, zero) y = Min(u, six)", (0.0, 6.0)),
        ("t = Add(x, x) u = Relu(t) y = Min(six, u)", (0.0, 6.0)),
        ("t = Add(x, x) y = Max(minus, t)", (float(np.float32(-0.1)), np.inf)),
        ("t = Add(x, x) u = Clip(t, three, six) y = Max(u, big)", (3.0, 6.0)),
    ],
)
def test_clips_move_into_their_producer(body: str, clip: tuple[float, float]) -> None:
    done = rewritten(model(X, body, C))
    assert (
        ops(done) == ["add"] and done.graph.nodes[0].op.clip == clip and done.graph.nodes[0].outputs == ("y",)
    )


def test_a_value_read_before_the_clip_keeps_it_apart() -> None:
    done = rewritten(model(X + ", float[1,3,4,4] z", "t = Add(x, x) y = Relu(t) z = Tanh(t)", C))
    assert ops(done) == ["add", "relu", "tanh"] and "read elsewhere" in refused(done, "fuse_clip")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("t = Sigmoid(x) y = Mul(x, t)", "silu"),
        ("a = Mul(alpha, x) t = Sigmoid(a) y = Mul(t, x)", "silu"),
        ("t = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(t, x)", "hardswish"),
        ("a = Add(x, three) t = Clip(a, zero, six) u = Mul(x, t) y = Div(u, six)", "hardswish"),
        ("a = Add(three, x) t = Clip(a, zero, six) u = Mul(t, sixth) y = Mul(x, u)", "hardswish"),
        ("a = Add(x, three) t = Clip(a, zero, six) u = Div(t, six) y = Mul(x, u)", "hardswish"),
        ("a = Add(x, three) t = Clip(a, zero, six) y = Div(t, six)", "hardsigmoid"),
        ("a = Mul(x, slope) b = Add(a, half) y = Clip(b, zero, one)", "hardsigmoid"),
        ("a = Add(x, three) b = Max(a, zero) t = Min(b, six) u = Mul(x, t) y = Div(u, six)", "hardswish"),
        ("a = Div(x, root2) b = Erf(a) c_ = Add(b, one) d = Mul(x, c_) y = Mul(d, half)", "gelu"),
        ("a = Mul(x, rroot2) b = Erf(a) c_ = Add(one, b) h = Mul(half, x) y = Mul(c_, h)", "gelu"),
        (
            CUBE
            + "a = Mul(c, p) b = Add(x, a) d = Mul(b, k) e = Tanh(d) f = Add(e, one) g = Mul(x, f) y = "
            "Mul(half, g)",
            "gelu",
        ),
        (
            ("p = Pow(x, three) a = Mul(p, c) b = Add(a, x) d = Mul(k, b) e = Tanh(d) f = Add(one, e) h = "
            "Mul(x, half) y = Mul(h, f)"),
            "gelu",
        ),
        ("t = Softplus(x) u = Tanh(t) y = Mul(x, u)", "mish"),
        ("a = Mul(x, slope) y = Max(x, a)", "leakyrelu"),
        ("y = PRelu(x, slope)", "leakyrelu"),
        ("a = Greater(x, zero) b = Mul(slope, x) y = Where(a, x, b)", "leakyrelu"),
        ("a = Relu(x) n = Neg(x) b = Relu(n) d = Mul(b, minus) y = Add(a, d)", "leakyrelu"),
        ("a = Relu(x) n = Neg(x) b = Relu(n) d = Mul(slope, b) y = Sub(a, d)", "leakyrelu"),
    ],
)
def test_spelled_out_activations_are_recognised(body: str, name: str) -> None:
    done = rewritten(model(X, body, C))
    assert ops(done) == [name]
    assert done.graph.nodes[0].inputs == ("x",) and done.graph.nodes[0].outputs == ("y",)


def test_slopes_per_channel_give_prelu() -> None:
    body = "a = Relu(x) n = Neg(x) b = Relu(n) d = Mul(slopes, b) y = Sub(a, d)"
    assert ops(rewritten(model(X, body, {"slopes": normal(3, 3, 1, 1)}))) == ["prelu"]


@pytest.mark.parametrize(
    "body",
    [
        "t = Sigmoid(x) u = Mul(x, t) y = Mul(u, half)",
        "n = Neg(x) t = Sigmoid(n) y = Mul(x, t)",
        "a = Add(x, three) t = Clip(a, zero, six) u = Mul(x, t) y = Mul(u, half)",
        "a = Mul(x, half) b = Erf(a) c_ = Add(b, one) d = Mul(x, c_) y = Mul(d, half)",
        "a = Mul(x, big) y = Max(x, a)",
        "a = Relu(x) b = Relu(x) d = Mul(b, minus) y = Add(a, d)",
        "a = Add(x, half) t = Clip(a, zero, six) y = Mul(t, half)",
    ],
)
def test_what_only_looks_alike_is_left_alone(body: str) -> None:
    found = set(ops(rewritten(model(X, body, C))))
    assert not found & {"hardswish", "hardsigmoid", "gelu", "mish", "leakyrelu", "prelu"}
    assert "silu" not in found or "mul" in found


def test_a_gate_that_is_read_elsewhere_is_refused() -> None:
    done = rewritten(model(X + ", float[1,3,4,4] z", "z = Sigmoid(x) y = Mul(x, z)", C))
    assert "read elsewhere" in refused(done, "recognise_gated")


def test_a_bound_that_is_no_number_bounds_nothing() -> None:
    done = rewritten(model(X, "y = Max(x, nan)", {"nan": np.array(np.nan, np.float32)}))
    assert ops(done) == ["max"] and "NaN" in refused(done, "recognise_clip")
