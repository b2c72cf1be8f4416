"""Loops that read how many steps they run: every number is right, and costs what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from npuflow.base.errors import DataError, ModelError, UsageError
from npuflow.hw.encode import Words, decode, decode_all, disassemble, encode
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.program.repeats import REPEAT, expanded
from npuflow.run.interpret import Interpreter
from npuflow.runner.context_model import context_model
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from tests.networks.looped import free_length, program_of
from tests.program.test_repeats import CORES, LOAD, TARGET, entries
from tests.rules.test_recurrent import layer
from tests.tiers import often

READ = {"most": 9, "address": 512, "before": 1, "each": 2}
Case = tuple[Callable[[int], bytes], int, Target]
CASES: dict[str, Case] = {
    "lstm": (lambda n: layer("LSTM", steps=n, batch=1), 16, TARGET),
    "gru, backwards": (
        lambda n: layer("GRU", attributes='direction="reverse"', steps=n, batch=1), 17, TARGET
    ),
    "lstm, both directions": (
        lambda n: layer("LSTM", attributes='direction="bidirectional"', directions=2, steps=n), 18, TARGET
    ),
    "rnn, given states, four cores": (lambda n: layer("RNN", steps=n, states="input"), 19, CORES),
}


@cache
def made(name: str) -> tuple[Graph, dict[str, Array], Program]:
    """The network of a case, an input and its program, made once: no test changes them."""
    make, most, target = CASES[name]
    graph, feeds, _ = free_length(make, most, target)
    return graph, feeds, program_of(graph, target)


def block(count: int = 5, **said: int) -> Words:
    """One command, a block of a LOAD and a STORE whose rounds are read, and one more."""
    load = encode("LOAD", {**LOAD, "external": 64}, queue=0, wait=(0, 1))
    store = encode("STORE", {**LOAD, "external": 128}, queue=1, wait=(2,))
    return np.stack([
        encode("LOAD", LOAD, queue=0),
        encode("REPEAT", {"count": count, "length": 2, "advances": 1, **READ, **said}),
        encode("ADVANCE", entries([(0, 11, 8), (1, 11, -4)])),
        load, store, encode("STORE", LOAD, queue=1, wait=(6, 5)),
    ])


@pytest.mark.parametrize(("steps", "rounds"), [(0, 1), (1, 1), (3, 1), (4, 2), (8, 4), (9, 4)])
def test_first_rounds_are_as_many_as_memory_says(steps: int, rounds: int) -> None:
    found = decode_all(expanded(block(least=1), steps={512: steps}))
    loads, stores = ([c for c in found[1:-1] if c.opcode == name] for name in ("LOAD", "STORE"))
    assert [c.number("external") for c in loads] == [64 + 8 * k for k in range(rounds)]
    assert [c.number("external") for c in stores] == [128 - 4 * k for k in range(rounds)]
    assert [c.wait for c in stores] == [(2 + k,) for k in range(rounds)]
    assert found[-1].wait == (6 - (5 - rounds), *[n for n in [5 - (5 - rounds)] if n])


def test_no_round_runs_where_none_is_wanted() -> None:
    assert [c.opcode for c in decode_all(expanded(block(), steps={512: 0}))] == ["LOAD", "STORE"]


def test_last_rounds_have_the_words_of_these_and_wait_as_the_first_do() -> None:
    found = decode_all(expanded(block(late=1), steps={512: 5}))
    assert [c.number("external") for c in found if c.opcode == "LOAD"] == [0, 64 + 24, 64 + 32]
    assert [c.wait for c in found[1:-1] if c.opcode == "STORE"] == [(2,), (3,)]


@pytest.mark.parametrize(("index", "turn"), [(0, 1), (3, 1), (4, 2), (8, 4), (9, 4), (None, 4)])
def test_a_block_at_an_index_is_issued_once_with_words_that_went_on(index: int | None, turn: int) -> None:
    """Waits are as they stand, in the block and behind it."""
    steps = {} if index is None else {512: index}
    found = decode_all(expanded(block(late=2, least=1), steps=steps))
    assert [c.opcode for c in found] == ["LOAD", "LOAD", "STORE", "STORE"]
    assert [c.number("external") for c in found[1:3]] == [64 + 8 * turn, 128 - 4 * turn]
    assert [c.wait for c in found[1:]] == [(0, 1), (2,), (6, 5)]


def test_a_later_block_waits_for_rounds_that_run() -> None:
    words = np.concatenate([block(), block()[1:]])
    words[8:, 2:10] = np.where(words[8:, 2:10] > 0, words[8:, 2:10] + 5, 0)
    every, fewer = (decode_all(expanded(words, steps=steps)) for steps in ({}, {512: 5}))
    assert len(every) == 1 + 2 * 11 and len(fewer) == 1 + 2 * 5
    assert every[12].wait[0] - 3 == fewer[6].wait[0]


@pytest.mark.parametrize(
    ("words", "steps", "said"),
    [
        (block(), 10, "10 steps, at most 9 are possible"),
        (block(each=0), 1, "rounds that are read"),
        (block(least=6), 1, "6 of 5 at least"),
        (block(late=3), 1, "rounds that are read"),
        (block(late=2, least=5), 1, "5 of 5 at least"),
        (block(late=2), 10, "the index 10, at most 9 is possible"),
        (np.concatenate([block()[1:3], block()[1:]])[:6], 1, "ends behind"),
    ],
)
def test_what_cannot_be_read_is_refused(words: Words, steps: int, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        expanded(words, steps={512: steps})


def test_a_block_in_a_block_reads_nothing() -> None:
    outer = encode("REPEAT", {"count": 2, "length": 4, "advances": 0})
    with pytest.raises(ModelError, match="a block in a block has a constant count"):
        expanded(np.concatenate([outer[None], block()[1:5]]))


@pytest.mark.parametrize(("name", "every"), often([("lstm", 5), *((name, 1) for name in CASES)], 8))
def test_numbers_of_steps_give_what_the_network_of_that_length_gives(name: str, every: int) -> None:
    """Each number, or every fifth one, from 1 on."""
    _, most, target = CASES[name]
    graph, feeds, program = made(name)
    (length,) = program.meta["lengths"]
    assert hazards_of(program, order_of(program)) == ()
    reference, runner = Interpreter(graph, target.numerics), ProgramRunner(program)
    cycles = []
    for steps in range(1, most + 1, every):
        short = program.at({length["input"]: steps})
        order = order_of(short)
        assert hazards_of(short, order) == ()
        cycles.append(timeline_of(short, order).cycles)
        wanted = reference.run(padded(feeds, length["input"], steps))
        found = runner.run({**feeds, "x": feeds["x"][:steps], length["input"]: wanted_steps(feeds, steps)})
        for value, array in wanted.items():
            cut = array[:steps] if value in length["axes"] else array
            same = found[value][: len(cut)] if value in length["axes"] else found[value]
            np.testing.assert_array_equal(same, cut, err_msg=f"{value} of {steps} steps")
    assert cycles == sorted(cycles) and cycles[0] < .75 * cycles[-1]


def wanted_steps(feeds: dict[str, Array], steps: int) -> Array:
    return np.full_like(next(a for n, a in feeds.items() if n.startswith("T<=")), steps)


def padded(feeds: dict[str, Array], name: str, steps: int) -> dict[str, Array]:
    x = feeds["x"].copy()
    x[steps:] = 0
    return {**feeds, "x": x, name: wanted_steps(feeds, steps)}


@pytest.mark.slow
@pytest.mark.parametrize("steps", [9, 5, 12, 17])
def test_a_run_has_the_codes_of_the_network_built_for_its_length(steps: int) -> None:
    """With the ranges of the longest: also those of a state behind its last step."""
    make, most, target = CASES["lstm, both directions"]
    _, feeds, ranges = free_length(make, most, target)
    other, given, _ = free_length(make, steps, target, ranges)
    wanted = Interpreter(other, target.numerics).run({**given, "x": feeds["x"][:steps]})
    found = ProgramRunner(made("lstm, both directions")[-1]).run({"x": feeds["x"][:steps]})
    for value, array in wanted.items():
        np.testing.assert_array_equal(found[value][: len(array)], array, err_msg=value)


def test_filling_reaches_no_result() -> None:
    _, feeds, program = made("lstm, both directions")
    runner, name = ProgramRunner(program), program.meta["lengths"][0]["input"]
    found = [
        runner.run({**feeds, "x": np.concatenate([feeds["x"][:7], filling]), name: wanted_steps(feeds, 7)})
        for filling in (feeds["x"][7:], -3 * feeds["x"][7:])
    ]
    for value in found[0]:
        ends = 7 if value == "y" else None
        np.testing.assert_array_equal(found[0][value][:ends], found[1][value][:ends])


def test_samples_of_several_lengths_run_together() -> None:
    _, feeds, program = made("lstm, both directions")
    runner = ProgramRunner(program, batch=3)
    samples = [{"x": feeds["x"][:steps]} for steps in (3, 18, 9)]
    alone = [runner.run(sample) for sample in samples]
    for one, other, sample in zip(runner.run_many(samples), alone, samples, strict=True):
        for value, array in other.items():
            ends = len(sample["x"]) if value == "y" else None
            np.testing.assert_array_equal(one[value][:ends], array[:ends])


@pytest.mark.parametrize(("steps", "said"), [(0, "T = 0"), (17, "T = 17: the program runs 1 to 16 steps")])
def test_a_length_out_of_range_is_one_error(steps: int, said: str) -> None:
    _, feeds, program = made("lstm")
    runner = ProgramRunner(program)
    with pytest.raises(DataError, match=said):
        runner.run({"x": np.zeros((steps, *feeds["x"].shape[1:]), np.float32)})


def test_a_program_reads_its_rounds_only_where_a_length_lies() -> None:
    program = made("lstm")[-1]
    lines = [disassemble(decode(row)) for row in program.stored[0]]
    assert any(REPEAT in line and "most=16" in line for line in lines)
    meta = {**program.meta, "lengths": [{**program.meta["lengths"][0], "address": 0}]}
    with pytest.raises(ModelError, match="says of no number of steps"):
        Program.from_bytes(replace(program, meta=meta).to_bytes())


def test_an_epcontext_model_has_one_shape_and_is_refused() -> None:
    with pytest.raises(UsageError, match="any length") as fault:
        context_model(made("lstm")[-1])
    assert fault.value.code == "NF-USAGE-383"
