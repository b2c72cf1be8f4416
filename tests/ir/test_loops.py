"""Loops in a graph: what belongs to one, what is wrong with one, their order, what is left of dead ones."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.ir.graph import Graph, constant, merge_consts, prune
from npuflow.ir.loops import before, companions, contiguous, faults, has_loops, inside, loops, seen, stack
from npuflow.ir.op import OPS, Node
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import TensorType
from npuflow.ir.unroll import rolled, values_of_steps, written_out
from npuflow.ir.verify import verify

SUMS = """npuflow graph 1
input x: float32[12,3]
input start: float32[2,3]
input factor: float32[2,3]
part: float32[2,3] = loopslice(x) loop="sums" steps=6
before: float32[2,3] = loopcarry(start) loop="sums" steps=6
by: float32[2,3] = loopcapture(factor) loop="sums" steps=6
scaled: float32[2,3] = mul(part, by)
after: float32[2,3] = add(before, scaled)
rows: float32[12,3] = loopstack(after) loop="sums" steps=6
last: float32[2,3] = looplast(after) loop="sums" steps=6
output rows
output last
"""


def graph_of(text: str = SUMS) -> Graph:
    return from_text(text)


def with_line(old: str, new: str) -> Graph:
    assert old in SUMS
    return graph_of(SUMS.replace(old, new))


def test_what_belongs_to_a_loop_follows_from_its_borders() -> None:
    graph = graph_of()
    assert not list(faults(graph))
    (loop,) = loops(graph)
    assert (loop.name, loop.steps, loop.nodes) == ("sums", 6, tuple(range(7)))
    (carried,) = loop.carried
    assert (carried.initial, carried.now, carried.following, carried.last) == (
        "start", "before", "after", "last"
    )
    assert loop.inputs == ("x", "start", "factor") and loop.outputs == ("rows", "last")
    assert set(inside(graph.nodes)) == set(range(7))
    assert from_text(to_text(graph)) == graph


def test_values_of_a_body_are_seen_stacked() -> None:
    shown = seen(graph_of())
    assert shown["after"] == TensorType((12, 3)) and "last" not in shown and "rows" not in shown
    assert stack([np.zeros(()), np.ones(())]).tolist() == [0, 1]
    assert stack([np.zeros((2, 3)), np.ones((2, 3))]).shape == (4, 3)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            with_line('loopcapture(factor) loop="sums" steps=6', "neg(factor)"),
            'scaled of the loop "sums" reads "by", which no border leads into it',
        ),
        (
            with_line('looplast(after) loop="sums"', 'looplast(after) loop="others"'),
            'last reads "after" of the loop "sums", and stands in "others"',
        ),
        (
            with_line(
                'loopcarry(start) loop="sums" steps=6', 'loopcarry(start) loop="sums" steps=6 index=1'
            ),
            "has other values that it carries in",
        ),
        (
            with_line('looplast(after) loop="sums" steps=6', 'looplast(after) loop="sums" steps=5'),
            "several numbers of steps",
        ),
        (
            with_line("input start: float32[2,3]", "input start: float32[1,3]"),
            'carries "before" as 1x3 float32, 2x3 float32',
        ),
    ],
    ids=["no border in", "another loop", "index", "steps", "type"],
)
def test_faults(graph: Graph, text: str) -> None:
    found = list(faults(graph))
    assert any(text in fault for fault in found), found


def test_nodes_of_a_loop_come_together() -> None:
    """`verify` wants operands before their readers, and places in the order must not divide a loop."""
    text = SUMS.replace(
        "scaled: float32[2,3] = mul(part, by)\n",
        "scaled: float32[2,3] = mul(part, by)\nother: float32[12,3] = sigmoid(x)\n",
    ) + "output other\n"
    graph = graph_of(text)
    assert loops(graph)[0].nodes != tuple(range(7))
    done = contiguous(graph)
    verify(done, "reordered")
    assert sorted(n.name for n in done.nodes) == sorted(n.name for n in graph.nodes)
    (loop,) = loops(done)
    assert loop.nodes == tuple(range(loop.nodes[0], loop.nodes[0] + 7))
    assert before(done, loop.nodes[3]) == loop.nodes[0]
    assert before(done, loop.nodes[0]) == loop.nodes[0]
    assert contiguous(done) is done


def test_a_loop_runs_in_one_place() -> None:
    graph = graph_of()
    assert companions(graph, set(range(7))) == {}
    assert companions(graph, {0, 1, 2, 4}) == dict.fromkeys((0, 1, 2, 4), "scaled")
    assert companions(graph, set()) == {}


def test_what_is_carried_lives_as_long_as_a_result() -> None:
    """No output reads "last", but the next step does."""
    graph = graph_of(SUMS.replace("output last\n", ""))
    assert prune(graph).nodes == graph.nodes


def test_a_dead_loop_is_pruned_whole() -> None:
    text = SUMS.replace("output rows\noutput last\n", "other: float32[12,3] = sigmoid(x)\noutput other\n")
    left = prune(graph_of(text))
    assert [n.name for n in left.nodes] == ["other"] and not has_loops(left)


def test_a_dead_carried_value_is_pruned_alone() -> None:
    more = (
        'count: float32[2,3] = loopcarry(start) loop="sums" steps=6 index=1\n'
        "counted: float32[2,3] = sigmoid(count)\n"
        'counts: float32[2,3] = looplast(counted) loop="sums" steps=6 index=1\n'
    )
    graph = graph_of(SUMS.replace("rows: float", more + "rows: float"))
    assert not list(faults(graph))
    left = prune(graph)
    assert {n.name for n in graph.nodes} - {n.name for n in left.nodes} == {"count", "counted", "counts"}
    assert not list(faults(left)) and len(loops(left)[0].carried) == 1


def test_written_out() -> None:
    straight = written_out(graph_of())
    verify(straight, "written out")
    assert not has_loops(straight) and straight.outputs == ("rows", "last")
    kinds = [type(n.op).__name__ for n in straight.nodes]
    assert kinds.count("Mul") == kinds.count("Add") == 6
    assert kinds.count("Split") == kinds.count("Concat") == 1
    (last,) = [n for n in straight.nodes if "last" in n.outputs]
    assert type(last.op).__name__ == "Add", "the last step's value needs no copy"
    assert written_out(straight) is straight


def test_a_carried_constant_is_moved_to_where_activations_are() -> None:
    """The first step of a state that begins with zeros is a step as all others are."""
    graph = with_line("input start: float32[2,3]\n", "").replaced(inputs=("x", "factor"))
    value, entry = constant("start", np.zeros((2, 3), np.float32))
    graph = graph.replaced(
        values=MappingProxyType({**graph.values, "start": value}), consts=merge_consts(graph.consts, entry)
    )
    squashed = Node(OPS["sigmoid"](), ("before",), ("squashed",))
    read = {"after": ("squashed", "scaled")}
    nodes = [replace(n, inputs=read.get(n.outputs[0], n.inputs)) for n in graph.nodes]
    nodes.insert(3, squashed)
    values = {**graph.values, "squashed": replace(graph.values["before"], id="squashed")}
    made = graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))
    verify(made, "a state that begins with zeros")
    straight = written_out(made)
    assert sum(type(n.op).__name__ == "Sigmoid" for n in straight.nodes) == 6
    moved = next(n for n in straight.nodes if n.inputs == ("start",))
    assert [n.inputs for n in straight.nodes if n.outputs == ("squashed@0",)] == [moved.outputs]


def test_names_of_steps_lead_back_to_values() -> None:
    """Also where the model has such a name itself."""
    more = "input scaled@4: float32[2,3]\nother: float32[2,3] = sigmoid(scaled@4)\npart: float"
    text = SUMS.replace("part: float", more, 1) + "output other\n"
    graph = graph_of(text.replace("12,3", "40,3").replace("steps=6", "steps=20"))
    named, straight = values_of_steps(graph), written_out(graph)
    scaled = [n.outputs[0] for n in straight.nodes if type(n.op).__name__ == "Mul"]
    assert scaled[4] != "scaled@4" and [named[o] for o in scaled] == 20 * ["scaled"]
    coded = graph.replaced(nodes=tuple(replace(n, params=()) for n in graph.nodes))
    (roll,) = (few := rolled(coded)).rolls
    first = [few.nodes[n].outputs[0] for step in roll.steps[roll.lead : roll.lead + 2] for n in step]
    assert [roll.later[o] for o in first if named[o] == "scaled"] == scaled[17:19]


def test_a_carried_value_that_nothing_reads_leaves_a_number_out() -> None:
    lines = SUMS.replace("output rows\n", "").splitlines()
    lines = [line + " index=1" if "carry" in line or "looplast" in line else line for line in lines]
    dead = ['dead: float32[2,3] = loopcarry(start) loop="sums" steps=6', "more: float32[2,3] = neg(dead)"]
    left = 'behind: float32[2,3] = looplast(more) loop="sums" steps=6'
    graph = graph_of("\n".join([*lines[:4], *dead, *lines[4:-1], left, *lines[-1:]]) + "\n")
    assert len(loops(graph)[0].carried) == 2 and not list(faults(graph))
    pruned = prune(graph)
    assert len(loops(pruned)[0].carried) == 1 and not list(faults(pruned))
