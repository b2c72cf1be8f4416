"""Loop and Scan of a known number of steps become loops or are written out; others stay, and say why."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends._nodes.masked import BOUND
from npuflow.hw.target import Target
from npuflow.ir.loops import loops
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, *shape: int, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def model(node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto],
          **weights: np.ndarray) -> bytes:
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, stored)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )


def scan(steps: int = 5, **attributes: object) -> bytes:
    """A state that decays and takes each slice; `w` is taken from outside."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "w"], ["d"]), helper.make_node("Add", ["d", "t"], ["s2"]),
         helper.make_node("Tanh", ["s2"], ["o"])],
        "body", [info("s", 3), info("t", 3)], [info("s2", 3), info("o", 3)],
    )
    node = helper.make_node(
        "Scan", ["h", "x"], ["last", "y"], "walk", body=body, num_scan_inputs=1, **attributes
    )
    shape = (3, steps) if "scan_input_axes" in attributes else (steps, 3)
    result = (3, steps) if "scan_output_axes" in attributes else (steps, 3)
    return model(node, [info("h", 3), info("x", *shape)], [info("last", 3), info("y", *result)],
                 w=np.array([0.5, 0.2, 0.9], np.float32))


def loop(count: int | None, condition: str = "going") -> bytes:
    """A state that grows; `condition` may be an Identity ("going"), depend on the data ("data") or on the
    number of the step ("step", or "length" as tf2onnx writes it, beside what the body makes of a constant
    outside), or the state depend on that number ("count"), or on a row of it that it picks ("row")."""
    nodes = [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Relu", ["s2"], ["o"])]
    if condition == "data":
        nodes += [
            helper.make_node("ReduceSum", ["s2"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "most"], ["go"]),
        ]
    elif condition == "count":
        nodes[0] = helper.make_node("Add", ["s", "number"], ["s2"])
        nodes += [
            helper.make_node("Cast", ["i"], ["number"], to=FLOAT), helper.make_node("Identity", ["c"], ["go"])
        ]
        nodes = [nodes[2], *nodes[:2], nodes[3]]
    elif condition == "row":
        nodes = [
            helper.make_node("Mod", ["i", "last"], ["k"]), helper.make_node("Gather", ["s", "k"], ["row"]),
            helper.make_node("Add", ["x", "row"], ["s2"]), nodes[1],
            helper.make_node("Identity", ["c"], ["go"]),
        ]
    elif condition == "length":
        nodes += [
            helper.make_node("Cast", ["six"], ["length"], to=FLOAT),
            helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
            helper.make_node("Less", ["number", "length"], ["inside"]),
            helper.make_node("And", ["inside", "inside"], ["go"]),
        ]
    elif condition == "step":
        nodes += [helper.make_node("Less", ["i", "last"], ["go"])]
    else:
        nodes += [helper.make_node("Identity", ["c"], ["go"])]
    body = helper.make_graph(
        nodes, "body", [info("i", dtype=INT), info("c", dtype=BOOL), info("s", 2, 3)],
        [info("go", dtype=BOOL), info("s2", 2, 3), info("o", 2, 3)],
    )
    node = helper.make_node(
        "Loop", ["n" if count is not None else "", "yes", "x"], ["end", "y"], "again", body=body
    )
    weights = {"yes": np.array(True), "most": np.array(1e3, np.float32), "last": np.array(2, np.int64)}
    weights["six"] = np.array(6, np.int32)
    if count is not None:
        weights["n"] = np.array(count, np.int64)
    steps = {"step": 3, "length": 7}.get(condition, count or 1)
    return model(node, [info("x", 2, 3)], [info("end", 2, 3), info("y", steps, 2, 3)], **weights)


@pytest.mark.parametrize(
    "data",
    [scan(), scan(1), scan(scan_input_directions=[1]), scan(scan_output_directions=[1]),
     scan(scan_input_axes=[1], scan_output_axes=[1]), scan(3), loop(4), loop(3), loop(9, "step"),
     loop(None, "step"), loop(4, "count"), loop(9, "length")],
)
def test_results(data: bytes) -> None:
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    done = rewrite(graph, careful=True).graph
    assert not place(done, Target()).reasons()
    feeds = {
        i: np.random.default_rng(1).normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs
    }
    for mine, theirs in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)
    # a node of a body is named behind its loop
    assert {o.partition("/")[0] for node in graph.nodes for o in node.origin} <= {"walk", "again"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (loop(4, "data"), f"its condition depends on data; {BOUND}"),
        (loop(6000, "row"), "more than 16384 nodes, 5 in each of its steps"),
    ],
)
def test_what_stays(data: bytes, reason: str) -> None:
    graph = rewrite(FRONTENDS["onnx"]().read(data, Bindings()).graph).graph
    assert [p.reason for p in place(graph, Target()).places] == [reason]


@pytest.mark.parametrize(
    ("data", "steps"),
    [
        (scan(), 5), (scan(3), 0), (scan(scan_input_axes=[1], scan_output_axes=[1]), 5), (scan(6000), 6000),
        (loop(4), 4), (loop(3), 0), (loop(6000), 6000), (loop(4, "count"), 4), (loop(9, "step"), 0),
        (loop(9, "length"), 7),
    ],
)
def test_what_becomes_a_loop(data: bytes, steps: int) -> None:
    """More than three steps."""
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    assert [one.steps for one in loops(graph)] == ([steps] if steps else [])
    verify(graph, "read")


