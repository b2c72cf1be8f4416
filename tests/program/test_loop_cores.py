"""Loops that do not need each other, each on a core of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper, numpy_helper

from npuflow.base.errors import TargetError
from npuflow.checks.agreement import compare
from npuflow.hw.encode import decode_all
from npuflow.hw.target import Target
from npuflow.ir.beside import apart
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops, loops
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.report.profile.measure import profile
from npuflow.run.interpret import interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.search.plan import plan_network
from npuflow.sim.hazards import hazards_of
from tests.frontends.test_loops import info
from tests.networks import free_lengths, random_loops
from tests.networks.harness import machine
from tests.networks.looped import free_length, program_of, quantised
from tests.networks.onnx_text import model as network
from tests.networks.onnx_text import normal
from tests.networks.random_loops import subject
from tests.program.test_random_loops import STEPS
from tests.program.test_repeats import CORES, TARGET
from tests.rules.test_recurrent import layer
from tests.tiers import often

BOTH = 'direction="bidirectional"'
TWO = replace(TARGET, compute=replace(TARGET.compute, cores=2))
LAYERS: dict[str, Callable[[], bytes]] = {
    "rnn of a batch": lambda: layer("RNN", steps=18, attributes=BOTH, directions=2, batch=3),
    "lstm": lambda: layer("LSTM", steps=15, attributes=BOTH, directions=2, batch=1),
    "gru, given states": lambda: layer(
        "GRU", steps=17, attributes=f"{BOTH}, linear_before_reset=1", directions=2, states="input"
    ),
    "lstm of a batch": lambda: layer("LSTM", steps=16, attributes=BOTH, directions=2, batch=2),
}


def agrees(graph: Graph, feeds: dict[str, np.ndarray], program: Program, target: Target) -> None:
    """All values, those in local memory among them, and no hazards."""
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, target.numerics, [feeds])
    assert checks and not [c for c in checks if c.different or c.executor]
    wanted = interpret(graph, feeds, target.numerics)
    for output, array in ProgramRunner(program).run(feeds).items():
        np.testing.assert_array_equal(array, wanted[output])


def repeats(program: Program) -> list[int]:
    """How many blocks each core has."""
    return [sum(c.opcode == "REPEAT" for c in decode_all(words)) for words in program.stored]


@pytest.mark.parametrize("target", often([TWO, CORES], 2), ids=["two cores", "four cores"])
@pytest.mark.parametrize("name", often(LAYERS, 4))
def test_each_direction_runs_on_a_core_of_its_own(name: str, target: Target) -> None:
    graph, feeds = quantised(LAYERS[name](), target)
    cores = target.compute.cores
    program = program_of(graph, target, cores=cores)
    assert repeats(program) == [1, 1, *[0] * (cores - 2)]
    agrees(graph, feeds, program, target)
    for words in program.stored[:2]:
        commands = decode_all(words)
        (first,) = (i for i, c in enumerate(commands) if c.opcode == "REPEAT")
        block = commands[first + 1 : first + 1 + commands[first].number("length")]
        assert not [c for c in block if c.opcode == "BARRIER"]
    others = [profile(program_of(graph, target, paired)).cycles for paired in (False, True)]
    assert profile(program).cycles < min(others)


def scans(shared: bool) -> bytes:
    """Two Scans over 16 steps, the second from the last step on, and their sum. Steps of both multiply by the
    same values of an input where these are `shared`."""
    nodes, outs = [], []
    for k in range(2):
        body = helper.make_graph(
            [helper.make_node("Mul", ["s", "m" if shared or not k else "n"], ["d"]),
             helper.make_node("Add", ["d", "t"], ["e"]), helper.make_node("Tanh", ["e"], ["s2"]),
             helper.make_node("Identity", ["s2"], ["o"])],
            f"body{k}", [info("s", 1, 24), info("t", 1, 24)], [info("s2", 1, 24), info("o", 1, 24)],
        )
        nodes.append(helper.make_node(
            "Scan", ["h", "x"], [f"last{k}", f"y{k}"], f"walk{k}", body=body, num_scan_inputs=1,
            scan_input_directions=[k], scan_output_directions=[k],
        ))
        outs.append(f"y{k}")
    nodes.append(helper.make_node("Add", outs, ["y"], "sum"))
    inputs = [info("x", 16, 1, 24), info("m", 1, 24), info("n", 1, 24)]
    held = [numpy_helper.from_array(np.zeros((1, 24), np.float32), "h")]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", 16, 1, 24)], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("shared", [True, False])
def test_cores_load_what_steps_of_both_loops_read_each_for_itself(shared: bool) -> None:
    """Loads that several cores make as one wait for each other."""
    target = replace(TWO, dma=replace(TWO.dma, multicast=True))
    graph, feeds = quantised(scans(shared), target)
    program = program_of(graph, target, cores=2)
    assert repeats(program) == [1, 1]
    agrees(graph, feeds, program, target)
    for words in program.stored:
        commands = decode_all(words)
        (first,) = (i for i, c in enumerate(commands) if c.opcode == "REPEAT")
        block = commands[first + 1 : first + 1 + commands[first].number("length")]
        assert any(c.opcode == "LOAD" for c in block)
        assert not [c for c in block if c.opcode == "LOAD" and c.number("mask")]


@pytest.mark.parametrize("name", often(["rnn of a batch", "lstm"], 2))
def test_the_plan_takes_what_the_clock_does(name: str) -> None:
    graph, _ = quantised(LAYERS[name](), TWO)
    few = rolled(graph, cores=2)
    plan = plan_network(few, machine(TWO), TWO.numerics)
    cycles = profile(generate(few, plan, TWO)).cycles
    assert abs(plan.cycles - cycles) < 0.03 * cycles
    assert cycles >= plan.bounds.cycles


def test_one_core_runs_a_graph_that_was_made_for_several() -> None:
    """As where a cycle budget is tried on other targets."""
    graph, feeds = quantised(LAYERS["rnn of a batch"](), TARGET)
    program = program_of(graph, TARGET, cores=4)
    assert repeats(program) == [2]
    agrees(graph, feeds, program, TARGET)


def branches(steps: int, others: int) -> bytes:
    """An LSTM and a GRU on two inputs, each with a product of its last state, and their sum."""
    weights = {
        "w": normal(1, 1, 64, 8, scale=.3), "r": normal(2, 1, 64, 16, scale=.3),
        "v": normal(3, 1, 36, 8, scale=.3), "s": normal(4, 1, 36, 12, scale=.3),
        "d": normal(5, 16, 6, scale=.3), "e": normal(6, 12, 6, scale=.3),
    }
    said = f"float[{steps},1,8] x, float[{others},1,8] z => float[1,1,6] y"
    return network(said, """a, h, c = LSTM<hidden_size=16>(x, w, r) b, g = GRU<hidden_size=12>(z, v, s)
        m = MatMul(h, d) n = MatMul(g, e) y = Add(m, n)""", weights)


@pytest.mark.slow
def test_branches_with_a_loop_each_run_on_two_cores() -> None:
    graph, feeds = quantised(branches(16, 16), TWO)
    program = program_of(graph, TWO, cores=2)
    assert repeats(program) == [1, 1]
    agrees(graph, feeds, program, TWO)
    assert profile(program).cycles < profile(program_of(graph, TWO)).cycles


def both_branches() -> bytes:
    """A GRU of both directions on each of two inputs, and the sum of products of their results."""
    weights = {
        "w": normal(1, 2, 36, 8, scale=.3), "r": normal(2, 2, 36, 12, scale=.3),
        "v": normal(3, 2, 36, 8, scale=.3), "s": normal(4, 2, 36, 12, scale=.3),
        "d": normal(5, 24, 6, scale=.3), "e": normal(6, 24, 6, scale=.3),
        "sizes": np.array([0, 0, -1], np.int64),
    }
    lines = [
        f"""a{x}, h{x} = GRU<hidden_size=12, {BOTH}>({x}, {w}, {r}) t{x} = Transpose<perm=[0,2,1,3]>(a{x})
        s{x} = Reshape(t{x}, sizes) m{x} = MatMul(s{x}, {d})""" for x, w, r, d in ("xwrd", "zvse")
    ]
    said = "float[16,1,8] x, float[16,1,8] z => float[16,1,6] y"
    return network(said, "\n".join([*lines, "y = Add(mx, mz)"]), weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "paired", "found"),
    [(CORES, False, [1, 1, 1, 1]), (TWO, False, [2, 2]), (TWO, True, [1, 1])],
    ids=["four cores", "two cores", "pairs on two cores"],
)
def test_four_loops_run_on_as_many_cores_as_there_are(
    target: Target, paired: bool, found: list[int]
) -> None:
    graph, feeds = quantised(both_branches(), target)
    program = program_of(graph, target, paired, target.compute.cores)
    assert repeats(program) == found
    agrees(graph, feeds, program, target)


def test_loops_of_a_free_length_or_other_numbers_of_steps_stay_as_they_are() -> None:
    one = quantised(layer("LSTM", steps=14), TARGET)[0]
    free = free_length(free_lengths.both_ways, 32, TARGET)[0]
    for graph in (free, quantised(branches(16, 18), TARGET)[0], one):
        assert has_loops(graph)
        assert apart(graph, 4) == (graph, {})


def two_layers() -> bytes:
    """Two LSTMs of both directions, the second one of the first one's results, and a product."""
    weights = {
        name: array for k, size in ((1, 8), (2, 24)) for name, array in (
            (f"w{k}", normal(k, 2, 48, size, scale=.3)), (f"r{k}", normal(2 + k, 2, 48, 12, scale=.3)),
        )
    } | {"sizes": np.array([0, 0, -1], np.int64), "d": normal(7, 24, 6, scale=.3)}
    lines = [
        f"""a{k}, h{k}, c{k} = LSTM<hidden_size=12, {BOTH}>({x}, w{k}, r{k})
        t{k} = Transpose<perm=[0,2,1,3]>(a{k}) s{k} = Reshape(t{k}, sizes)"""
        for k, x in ((1, "x"), (2, "s1"))
    ]
    said = "float[16,1,8] x => float[16,1,6] y"
    return network(said, "\n".join([*lines, "y = MatMul(s2, d)"]), weights)


