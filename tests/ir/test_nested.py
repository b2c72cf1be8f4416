"""Loops in the bodies of loops: what belongs to which, their faults, and forms with one of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import InternalError
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.loops import contiguous, depths, every_loop, faults, loops, seen, steps_of, times
from npuflow.ir.nesting import enclosing_loops, inside, loop_fields
from npuflow.ir.op import OPS
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import TensorType
from npuflow.ir.unroll import unnested, values_of_steps, written_out
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.run.interpret import host_session
from tests.networks.onnx_text import normal

OUTER, INNER, SIZE = 5, 4, 3


class Net(Builder):
    def border(self, kind: str, source: str, out: str, name: str, steps: int, **said: object) -> str:
        op = OPS[f"loop{kind}"](loop=name, steps=steps, **said)
        return self.add(op, (source,), (out,), (out,))[0]

    def call(self, kind: str, inputs: tuple[str, ...], out: str) -> str:
        return self.add(OPS[kind](), inputs, (out,), (out,))[0]


def nested(outer: int = OUTER, inner: int = INNER, begins: bool = False) -> Graph:
    """A sum of the rows of each part, times what the outer loop carries. `begins`: with a constant."""
    net = Net()
    for name, shape in {"x": (outer * inner, SIZE), "h": (1, SIZE), "g": (1, SIZE)}.items():
        net.input(name, TensorType(shape, "float32"))
    net.border("slice", "x", "part", "outer", outer)
    net.border("carry", "h", "s", "outer", outer, index=0)
    net.border("capture", "g", "gain", "outer", outer)
    first = net.constant("zero", np.zeros((1, SIZE), np.float32)) if begins else "s"
    net.border("carry", first, "v", "inner", inner, index=0)
    net.border("slice", "part", "row", "inner", inner, reverse=True)
    net.border("capture", "gain", "scale", "inner", inner)
    net.call("mul", ("row", "scale"), "scaled")
    net.call("add", ("v", "scaled"), "sum")
    net.border("stack", "sum", "sums", "inner", inner)
    net.border("last", "sum", "total", "inner", inner, index=0)
    net.call("mul", ("total", "s"), "product")
    net.call("tanh", ("product",), "s2")
    net.border("stack", "sums", "all", "outer", outer, reverse=True)
    net.border("last", "s2", "end", "outer", outer, index=0)
    return verify(net.graph(["x", "h", "g"], ["all", "end"]), "the test")


def ran(graph: Graph, shown: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    names = [*graph.outputs, *shown]
    feeds = {"x": normal(1, *graph.type("x").shape), "h": normal(2, 1, SIZE), "g": normal(3, 1, SIZE)}
    found = host_session(export_model(graph, names)).run(names, feeds)
    return dict(zip(names, found, strict=True))


def by_hand(outer: int, inner: int, begins: bool) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """What each outer step carries on, and its sums."""
    x, state, gain = normal(1, outer * inner, SIZE), normal(2, 1, SIZE), normal(3, 1, SIZE)
    for part in np.split(x, outer):
        total, sums = np.zeros((1, SIZE), np.float32) if begins else state, []
        for row in np.split(part, inner)[::-1]:
            total = total + row * gain
            sums.append(total)
        state = np.tanh(total * state)
        yield state, sums


def test_what_belongs_to_which_loop() -> None:
    graph = nested()
    (outer,) = loops(graph)
    (inner,) = outer.inner
    assert [one.name for one in every_loop(graph)] == ["outer", "inner"]
    assert set(inner.nodes) < set(outer.nodes) == set(range(len(graph.nodes)))
    assert (inner.inputs, inner.outputs) == (("s", "part", "gain"), ("sums", "total"))
    assert (outer.inputs, outer.outputs) == (("x", "h", "g"), ("all", "end"))
    assert [one.now for one in outer.carried] == ["s"] and [one.now for one in inner.carried] == ["v"]
    steps = steps_of(graph)
    assert (steps["part"], steps["sum"], steps["sums"]) == (OUTER, OUTER * INNER, OUTER)
    assert "all" not in steps and depths(graph)["sums"] == 1 and depths(graph)["sum"] == 2
    assert seen(graph)["sum"].shape == (OUTER * INNER, SIZE)
    assert seen(graph)["sums"].shape == (OUTER * INNER, SIZE)
    made = {o: i for i, node in enumerate(graph.nodes) for o in node.outputs}
    assert times(graph, graph.nodes[made["sum"]]) == OUTER * INNER
    assert inside(graph.nodes)[made["sum"]] == inside(graph.nodes)[made["total"]] == "inner"
    assert loop_fields(enclosing_loops(graph.nodes)[made["sum"]]) == {"loop": "outer", "inner": "inner"}
    assert loop_fields(enclosing_loops(graph.nodes)[made["s2"]]) == {"loop": "outer"}
    assert outer.described()["inner"] == [inner.described()] and "inner" not in inner.described()


@pytest.mark.parametrize("begins", [False, True])
def test_values_are_stacked_step_by_step(begins: bool) -> None:
    graph = nested(begins=begins)
    found = ran(graph, ("sum", "s2"))
    steps = list(by_hand(OUTER, INNER, begins))
    wanted = np.concatenate([one for _, sums in steps for one in sums])
    np.testing.assert_allclose(found["sum"], wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(found["s2"], np.concatenate([state for state, _ in steps]), 1e-5, 1e-6)
    stacked = np.concatenate([np.concatenate(sums) for _, sums in steps[::-1]])
    np.testing.assert_allclose(found["all"], stacked, 1e-5, 1e-6)


def test_the_text_form_keeps_both() -> None:
    graph = nested()
    assert loops(verify(from_text(to_text(graph), graph.consts), "read again")) == loops(graph)


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(("outer", "inner"), [(OUTER, INNER), (OUTER, 1), (1, INNER), (2, 40), (9, 2)])
def test_forms_without_a_loop_in_a_loop(outer: int, inner: int, begins: bool) -> None:
    """The inner loop is written out, or the outer one where that is fewer nodes."""
    graph = nested(outer, inner, begins)
    flat, straight = unnested(graph), written_out(graph)
    assert [(one.name, one.steps) for one in loops(verify(flat, "flat"))] == (
        [("outer", outer)] if inner * 8 <= outer * 16 else [(f"inner@{k}", inner) for k in range(outer)]
    )
    assert not loops(verify(straight, "written out"))
    wanted = ran(graph, ("scaled",))
    for form in (flat, straight):
        for name, array in ran(form).items():
            np.testing.assert_allclose(array, wanted[name], 1e-5, 1e-6)
    within = loops(flat)[0].name == "outer"
    names = [f"scaled@{j}@{k}" if within else f"scaled@{k}@{j}" for k in range(outer) for j in range(inner)]
    assert {values_of_steps(graph)[name] for name in names} == {"scaled"}
    rows = ran(straight, tuple(names))
    np.testing.assert_allclose(np.concatenate([rows[name] for name in names]), wanted["scaled"], 1e-5, 1e-6)


def test_nodes_of_both_loops_are_put_behind_each_other() -> None:
    graph = nested()
    made = {node.outputs[0]: node for node in graph.nodes}
    order = ["s", "part", "v", "gain", "row", "scale", "scaled", "sum", "total", "product", "sums", "s2",
             "all", "end"]
    mixed = verify(graph.replaced(nodes=tuple(made[v] for v in order)), "mixed")
    (inner,) = loops(mixed)[0].inner
    assert len(inner.nodes) < inner.nodes[-1] + 1 - inner.nodes[0]
    done = verify(contiguous(mixed), "in order")
    for one in every_loop(done):
        assert len(one.nodes) == one.nodes[-1] + 1 - one.nodes[0]
    verify(unnested(mixed), "flat")


def changed(graph: Graph, out: str, **said: object) -> Graph:
    """With another setting of one border, or other inputs of a node."""
    nodes = [
        node if out not in node.outputs
        else replace(node, inputs=said["inputs"]) if "inputs" in said
        else replace(node, op=replace(node.op, **said))  # type: ignore[arg-type]
        for node in graph.nodes
    ]
    return graph.replaced(nodes=tuple(nodes))


def test_faults_of_nested_loops_are_named() -> None:
    graph = nested()
    past = changed(graph, "product", inputs=("s", "sum"))
    assert any('reads "sum" of the loop "inner", and stands in "outer"' in text for text in faults(past))
    outside = changed(graph, "scale", inputs=("g",))
    assert any('of the loop "outer" reads "g", which no border leads' in text for text in faults(outside))
    other = changed(graph, "row", steps=2)
    assert any('"inner" has borders of several numbers of steps' in text for text in faults(other))


def test_three_loops_in_each_other_are_refused() -> None:
    net = Net()
    net.input("x", TensorType((8, SIZE), "float32"))
    value = "x"
    for k, name in enumerate(("a", "b", "c")):
        value = net.border("slice", value, f"part{k}", name, 2)
    value = net.call("tanh", (value,), "made")
    for k, name in enumerate(("c", "b", "a")):
        value = net.border("stack", value, f"rows{k}", name, 2)
    graph = net.graph(["x"], [value])
    with pytest.raises(InternalError, match='"c" is nested in "b", which is nested in "a": a loop may'):
        verify(graph, "the test")
