"""Layers outside loops as loops over chunks of a free length: programs give the bits of whole layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

from npuflow.checks.agreement import compare
from npuflow.ir.graph import Graph
from npuflow.ir.loops import counted, loops
from npuflow.ir.types import Array
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.chunks import chunk_sizes, chunked, whole_layers
from npuflow.search.plan import plan_network
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from tests.networks import free_lengths
from tests.networks.harness import machine
from tests.networks.looped import free_length
from tests.program.test_repeats import TARGET
from tests.tiers import often

MOST, CHUNK = 96, 8
SOME = [7, 41, MOST]
NETWORKS: Mapping[str, Callable[[int], bytes]] = {
    "lstm": free_lengths.lstm, "conv_gru": free_lengths.conv_gru, "both_ways": free_lengths.both_ways,
    "causal": lambda steps: free_lengths.conv_gru(steps, pads="3,0", kernel=4),
    "pictures": free_lengths.pictures, "two_layers": free_lengths.two_layers,
    "two_convs": free_lengths.two_convs, "dense_conv": free_lengths.dense_conv,
    "conv_between": free_lengths.conv_between, "pooled": free_lengths.pooled,
    "conv_stack": free_lengths.conv_stack,
}
ZEROS = {"conv_stack"}                    # convolutions need zeros behind the last step
REST = {                                  # the most steps, which chunks do not divide, and lengths
    "conv_gru": (97, [1, 88, 89, 96, 97]),          # one step is left, and two are read: a longer last chunk
    "lstm": (100, [1, 95, 96, 97, 100]), "two_convs": (101, [40, 95, 101]), "both_ways": (103, [8, 103]),
    "pooled": (99, [7, 98, 99]), "conv_stack": (101, [8, 50, 101]),
    "conv_between": (100, [7, 96, 100]), "pictures": (101, [8, 101]),
    "skipping": (131, [32, 48, 80, 96, 130, 131]),  # 24 steps behind the last one are read
}
BODIES = {                                # results of layers of each loop over chunks
    "lstm": [{"m", "d", "rows:gates"}, {"e", "f", "y:q"}], "conv_gru": [{"d", "rows:gates"}, {"y:q"}],
    "both_ways": [{"rows:gates", "rows:gates.1"}, {"y:q"}], "two_layers": [{"rows:gates"}, {"more:gates"}],
    "two_convs": [{"d", "e", "f", "g", "rows:gates"}, {"y:q"}],
    "dense_conv": [{"m", "n", "d", "rows:gates"}, {"y:q"}],
    "conv_between": [{"rows:gates"}, {"d", "more:gates"}, {"y:q"}],
    "pooled": [{"d", "m", "a", "rows:gates"}, {"y:q"}],
    "conv_stack": [{"d", "d:steps", "f", "rows:gates"}, {"y:q"}],
}


def program_in_chunks(graph: Graph, size: int) -> Program:
    few = rolled(chunked(graph, size))
    plan = plan_network(few, machine(TARGET), TARGET.numerics)
    return Program.from_bytes(generate(few, plan, TARGET).to_bytes())


@cache
def made(name: str, most: int, size: int = CHUNK) -> tuple[Graph, dict[str, Array], Program]:
    """A network for so many steps, an input and its program in chunks, made once: no test changes them."""
    make = NETWORKS.get(name, free_lengths.skipping)
    graph, feeds, _ = free_length(make, most, TARGET, zeros=name in ZEROS)
    return graph, feeds, program_in_chunks(graph, size)


def sample(graph: Graph, feeds: Mapping[str, Array], steps: int) -> dict[str, Array]:
    """Noise of so many steps, and filling."""
    (length,), rng = graph.lengths, np.random.default_rng(steps)
    found = {i: rng.normal(size=a.shape).astype(np.float32) for i, a in feeds.items() if i != length.name}
    for name, axis in length.axes:
        if name in found:
            found[name][(slice(None),) * axis + (slice(steps, None),)] = 0
    return {**found, length.name: np.full_like(feeds[length.name], steps)}


def check_lengths(graph: Graph, feeds: Mapping[str, Array], program: Program, lengths: list[int]) -> None:
    """The bits of whole layers at each length, without hazards."""
    reference, runner = Interpreter(graph, TARGET.numerics), ProgramRunner(program)
    axes, name = program.meta["lengths"][0]["axes"], graph.lengths[0].name
    for steps in lengths:
        short, feed = program.at({name: steps}), sample(graph, feeds, steps)
        assert not hazards_of(short, order_of(short))
        wanted, (found,) = reference.run(feed), runner.run_fed([feed])
        for value, array in found.items():
            cut = (slice(None),) * axes[value] + (slice(0, steps),)
            np.testing.assert_array_equal(array[cut], wanted[value][cut], f"{value} at {steps} steps")


def check_all(name: str, most: int, lengths: list[int]) -> None:
    graph, feeds, program = made(name, most)
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, TARGET.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
    assert [c for c in checks if "@" in c.value and c.elements and c.value.split("@")[0] in graph.values]
    check_lengths(graph, feeds, program, lengths)


@pytest.mark.parametrize(
    ("name", "lengths"),
    often([("lstm", SOME), *((name, [1, 7, 40, 41, MOST - 1, MOST]) for name in NETWORKS)], 12),
)
def test_programs_in_chunks_give_the_bits_of_whole_layers(name: str, lengths: list[int]) -> None:
    check_all(name, MOST, lengths)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_chunks_need_not_divide_the_most_steps(name: str) -> None:
    check_all(name, *REST[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", [
    ("lstm", 2 * MOST), ("conv_gru", 2 * MOST), ("both_ways", 2 * MOST), ("two_convs", 193),
    ("dense_conv", 193), ("conv_between", 193), ("conv_stack", 193),
])
def test_fifty_lengths(case: tuple[str, int]) -> None:
    name, most = case
    graph, feeds, _ = free_length(NETWORKS[name], most, TARGET, zeros=name in ZEROS)
    check_lengths(graph, feeds, program_in_chunks(graph, CHUNK), [*range(1, 50), most])


@pytest.mark.parametrize("name", BODIES)
def test_layers_that_work_step_by_step_are_loops(name: str) -> None:
    graph, *_ = free_length(NETWORKS[name], MOST, TARGET, zeros=name in ZEROS)
    assert chunk_sizes(graph) == (8, 4)[: len(chunk_sizes(graph))]
    made = chunked(graph, CHUNK)
    found = [loop for loop in loops(made) if (own := counted(made, loop)) and own.size == CHUNK]
    assert len(found) >= len(BODIES[name])
    for loop, wanted in zip(found, BODIES[name], strict=False):
        assert loop.steps == MOST // CHUNK and not loop.carried
        layers = {o.removesuffix(":part") for i in loop.nodes for o in made.nodes[i].outputs}
        assert wanted <= layers, layers
    assert {made.type(o) for o in made.outputs} == {graph.type(o) for o in graph.outputs}


@pytest.mark.slow
def test_a_shorter_run_takes_less_time_in_chunks() -> None:
    few = [
        program.at({graph.lengths[0].name: 8})
        for graph, _, program in (made("lstm", MOST, 0), made("lstm", MOST))
    ]
    mine, theirs = (timeline_of(p, order_of(p)).cycles for p in few)
    assert theirs < mine


def test_sizes_divide_the_most_steps_where_such_a_size_is_near() -> None:
    for most, wanted in ((96, (8,)), (97, (8,)), (192, (16, 8)), (193, (17, 16, 8)), (40, ())):
        graph, *_ = free_length(free_lengths.lstm, most, TARGET)
        assert chunk_sizes(graph) == wanted, most
    assert chunk_sizes(graph.replaced(lengths=())) == ()


def test_layers_that_stay_whole_are_named() -> None:
    graph, *_ = free_length(free_lengths.lstm, MOST, TARGET)
    assert whole_layers(graph) == {}
    graph, *_ = free_length(free_lengths.mixing, MOST, TARGET)
    assert whole_layers(graph) == {
        "c": 'the steps of "c", which others read, are not its first dimension', "m": "it mixes steps",
        "g": '"e", which it reads, does not follow the steps',
    }
