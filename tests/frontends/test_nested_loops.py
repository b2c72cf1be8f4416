"""Loops in the bodies of loops, and loops that count: which of them stay, with the results of the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.loops import loops
from npuflow.ir.text import from_text, to_text
from npuflow.ir.unroll import unnested, written_out
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from tests.frontends.test_loops import BOOL, FLOAT, INT, info
from tests.networks.onnx_text import normal
from tests.tiers import often

NODE, SIZE = helper.make_node, 4
Nodes = Sequence[onnx.NodeProto]
Infos = Sequence[onnx.ValueInfoProto]


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32) / 2


def file(node: onnx.NodeProto, inputs: Infos, outputs: Infos, **weights: np.ndarray) -> bytes:
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in {"w": weight(SIZE, SIZE), **weights}.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def outer(nodes: Nodes, outer_steps: int, part: tuple[int, ...], **weights: np.ndarray) -> bytes:
    """A Scan whose body makes "s2" and "o" of a state "s" and a part "t"."""
    body = helper.make_graph(nodes, "outer", [info("s", 1, SIZE), info("t", *part)],
                             [info("s2", 1, SIZE), info("o", 1, SIZE)])
    node = NODE("Scan", ["h", "x"], ["last", "y"], "walk", body=body, num_scan_inputs=1)
    return file(node, [info("h", 1, SIZE), info("x", outer_steps, *part)],
                [info("last", 1, SIZE), info("y", outer_steps, 1, SIZE)], **weights)


def loop_in_scan(steps: int, inner: int) -> bytes:
    body = helper.make_graph(
        [NODE("MatMul", ["v", "w"], ["m"]), NODE("Add", ["m", "t"], ["a"]), NODE("Tanh", ["a"], ["v2"]),
         NODE("Identity", ["c"], ["go"])],
        "inner", [info("i", dtype=INT), info("c", dtype=BOOL), info("v", 1, SIZE)],
        [info("go", dtype=BOOL), info("v2", 1, SIZE)],
    )
    return outer([NODE("Loop", ["n", "yes", "s"], ["r"], "refine", body=body), NODE("Relu", ["r"], ["o"]),
                  NODE("Tanh", ["r"], ["s2"])],
                 steps, (1, SIZE), n=np.array(inner, np.int64), yes=np.array(True))


def scan_in_scan(steps: int, inner: int) -> bytes:
    body = helper.make_graph(
        [NODE("MatMul", ["v", "w"], ["m"]), NODE("Add", ["m", "u"], ["a"]), NODE("Tanh", ["a"], ["v2"]),
         NODE("Mul", ["v2", "s"], ["row"])],
        "inner", [info("v", 1, SIZE), info("u", 1, SIZE)], [info("v2", 1, SIZE), info("row", 1, SIZE)],
    )
    node = NODE("Scan", ["s", "t"], ["r", "rows"], "inner", body=body, num_scan_inputs=1,
                scan_input_directions=[1])
    most = NODE("ReduceMax", ["rows"], ["o"], axes=[0], keepdims=0)
    return outer([node, most, NODE("Tanh", ["r"], ["s2"])], steps, (inner, 1, SIZE))


def layer_in_scan(kind: str, gates: int, steps: int, inner: int) -> bytes:
    nodes = [NODE(kind, ["t", "lw", "lr"], ["", "yh"], kind.lower(), hidden_size=SIZE),
             NODE("Squeeze", ["yh", "axes"], ["e"]), NODE("MatMul", ["s", "w"], ["m"]),
             NODE("Add", ["e", "m"], ["a"]), NODE("Tanh", ["a"], ["s2"]), NODE("Relu", ["a"], ["o"])]
    return outer(nodes, steps, (inner, 1, 3), axes=np.zeros(1, np.int64),
                 lw=weight(1, gates * SIZE, 3), lr=weight(1, gates * SIZE, SIZE))


def counting(use: str, steps: int = 6, trip: bool = True, shown: bool = True) -> bytes:
    """A Loop that carries a number and a truth value beside floats; `use`: of the number; `shown`: what
    counts is an output, too."""
    nodes = {
        "scale": [NODE("Cast", ["k"], ["f"], to=FLOAT), NODE("Mul", ["m", "f"], ["q"])],
        "table": [NODE("Gather", ["table", "k"], ["row"], axis=1), NODE("Add", ["m", "row"], ["q"])],
        "row": [NODE("Gather", ["x", "k"], ["row"], axis=1), NODE("Add", ["m", "row"], ["q"])],
        "back": [NODE("Sub", ["top", "k"], ["at"]), NODE("Gather", ["x", "at"], ["row"], axis=1),
                 NODE("Add", ["m", "row"], ["q"])],
        "cut": [NODE("Unsqueeze", ["k", "axes"], ["b"]), NODE("Unsqueeze", ["k3", "axes"], ["e"]),
                NODE("Slice", ["x", "b", "e", "one1"], ["rows"]),
                NODE("ReduceSum", ["rows", "one1"], ["row"], keepdims=0), NODE("Add", ["m", "row"], ["q"])],
        "step": [NODE("Gather", ["x", "i"], ["row"], axis=1), NODE("Add", ["m", "row"], ["q"])],
    }[use]
    body = helper.make_graph(
        [NODE("MatMul", ["s", "w"], ["m"]), NODE("Add", ["k", "one"], ["k2"]),
         NODE("Add", ["k2", "one"], ["k3"]), *nodes, NODE("Tanh", ["q"], ["new"]),
         NODE("Where", ["b0", "new", "s"], ["s2"]),
         NODE("Not", ["b0"], ["b2"]), NODE("Less", ["k2", "end"], ["go"])],
        "body", [info("i", dtype=INT), info("c", dtype=BOOL), info("s", 1, SIZE), info("k", dtype=INT),
                 info("b0", dtype=BOOL)],
        [info("go", dtype=BOOL), info("s2", 1, SIZE), info("k2", dtype=INT), info("b2", dtype=BOOL),
         info("new", 1, SIZE), info("k3", dtype=INT)],
    )
    results = ["last", "count", "even", "y", "numbers"]
    node = NODE("Loop", ["n" if trip else "", "yes", "h", "k0", "yes"], results, "count", body=body)
    counts = info("count", dtype=INT), info("even", dtype=BOOL), info("numbers", steps, dtype=INT)
    scalar = {name: np.array(v, np.int64) for name, v in
              {"n": 100, "k0": 0, "one": 1, "end": steps, "top": steps - 1}.items()}
    return file(node, [info("h", 1, SIZE), *([info("x", 1, steps + 1, SIZE)] if use in READS else [])],
                [info("last", 1, SIZE), info("y", steps, 1, SIZE), *(counts if shown else ())],
                table=weight(1, steps, SIZE), yes=np.array(True), axes=np.zeros(1, np.int64),
                one1=np.ones(1, np.int64), **scalar)


def test_layers_of_a_body_have_names_of_their_own_behind_their_loops() -> None:
    graph = FRONTENDS["onnx"]().read(scan_in_scan(7, 5), Bindings()).graph
    named = {o for node in graph.nodes if not node.op.border_of_loop for o in node.origin}
    assert {"walk/inner/m", "walk/inner/v2", "walk/o", "walk/s2"} <= named
    (walk,) = loops(graph)
    assert walk.name == "walk" and [one.name for one in walk.inner] == ["walk/inner"]


READS = ("row", "back", "cut", "step")
NESTED = {
    "a Loop": loop_in_scan(9, 5), "a Scan": scan_in_scan(7, 5), "a Scan of two steps": scan_in_scan(4, 2),
    "an LSTM": layer_in_scan("LSTM", 4, 6, 5), "a GRU": layer_in_scan("GRU", 3, 6, 5),
    "an RNN": layer_in_scan("RNN", 1, 6, 5), "an LSTM of three steps": layer_in_scan("LSTM", 4, 6, 3),
}
COUNTING = {use: counting(use) for use in ("scale", "table", *READS)}
COUNTING["no trip count"] = counting("row", trip=False)


Steps = Sequence[int | tuple[int, ...]]


def check(data: bytes, steps: Steps) -> None:
    """The loops of a file, with the results of onnxruntime; the same after the text form. `steps`: of each
    loop, and of those in its body."""
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    done = rewrite(graph, careful=True).graph
    found = [(one.steps, *(inner.steps for inner in one.inner)) for one in loops(done)]
    assert found == [(one,) if isinstance(one, int) else one for one in steps]
    again = verify(from_text(to_text(done), done.consts), "read again")
    assert loops(again) == loops(done)
    feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
    for form in (done, unnested(done), written_out(done)):
        verify(form, "written out")
        for mine, theirs in zip(run(export_model(form), feeds), run(data, feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


@pytest.mark.parametrize("name", NESTED)
def test_both_loops_stay(name: str) -> None:
    outer_steps = {"a Loop": 9, "a Scan": 7, "a Scan of two steps": 4}.get(name, 6)
    check(NESTED[name], [outer_steps if name.endswith("steps") else (outer_steps, 5)])


@pytest.mark.parametrize(
    "data", often([loop_in_scan(4, 60), layer_in_scan("LSTM", 4, 4, 60)], 2), ids=["Loop", "LSTM"]
)
def test_long_loops_in_a_short_one(data: bytes) -> None:
    """Where one of them has to be written out it is the outer one: the inner one would be more nodes."""
    check(data, [(4, 60)])
    reading = FRONTENDS["onnx"]().read(data, Bindings())
    assert not reading.notes
    assert [one.steps for one in loops(unnested(rewrite(reading.graph).graph))] == [60] * 4


def whole_numbers_in_scan(steps: int, inner: int) -> bytes:
    """A Loop that carries whole numbers of no known range in the body of a Scan."""
    body = helper.make_graph(
        [NODE("Add", ["k", "k"], ["k2"]), NODE("Identity", ["c"], ["go"])], "inner",
        [info("i", dtype=INT), info("c", dtype=BOOL), info("k", 1, SIZE, dtype=INT)],
        [info("go", dtype=BOOL), info("k2", 1, SIZE, dtype=INT)],
    )
    nodes = [NODE("Cast", ["t"], ["k0"], to=INT),
             NODE("Loop", ["n", "yes", "k0"], ["r"], "double", body=body),
             NODE("Cast", ["r"], ["f"], to=FLOAT), NODE("Add", ["s", "f"], ["s2"]),
             NODE("Relu", ["f"], ["o"])]
    return outer(nodes, steps, (1, SIZE), n=np.array(inner, np.int64), yes=np.array(True))


def test_what_cannot_nest_is_written_out() -> None:
    """In the outer loop, or with it, where it has more nodes than the outer one."""
    check(whole_numbers_in_scan(9, 5), [9])
    data = whole_numbers_in_scan(4, 60)
    check(data, [])
    (note,) = FRONTENDS["onnx"]().read(data, Bindings()).notes
    assert note.startswith("walk (Scan) is written out: the loops of its body")


def ending_in_scan(most: int) -> bytes:
    """A Loop that data ends, after so many steps at most, in the body of a Scan."""
    body = helper.make_graph(
        [NODE("MatMul", ["v", "w"], ["m"]), NODE("Tanh", ["m"], ["v2"]),
         NODE("ReduceMax", ["v2"], ["peak"], keepdims=0), NODE("Greater", ["peak", "limit"], ["go"])],
        "inner", [info("i", dtype=INT), info("c", dtype=BOOL), info("v", 1, SIZE)],
        [info("go", dtype=BOOL), info("v2", 1, SIZE)],
    )
    nodes = [NODE("Loop", ["n", "yes", "s"], ["r"], "refine", body=body), NODE("Relu", ["r"], ["o"]),
             NODE("Add", ["r", "t"], ["s2"])]
    return outer(nodes, 9, (1, SIZE), n=np.array(most, np.int64), yes=np.array(True),
                 limit=np.array(0.3, np.float32))


def steps_taken(feeds: dict[str, np.ndarray]) -> list[int]:
    """Of that Loop, in each step of the Scan."""
    state, found = feeds["h"], list[int]()
    for part in feeds["x"]:
        made, count = state, 0
        while not count or made.max() > 0.3:
            made, count = np.tanh(made @ weight(SIZE, SIZE)), count + 1
        found.append(count)
        state = made + part
    return found


@pytest.mark.parametrize(("most", "found"), [(6, [(9, [6])]), (100, [(8, [])] * 9)])
def test_an_inner_loop_that_data_ends(most: int, found: list[tuple[int, list[int]]]) -> None:
    """It stays where its trip count is the bound. Where the bound is `max_steps`, one of both is written
    out, here the outer one, which makes fewer nodes: only outer loops support an end that depends on data."""
    data = ending_in_scan(most)
    done = rewrite(FRONTENDS["onnx"]().read(data, Bindings(max_steps=8)).graph).graph
    assert [(one.steps, [inner.steps for inner in one.inner]) for one in loops(done)] == found
    feeds = {i: normal(7, *done.type(i).shape) for i in done.inputs}
    taken = steps_taken(feeds)
    assert len(set(taken)) > 3 and max(taken) < 6           # before any bound
    for mine, theirs in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def three_deep(steps: int, middle: int, inner: int) -> bytes:
    """A Scan in a Loop in a Scan."""
    rows = helper.make_graph(
        [NODE("MatMul", ["v", "w"], ["m"]), NODE("Add", ["m", "u"], ["a"]), NODE("Tanh", ["a"], ["v2"])],
        "rows", [info("v", 1, SIZE), info("u", 1, SIZE)], [info("v2", 1, SIZE)],
    )
    again = helper.make_graph(
        [NODE("Scan", ["q", "t"], ["q1"], "rows", body=rows, num_scan_inputs=1),
         NODE("Mul", ["q1", "s"], ["q2"]), NODE("Identity", ["c"], ["go"])],
        "again", [info("i", dtype=INT), info("c", dtype=BOOL), info("q", 1, SIZE)],
        [info("go", dtype=BOOL), info("q2", 1, SIZE)],
    )
    nodes = [NODE("Loop", ["n", "yes", "s"], ["r"], "again", body=again), NODE("Relu", ["r"], ["o"]),
             NODE("Tanh", ["r"], ["s2"])]
    return outer(nodes, steps, (inner, 1, SIZE), n=np.array(middle, np.int64), yes=np.array(True))


def test_of_three_loops_in_each_other_two_stay() -> None:
    check(three_deep(9, 6, 4), [(9, 6)])
    check(three_deep(4, 5, 60), [(4, *[60] * 5)])


def test_a_loop_that_needs_nothing_of_the_outer_one_is_computed() -> None:
    """All that it reads is constant."""
    body = helper.make_graph(
        [NODE("MatMul", ["v", "w"], ["m"]), NODE("Add", ["m", "u"], ["a"]), NODE("Tanh", ["a"], ["v2"])],
        "inner", [info("v", 1, SIZE), info("u", 1, SIZE)], [info("v2", 1, SIZE)],
    )
    nodes = [NODE("Scan", ["first", "rows"], ["r"], "inner", body=body, num_scan_inputs=1),
             NODE("Add", ["s", "r"], ["a0"]), NODE("Tanh", ["a0"], ["s2"]), NODE("Mul", ["s2", "t"], ["o"])]
    check(outer(nodes, 8, (1, SIZE), first=weight(1, SIZE), rows=weight(5, 1, SIZE)), [8])


@pytest.mark.parametrize("use", COUNTING)
def test_what_counts_is_followed(use: str) -> None:
    check(COUNTING[use], [6])


def changed(kind: str) -> bytes:
    """A Loop that hands another type on than it takes, or a Scan another shape."""
    if kind == "Scan":
        nodes = [NODE("Concat", ["s", "t"], ["s2"], axis=0), NODE("Relu", ["t"], ["o"])]
        body = helper.make_graph(nodes, "body", [info("s", 1, SIZE), info("t", 1, SIZE)],
                                 [info("s2", 2, SIZE), info("o", 1, SIZE)])
        node = NODE("Scan", ["h", "x"], ["last", "y"], "walk", body=body, num_scan_inputs=1)
        return file(node, [info("h", 1, SIZE), info("x", 5, 1, SIZE)],
                    [info("last", 1, SIZE), info("y", 5, 1, SIZE)])
    body = helper.make_graph(
        [NODE("Cast", ["s"], ["s2"], to=TO), NODE("Identity", ["c"], ["go"])], "body",
        [info("i", dtype=INT), info("c", dtype=BOOL), info("s", 1, SIZE)],
        [info("go", dtype=BOOL), info("s2", 1, SIZE, dtype=TO)],
    )
    node = NODE("Loop", ["n", "yes", "h"], ["last"], "again", body=body)
    return file(node, [info("h", 1, SIZE)], [info("last", 1, SIZE, dtype=TO)], n=np.array(5, np.int64),
                yes=np.array(True))


def test_a_scan_of_nothing_stays() -> None:
    """It has no steps to speak of; the host says what is wrong with it."""
    nodes = [NODE("Tanh", ["s"], ["s2"])]
    body = helper.make_graph(nodes, "body", [info("s", 1, SIZE)], [info("s2", 1, SIZE)])
    node = NODE("Scan", ["h"], ["last"], "walk", body=body, num_scan_inputs=0)
    data = file(node, [info("h", 1, SIZE)], [info("last", 1, SIZE)])
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    assert [p.reason for p in place(graph, Target()).places] == ["the number of its steps is not known"]


TO = onnx.TensorProto.INT32


@pytest.mark.parametrize(("kind", "what"), [("Scan", "shape"), ("Loop", "type")])
def test_a_carried_value_keeps_its_type(kind: str, what: str) -> None:
    with pytest.raises(ModelError, match=f"changes its {what}") as caught:
        FRONTENDS["onnx"]().read(changed(kind), Bindings())
    assert caught.value.code == "NF-MODEL-510" and caught.value.hint
