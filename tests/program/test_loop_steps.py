"""Which step of which loop a command runs for: as the addresses that it writes say, and the names of taps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import prod

import pytest

from npuflow.hw.region import DATA
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, border, loops, side_of
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.loop_steps import LoopSteps, said
from tests.frontends.test_nested_loops import layer_in_scan, loop_in_scan, scan_in_scan
from tests.networks.looped import program_of, quantised
from tests.program.test_counts import CASES, made
from tests.program.test_repeats import CORES, TARGET
from tests.tiers import often

FILES = {
    "a Loop of 11": loop_in_scan(12, 11), "a Scan of 12": scan_in_scan(10, 12),
    "an LSTM of 20": layer_in_scan("LSTM", 4, 11, 20),
}


Rows = dict[str, tuple[str, bool]]


@cache
def nested(name: str, target: Target = TARGET) -> tuple[Graph, Program]:
    """The integer graph of a file and its program, made once: no test changes them."""
    graph, _ = quantised(FILES[name], target)
    return graph, program_of(graph, target, nested=True, level=1)


def rows_of(graph: Graph, loop: Loop) -> Rows:
    """The tensors of all steps that a loop stacks: of which value, and whether the first part is the last
    step's."""
    borders = (graph.nodes[i] for i in loop.nodes if side_of(graph.nodes[i], loop) == "stack")
    return {node.outputs[0]: (node.inputs[0], border(node)[1].reverse) for node in borders}


def parts_stored(program: Program, core: int, rows: Rows, steps: int) -> Iterator[tuple[int, int]]:
    """Commands that store a value's part of a tensor of all steps, and which step that is, by its bytes."""
    for index, command in enumerate(program.decoded[core]):
        made = program.meta["nodes"][command.node]["outputs"]
        for whole, (value, back) in rows.items():
            own = program.meta["values"].get(whole)
            mine = any(name.startswith((f"{value}@", f"{whole}@")) for name in made)
            if command.opcode != "STORE" or own is None or not mine:
                continue
            (place,) = (r for r in regions(command) if r.write and r.space == DATA)
            each = prod(own["shape"]) // steps
            part = (place.span[0] - own["address"]) // each
            if 0 <= part < steps and place.span[1] <= own["address"] + (part + 1) * each:
                yield index, steps - 1 - part if back else part


@pytest.mark.parametrize("target", often([TARGET, CORES], 2), ids=["one core", "cores"])
@pytest.mark.parametrize("name", often(FILES, 3))
def test_what_a_command_stores_is_of_its_step(name: str, target: Target) -> None:
    graph, program = nested(name, target)
    known, (outer,) = LoopSteps(program), loops(graph)
    assert program.meta["nested"] and {row["loop"] for row in known.rows} == {
        outer.name, *(one.name for one in outer.inner)
    }
    rows = rows_of(graph, outer)
    stored = Counter[int]()
    for core in range(len(program.commands)):
        seen = Counter[int]()
        for index, step in parts_stored(program, core, rows, outer.steps):
            of = known.of(core, index)
            assert of[0].loop == outer.name and (of[0].step, of[0].steps) == (step, outer.steps)
            seen[step] += 1
        stored += seen
    assert sorted(stored) == list(range(outer.steps))


@pytest.mark.parametrize("name", often(CASES, 2))
def test_where_fewer_steps_run_they_are_those_that_run(name: str) -> None:
    """Of a loop that goes backward the last ones, whose parts of its tensors are the first."""
    graph, _, whole = made(name)
    (length,) = whole.meta["lengths"]
    for count in (1, 6, length["most"] - 1, length["most"]):
        program = whole.at({length["input"]: count})
        known = LoopSteps(program)
        for loop in loops(graph):
            stored = set[int]()
            for core in range(len(program.commands)):
                for index, step in parts_stored(program, core, rows_of(graph, loop), loop.steps):
                    assert [(one.loop, one.step) for one in known.of(core, index)] == [(loop.name, step)]
                    stored.add(step)
            back = any(back for _, back in rows_of(graph, loop).values())
            assert stored >= set(range(loop.steps - count, loop.steps) if back else range(count))


@pytest.mark.parametrize("name", often(FILES, 3))
def test_taps_are_of_the_steps_that_their_names_have(name: str) -> None:
    _, program = nested(name)
    known, levels = LoopSteps(program), Counter[int]()
    for tap in program.taps.cores[0]:
        of = known.of(0, tap.command)
        named = [int(part.strip("'")) for part in tap.value.split("@")[1:] if part.strip("'").isdecimal()]
        if len(of) == len(named):
            assert [one.step for one in of[::-1]] == named
            levels[len(of)] += 1
    assert levels[2] > 50


def test_every_step_of_both_loops_runs_as_many_commands() -> None:
    _, program = nested("a Loop of 11")
    known, (words,) = LoopSteps(program), program.commands
    seen = Counter(tuple(one.step for one in known.of(0, index)) for index in range(len(words)))
    both = {steps: n for steps, n in seen.items() if len(steps) == 2}
    assert set(both) == {(o, i) for o in range(12) for i in range(11)}
    # steps that lead in load what stays, and the first and the last one begin and end elsewhere
    assert len({n for (o, i), n in both.items() if 3 <= o < 11 and 3 <= i < 10}) == 1


def test_steps_in_words() -> None:
    _, program = nested("a Loop of 11")
    known = LoopSteps(program)
    words = next(said(of) for of in (known.of(0, k) for k in range(len(program.commands[0]))) if len(of) == 2)
    assert words.startswith("iteration 0 (of 0 to 11) of loop ")
    assert ', step 0 (of 0 to 10) of inner loop "' in words
    assert said(()) == ""
