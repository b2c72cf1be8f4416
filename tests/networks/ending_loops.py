"""Loops of ONNX whose end depends on data, of several forms, and inputs that end them at different steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.networks.onnx_text import model

WIDE, NAME = 4, "search"
SIZES = (.9, .45, .2, .05, .012, .003)    # inputs of about these sizes end after one step, a few, many
TRIPS = (1, 2, 0, 6, 9, 11)               # beside them


def _weights() -> dict[str, np.ndarray]:
    """`w` makes rows half as large again."""
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(WIDE, WIDE)))[0]
    numbers = {
        "n": 1 << 62, "one": 1, "two": 2, "five": 5, "ten": 10, "fifteen": 15, "end": [2], "begin": [0],
        "nones": [[0] * WIDE],
    }
    reals = {"most": 1.0, "half": 0.5, "naught": 0.0, "by": 0.8, "tenfold": 10.0, "tenth": 0.1}
    return {
        **{name: np.array(v, np.int64) for name, v in numbers.items()},
        **{name: np.array(v, np.float32) for name, v in reals.items()},
        "yes": np.array(True), "w": (1.5 * turned).astype(np.float32),
        "table": np.random.default_rng(44).normal(0, 0.3, (WIDE, WIDE)).astype(np.float32),
        "rows": np.linspace(0, 1, 24 * WIDE).reshape(24, WIDE).astype(np.float32),
    }


GROWS = "s2 = MatMul(s, w) a = Abs(s2) peak = ReduceMax<keepdims=0>(a)"
SMALL = f"{GROWS} go = Less(peak, most)"
STATE = "float[1,4] s", "float[1,4] s2"


def file(
    body: str, inputs: str, outputs: str, states: str = "x", trip: str = "n", going: str = "yes",
    own: tuple[str, str] = STATE, given: str = "float[1,4] x", before: str = "",
) -> bytes:
    """A model of one Loop. `own`: what a step carries, and what it gives; `states`: before the loop;
    `before`: nodes of the outside."""
    step = f"b (int64 i, bool c, {own[0]}) => (bool go, {own[1]}) {{ {body} }}"
    names = ", ".join(one.split()[-1] for one in inputs.split(", "))
    loop = f"[{NAME}] {names} = Loop <body: graph = {step}> ({trip}, {going}, {states})"
    return model(f"{given} => {outputs}", f"{before} {loop}", _weights())


def _case(body: str, shown: str, **more: Any) -> bytes:
    return file(body, shown, more.pop("outputs", shown), **more)


CASES = {
    "plain": _case(SMALL, "float[1,4] S, float[M,1,4] ys", own=(STATE[0], f"{STATE[1]}, float[1,4] a")),
    "a trip count": _case(
        f"{GROWS} go = Identity(c)", "float[1,4] S, float[M,1,4] ys", trip="count",
        own=(STATE[0], f"{STATE[1]}, float[1,4] a"), given="float[1,4] x, int64 count",
    ),
    "a trip count and a condition": _case(
        SMALL, "float[1,4] S, float[M] peaks", trip="count", own=(STATE[0], f"{STATE[1]}, float peak"),
        given="float[1,4] x, int64 count",
    ),
    "a first condition": _case(
        SMALL, "float[1,4] S, float[M,1,4] ys", going="start", own=(STATE[0], f"{STATE[1]}, float[1,4] a"),
        given="float[1,4] x, bool start",
    ),
    "counters": _case(
        f"{GROWS} k2 = Add(k, one) more = Less(k2, ten) small = Less(peak, most) go = And(small, more)",
        "float[1,4] S, int64 K, int64[M] ks, bool[M] mores", states="x, two",
        own=(f"{STATE[0]}, int64 k", f"{STATE[1]}, int64 k2, int64 k2, bool more"),
    ),
    "truth values": _case(
        f"{SMALL} low = Less(a, half) b2 = And(b, low)", "float[1,4] S, bool[1,4] B, bool[M,1,4] bs",
        states="x, all", own=(f"{STATE[0]}, bool[1,4] b", f"{STATE[1]}, bool[1,4] b2, bool[1,4] b2"),
        given="float[1,4] x, bool[1,4] all",
    ),
    "a number": _case(
        f"{SMALL} q = Mul(p, by) sum = ReduceSum<keepdims=0>(s2) p2 = Add(q, sum)",
        "float[1,4] S, float P, float[M] ps", states="x, naught",
        own=(f"{STATE[0]}, float p", f"{STATE[1]}, float p2, float p2"),
    ),
    "rows of a table": _case(
        f"{SMALL} row = Gather(rows, i) part = Mul(row, by) o = Add(s2, part)",
        "float[1,4] S, float[M,1,4] ys", own=(STATE[0], f"{STATE[1]}, float[1,4] o"),
    ),
    # the place of the largest result is looked up in the next step
    "tokens": _case(
        "row = Gather(table, t) v = MatMul(s, w) sum = Add(v, row) u = Tanh(sum) "
        "t2 = ArgMax<axis=1, keepdims=0>(u) same = Equal(t2, end) other = Not(same) go = Squeeze(other)",
        "int64[1] T, float[1,4] S, int64[M,1] ts", states="begin, x", trip="fifteen",
        own=(f"int64[1] t, {STATE[0]}", "int64[1] t2, float[1,4] u, int64[1] t2"),
    ),
    # whole numbers of a truth value a step, and a number of none
    "counts": _case(
        f"{SMALL} low = Less(a, half) ones = Cast<to=7>(low) k2 = Add(k, ones) "
        "any = ReduceSum<keepdims=0>(ones) j2 = Sub(j, any)",
        "float[1,4] S, int64[1,4] K, int64 J, int64[M,1,4] ks", states="x, nones, five",
        own=(f"{STATE[0]}, int64[1,4] k, int64 j", f"{STATE[1]}, int64[1,4] k2, int64 j2, int64[1,4] k2"),
    ),
    # its body has no result of the last state
    "a root": _case(
        "r = Sqrt(s) s2 = Sub(r, half) least = ReduceMin<keepdims=0>(s2) go = Greater(least, naught)",
        "float[1,4] S, float[M,1,4] ys", states="x2", own=(STATE[0], f"{STATE[1]}, float[1,4] r"),
        before="a2 = Abs(x) a10 = Mul(a2, tenfold) x2 = Add(a10, half)",
    ),
}


def feed(size: float, inputs: Iterable[str], trip: int) -> dict[str, np.ndarray]:
    """An input of about this size, with a trip count."""
    x = np.array([[1, -.5, .3, -.8]], np.float32) * np.float32(size)
    every = {
        "x": x, "count": np.array(trip), "start": np.array(size < .5),
        "all": np.array([[True, False, True, True]]),
        "xs": x * np.linspace(-1, 2, 5, dtype=np.float32).reshape(5, 1, 1),
    }
    return {name: every[name] for name in inputs}


def _inner(trip: str, body: str, initial: str, shown: str = "r") -> str:
    step = f"inner (int64 j, bool d, float[1,4] v) => (bool on, float[1,4] v2) {{ {body} }}"
    return f"{shown} = Loop <body: graph = {step}> ({trip}, yes, {initial})"


def _in_a_scan() -> bytes:
    grows = SMALL.replace("s2", "v2").replace("(s,", "(v,").replace("go =", "on =")
    body = f"t1 = Mul(t, by) t2 = Add(t1, h) {_inner('n', grows, 't2')} h2 = Mul(r, tenth)"
    step = f"b (float[1,4] h, float[1,4] t) => (float[1,4] h2, float[1,4] r) {{ {body} }}"
    scan = f"H, ys = Scan <body: graph = {step}, num_scan_inputs = 1> (x, xs)"
    return model("float[1,4] x, float[5,1,4] xs => float[1,4] H, float[5,1,4] ys", scan, _weights())


BRANCH = """b2 = If (yes) <then_branch: graph = one () => (float[1,4] t) { t = Mul(a, by) },
    else_branch: graph = other () => (float[1,4] e) { e = Neg(a) }>"""
# with the steps of the loops that stay
NESTED = {
    "a loop around it": (_in_a_scan(), [12] * 5),
    "a loop in it": (file(
        f"{_inner('five', 'm = MatMul(v, w) v2 = Tanh(m) on = Identity(d)', 's')} "
        + SMALL.replace("MatMul(s, w)", "Add(r, s)"), "S, ys", "float[1,4] S, float[M,1,4] ys",
        own=(STATE[0], f"{STATE[1]}, float[1,4] a"),
    ), [12]),
    "a branch in it": (file(
        f"{SMALL} {BRANCH}", "S, ys", "float[1,4] S, float[M,1,4] ys",
        own=(STATE[0], f"{STATE[1]}, float[1,4] b2"),
    ), [12]),
}
# what no mask can hold, with the reason
REFUSED = {
    "a longer state": (file(
        "s2 = Concat<axis=0>(s, x) peak = ReduceMax<keepdims=0>(s2) go = Less(peak, most)", "S",
        "float[M,4] S", own=("float[M,4] s", "float[N,4] s2"),
    ), "the shape of x changes from step to step"),
    "a number of the input": (file(
        f"{SMALL} k2 = Add(k, one)", "S, K", "float[1,4] S, int64 K", states="x, count",
        own=(f"{STATE[0]}, int64 k", f"{STATE[1]}, int64 k2"), given="float[1,4] x, int64 count",
    ), "count of int64 is carried and depends on data"),
    "numbers of no known range": (file(
        f"{SMALL} k1 = Cast<to=7>(peak) k2 = Add(k, k1)", "S, K", "float[1,4] S, int64 K", states="x, one",
        own=(f"{STATE[0]}, int64 k", f"{STATE[1]}, int64 k2"),
    ), "it carries whole numbers of no known range"),
    "numbers that grow": (file(
        f"{SMALL} low = Less(peak, half) k1 = Cast<to=7>(low) k3 = Add(k1, ten) k2 = Mul(k, k3)", "S, K",
        "float[1,4] S, int64 K", states="x, one", own=(f"{STATE[0]}, int64 k", f"{STATE[1]}, int64 k2"),
    ), "it carries whole numbers that leave 16 bits"),
}