@pytest.mark.parametrize(
    "made",
    [helper.make_node("Constant", [], ["k2"], value=onnx.numpy_helper.from_array(np.array(7))),
     helper.make_node("Cast", ["six"], ["k2"], to=INT), helper.make_node("Identity", ["k"], ["k2"])],
)
def test_a_carried_number_that_constants_decide(made: onnx.NodeProto) -> None:
    nodes = [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Identity", ["c"], ["go"]), made]
    body = helper.make_graph(
        nodes, "body", [info("i", dtype=INT), info("c", dtype=BOOL), info("s", 3), info("k", dtype=INT)],
        [info("go", dtype=BOOL), info("s2", 3), info("k2", dtype=INT)],
    )
    node = helper.make_node("Loop", ["n", "yes", "x", "first"], ["end", "number"], "again", body=body)
    held = {"n": np.array(5), "first": np.array(4), "six": np.array(6, np.int32), "yes": np.array(True)}
    data = model(node, [info("x", 3)], [info("end", 3), info("number", dtype=INT)], **held)
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    assert [one.steps for one in loops(graph)] == [5]
    feeds = {"x": np.array([0.5, -1, 2], np.float32)}
    for mine, theirs in zip(run(export_model(graph), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-6)


@pytest.mark.parametrize("back", [0, 1])
def test_rows_of_a_batch_and_constants(back: int) -> None:
    """Steps of [2, 3] and of single numbers; a row that is a constant, and one that nothing reads."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["t", "f"], ["d"]), helper.make_node("Add", ["s", "d"], ["s2"]),
         helper.make_node("ReduceMax", ["s2"], ["m"], keepdims=0),
         helper.make_node("Constant", [], ["one"], value_float=1.5), helper.make_node("Neg", ["s2"], ["n"])],
        "body", [info("s", 2, 3), info("t", 2, 3), info("f")],
        [info("s2", 2, 3), info("m"), info("one"), info("n", 2, 3)],
    )
    node = helper.make_node(
        "Scan", ["h", "x", "g"], ["last", "most", "ones", "n"], "walk", body=body, num_scan_inputs=2,
        scan_input_axes=[1, 0], scan_output_axes=[0, 0, 2], scan_output_directions=[back, 0, back],
        scan_input_directions=[back, 0],
    )
    data = model(
        node, [info("h", 2, 3), info("x", 2, 5, 3), info("g", 5)],
        [info("last", 2, 3), info("most", 5), info("ones", 5), info("n", 2, 3, 5)],
    )
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    assert len(loops(graph)) == 1
    done = rewrite(graph, careful=True).graph
    rng = np.random.default_rng(1)
    feeds = {i: rng.normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs}
    for mine, theirs in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def carrying(kind: str) -> bytes:
    """A Scan that carries the place of the last largest element, or truth values, of each of its parts."""
    made = {
        "whole numbers": [helper.make_node("ArgMax", ["s2"], ["k2"], axis=1, keepdims=0)],
        "truth values": [helper.make_node("Less", ["t", "half"], ["low"]),
                         helper.make_node("Or", ["k", "low"], ["k2"])],
    }[kind]
    shape, dtype = ((1,), INT) if kind == "whole numbers" else ((3,), BOOL)
    read = [helper.make_node("Gather", ["w", "k"], ["row"])] if dtype == INT else [
        helper.make_node("Where", ["k", "half", "t"], ["row"])]
    more = [helper.make_node("Add", ["t", "row"], ["s2"]), *made, helper.make_node("Identity", ["k2"], ["o"])]
    part = (1, 3) if dtype == INT else (3,)
    body = helper.make_graph(
        [*read, *more], "body", [info("k", *shape, dtype=dtype), info("t", 3)],
        [info("k2", *shape, dtype=dtype), info("s2", *part), info("o", *shape, dtype=dtype)],
    )
    node = helper.make_node("Scan", ["k0", "x"], ["last", "y", "ks"], "walk", body=body, num_scan_inputs=1)
    results = [info("last", *shape, dtype=dtype), info("y", 6, *part), info("ks", 6, *shape, dtype=dtype)]
    first = np.zeros(shape, np.int64 if dtype == INT else np.bool_)
    return model(node, [info("x", 6, 3)], results, k0=first, half=np.array(0.5, np.float32),
                 w=np.random.default_rng(2).normal(size=(3, 3)).astype(np.float32))


@pytest.mark.parametrize("kind", ["whole numbers", "truth values"])
def test_a_scan_that_carries(kind: str) -> None:
    """Whole numbers are their own codes, and pass no host in a step."""
    data = carrying(kind)
    done = rewrite(FRONTENDS["onnx"]().read(data, Bindings()).graph, careful=True).graph
    assert [one.steps for one in loops(done)] == [6]
    assert {what for what, _ in place(done, Target()).reasons()} == {"Cast"}
    feeds = {"x": np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)}
    for mine, theirs in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)