@pytest.mark.slow
def test_loops_that_need_others_run_behind_them() -> None:
    """Of two layers of two directions those of one layer run at the same time."""
    graph, feeds = quantised(two_layers(), TWO)
    made, own = apart(graph, 4)
    assert [own[loop.name].core for loop in loops(made)] == [0, 1, 0, 1]
    names = [own[loop.name].together for loop in loops(made)]
    assert names[0] == names[1] != names[2] == names[3]
    program = program_of(graph, TWO, cores=2)
    assert repeats(program) == [2, 2]
    agrees(graph, feeds, program, TWO)


def differences(seed: int) -> list[str] | None:
    """What is wrong with the program of two random loops on two cores or more; None where they are no rounds,
    or one needs the other."""
    one = subject(seed)
    if one is None:
        return None
    cores = max(2, one.target.compute.cores)
    one = replace(one, target=replace(one.target, compute=replace(one.target.compute, cores=cores)))
    graph = random_loops.quantised(one)
    few = rolled(graph, cores=cores)
    if sum(roll.core is not None for roll in few.rolls) < 2:
        return None
    try:
        plan = plan_network(few, machine(one.target), one.target.numerics)
    except TargetError:
        return None
    program = Program.from_bytes(generate(few, plan, one.target).to_bytes())
    checks = compare(graph, program, one.target.numerics, [{i: one.feed[i] for i in graph.inputs}])
    wrong = [c.value for c in checks if c.different or c.executor]
    return wrong + [f"hazard {h}" for h in hazards_of(program, order_of(program))]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_loops, "STEPS", STEPS)
    monkeypatch.setattr(random_loops, "PAIRS", True)


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("seed", often([3009, 3017, 3000, 3024, 3003, 3021, 3032], 7))
def test_two_random_loops_run_at_the_same_time(seed: int) -> None:
    """In 3009 and 3017 bytes that the loops' values had one after the other would be hazards."""
    found = differences(seed)
    assert found is not None, "its loops are no rounds any more: another seed"
    assert not found


@pytest.mark.campaign
@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("first", range(3000, 5000, 100))
def test_many_pairs_of_random_loops(first: int) -> None:
    found = [differences(seed) for seed in range(first, first + 100)]
    assert any(one is not None for one in found)
    assert not [text for one in found if one is not None for text in one]
