"""Loops as Keras writes masked layers: truth values that depend on data, and values that no step changes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.queries import kind
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite

STEPS = 6
ARITHMETIC = """
    no = Not(here) stays = Cast<to = 1>(no) takes = Cast<to = 1>(here)
    taken = Mul(takes, made) left = Mul(h, stays) after = Add(taken, left)"""
SELECTED = "after = Where(here, made, h)"
OUTSIDE = "both = And(here, all) after = Where(both, made, h)"


def masked(held: str, back: bool = False, out: str = "rows, last", steps: int = STEPS) -> bytes:
    """An RNN of 4 on [steps, 2, 3] that stays as it was where a mask of the data is not set. Its weights are
    carried, and so are a state that no step reads and the number of steps. `held`: how a step chooses;
    `back`: the mask is reversed; `out`: what is read of the loop: rows, last, the last state, unread, what
    the steps handed on for nothing, w2, the weights."""
    kinds = {"rows": f"{steps},2,4", "last": "2,4", "unread": "2,4", "w2": "3,4"}
    outputs = ", ".join(f"float[{kinds[name]}] {name}" for name in out.split(", "))
    turn = "ReverseSequence<batch_axis=1, time_axis=0>(set, lengths)" if back else "Identity(set)"
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{steps},2,3] x, float[{steps},2,1] k) => ({outputs}) {{
        set = Greater(k, zero) some = {turn} sum = ReduceSum<keepdims=0>(k) all = Less(sum, most)
        t, unread, last, n2, w2, b2, rows = Loop("", yes, begin, h0, h0, n, w, b)
        <body = body (int64 i, bool c, int32 t0, float[2,4] u, float[2,4] h, int32 n1, float[3,4] w1,
        float[4] b1) => (bool go, int32 t1, float[2,4] made, float[2,4] after, int32 n1, float[3,4] w1,
        float[4] b1, float[2,4] row) {{
            t1 = Add(t0, one) here = Gather<axis=0>(some, t0) part = Gather<axis=0>(x, t0)
            p = MatMul(part, w1) q = MatMul(h, r) pq = Add(p, q) sums = Add(pq, b1) made = Tanh(sums)
            {held}
            row = Identity(after) go = Less(t1, n1) }}> }}""")
    rng = np.random.default_rng(0)
    weights = {
        "zero": np.zeros((), np.float32), "most": np.array(1e3, np.float32), "yes": np.array(True),
        "begin": np.array(0, np.int32), "one": np.array(1, np.int32), "n": np.array(steps, np.int32),
        "h0": np.zeros((2, 4), np.float32), "lengths": np.array([steps, steps]),
        "w": rng.normal(size=(3, 4)).astype(np.float32), "r": rng.normal(size=(4, 4)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def rewritten(data: bytes) -> Graph:
    """The network after all rules; its floats are the source's."""
    read = FRONTENDS["onnx"]().read(data, Bindings()).graph
    verify(read, "read")
    done = rewrite(read, careful=True).graph
    rng = np.random.default_rng(1)
    feeds = {i: rng.normal(size=done.type(i).shape).astype(np.float32) for i in done.inputs}
    for mine, theirs in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)
    return done


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("held", [ARITHMETIC, SELECTED, OUTSIDE])
def test_a_mask_of_the_data_is_read_in_parts(held: str, back: bool) -> None:
    graph = rewritten(masked(held, back))
    (loop,) = loops(graph)
    assert loop.steps == STEPS
    assert len(loop.carried) == 1          # weights are constants, and the state that nobody reads is gone
    assert not place(graph, Target()).reasons()


def test_the_product_of_the_input_is_made_in_front_of_the_loop() -> None:
    graph = rewritten(masked(ARITHMETIC))
    (loop,) = loops(graph)
    products = [i for i, n in enumerate(graph.nodes) if kind(n) in ("matmul", "gemm")]
    assert [i in loop.nodes for i in products] == [False, True]
    before, _ = (graph.nodes[i] for i in products)
    assert graph.type(before.outputs[0]).shape == (2 * STEPS, 4)
    assert len(before.inputs) == 3                      # with the bias, of which no step adds any


@pytest.mark.parametrize("out", ["unread", "rows, unread", "w2, last", "w2"])
def test_what_no_step_reads_or_changes(out: str) -> None:
    """The last of values that steps hand on for nothing, and weights behind the loop."""
    rewritten(masked(SELECTED, out=out))


@pytest.mark.parametrize("shape", ["6,3", "6"])
def test_a_mask_that_is_scanned(shape: str) -> None:
    part = shape[2:]
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3] h, float[6,3] x, float[{shape}] k) => (float[3] last, float[6,3] y) {{
        set = Greater(k, zero)
        last, y = Scan<num_scan_inputs = 2, body = body (float[3] s, float[3] t, bool[{part}] m)
        => (float[3] s2, float[3] row) {{
            d = Mul(s, w) e = Add(d, t) s2 = Where(m, e, s) row = Tanh(s2) }}>(h, x, set) }}""")
    weights = {"zero": np.zeros((), np.float32), "w": np.array([.5, .2, .9], np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    graph = rewritten(bytes(proto.SerializeToString()))
    assert [one.steps for one in loops(graph)] == [6]
    assert not place(graph, Target()).reasons()
