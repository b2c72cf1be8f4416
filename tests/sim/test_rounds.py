"""What is proved of repeated commands holds of the full expansion of every number of rounds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.encode import Words, decode, encode
from npuflow.hw.isa import WAIT_SLOTS
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.repeats import by_queue, expanded, head, later
from npuflow.search.plan import plan_network
from npuflow.sim.rounds import proof_of_rounds
from tests.networks import free_lengths, random_loops
from tests.networks.harness import machine
from tests.networks.looped import free_length, program_of
from tests.networks.random_loops import quantised, subject
from tests.program.test_chunks import program_in_chunks
from tests.program.test_counts import CASES
from tests.program.test_repeats import TARGET
from tests.sim.cases import QUEUES
from tests.sim.programs import flat_copy, serial
from tests.sim.repeated import ADDRESS, drawn, expansions, mutated, place_of, with_words
from tests.tiers import often

READ = {"most": 8, "address": ADDRESS, "before": 0, "each": 1}
LOOPS = (10, 21, 36, 64, 90, 4)
STEPS = (10, 11, 12, 13, 14, 17, 20, 24)   # of test_random_loops.py: these seeds have blocks


def copy(kind: str, external: int, local: int, wait: tuple[int, ...] = ()) -> Words:
    opcode, fields = flat_copy(kind, "DATA", external, local, 16)
    return encode(opcode, fields, queue=QUEUES[kind], wait=wait)


def ring(lag: int, step: int = 0, count: int = 8, **read: int) -> Program:
    """Rounds load 16 bytes and store them; a load waits for all stores but the last `lag`, and goes on by
    `step` in local memory."""
    load, store = QUEUES["LOAD"], QUEUES["STORE"]
    waits = [0, 0, 0, 0]
    waits[store] = -lag & 0xFFFF
    ends = [0, 0, 0, 0]
    ends[load] = 1
    rows = np.stack([copy("LOAD", 0, 0, tuple(waits)), copy("STORE", 1024, 0, tuple(ends))])
    local = place_of("LOAD", "local")
    steps = [(k, local, step) for k in range(2) if step]
    words = np.concatenate([head(count, 2, steps, 0, read), rows])
    return with_words(serial([], data=ADDRESS + 4), words, 8)


@pytest.mark.parametrize("late", [0, 1])
def test_rounds_that_use_other_bytes_may_overlap(late: int) -> None:
    """Bytes of their own in each round: no load needs to wait for a store."""
    proof = proof_of_rounds(ring(1, 16, **READ, late=late))
    assert proof.proved and proof.distance >= 1
    assert not expansions(ring(1, 16, **READ, late=late))


def test_rounds_that_use_the_same_bytes_may_not() -> None:
    program = ring(1, 0, **READ)
    proof = proof_of_rounds(program)
    assert not proof.proved and "touch the same bytes" in proof.why
    assert "LOAD" in proof.why and "STORE" in proof.why
    assert "WAR" in expansions(program)


def test_a_distance_counts_whole_rounds() -> None:
    """A load two stores behind is free of bytes that are 16 further in each round, and 8 are too few."""
    assert proof_of_rounds(ring(2, 16, **READ)).proved
    assert not proof_of_rounds(ring(2, 8, **READ)).proved and expansions(ring(2, 8, **READ))


def test_thousands_of_rounds() -> None:
    """No round is written out: the largest count that the waits allow."""
    assert proof_of_rounds(ring(1, 1, count=10_000)).why.endswith("touch the same bytes")
    assert proof_of_rounds(ring(1, 16, count=10_000)).proved
    assert "16 bits" in proof_of_rounds(ring(1, 16, count=40_000)).why


def behind(slot: int, least: int) -> Program:
    """Rounds load bytes that are 16 further in each; a store behind them waits for all but
    the last two, and reads the bytes of round `slot`."""
    ends = [0, 0, 0, 0]
    ends[QUEUES["LOAD"]] = 8 - 2
    rows = copy("LOAD", 0, 0)[None], copy("STORE", 1024, 16 * slot, tuple(ends))[None]
    block = head(8, 1, [(0, place_of("LOAD", "local"), 16)], 0, {**READ, "least": least, "late": 0})
    return with_words(serial([], data=ADDRESS + 4), np.concatenate([block, *rows]), 8)


@pytest.mark.parametrize("slot", range(10))
def test_what_stands_behind_meets_the_last_rounds_of_each_number(slot: int) -> None:
    """Rounds r - 2 and r - 1 may run beside it: of 3 to 8 rounds in all, those from 1 to 7."""
    program = behind(slot, 3)
    assert proof_of_rounds(program).proved == (not 1 <= slot <= 7)
    assert bool(expansions(program)) == (1 <= slot <= 7)


@pytest.mark.parametrize(("least", "safe"), [(3, True), (2, False)])
def test_a_wait_that_becomes_0_waits_for_nothing(least: int, safe: bool) -> None:
    """Loads of a second block wait for all stores but the last two, which is for a count of 0 where the first
    block runs twice, then in no round; a load writes what the store of three rounds before has read."""
    waits = [0, 0, 0, 0]
    waits[QUEUES["STORE"]] = 8 - 2
    local = place_of("LOAD", "local")
    words = [
        head(8, 1, [], 0, {**READ, "least": least, "late": 0}), copy("STORE", 1024, 512)[None],
        head(8, 2, [(0, local, 16), (1, local, 16)], 0),
        copy("LOAD", 0, 0, tuple(waits))[None], copy("STORE", 1040, 48)[None],
    ]
    program = with_words(serial([], data=ADDRESS + 4), np.concatenate(words), 8)
    assert bool(expansions(program)) == (not safe)
    assert proof_of_rounds(program).proved == safe


@pytest.mark.parametrize("count", often((30, 150), 2))
def test_random_blocks_against_full_expansions(count: int) -> None:
    """For all numbers of rounds to 8: what is proved has no hazard, and what has none is proved as a rule."""
    found: Counter[tuple[bool, bool]] = Counter()
    for seed in range(count):
        program = drawn(seed)
        proved, wrong = proof_of_rounds(program).proved, expansions(program)
        assert not (proved and wrong), (seed, wrong)
        found[proved, bool(wrong)] += 1
    assert found[True, False] > 80 * count / 150 and found[False, True] > 30 * count / 150
    assert found[False, False] <= 2


@pytest.mark.slow
def test_many_random_blocks_against_full_expansions() -> None:
    for seed in range(1000, 4000):
        program = drawn(seed)
        assert not (proof_of_rounds(program).proved and expansions(program)), seed


def rolled_program(seed: int) -> Program:
    """The program of a random loop, on one core."""
    one = subject(seed)
    assert one is not None
    few = rolled(quantised(one))
    assert few.rolls
    target = replace(one.target, compute=replace(one.target.compute, cores=1))
    plan = plan_network(few, machine(target), target.numerics)
    return Program.from_bytes(generate(few, plan, target).to_bytes())


def reading(program: Program, late: int) -> Program:
    """The same whose blocks read how many of up to 8 rounds run."""
    words, made, at = program.stored[0], list[Words](), 0
    gone, address = np.zeros(WAIT_SLOTS, np.int64), -(-int(program.meta["data_bytes"]) // 4) * 4
    while at < len(words):
        command, end, fewer = decode(words[at]), at + 1, 0 * gone
        rows = words[at:end]
        if command.opcode == "REPEAT":
            first = end + command.number("advances")
            end = first + command.number("length")
            count = min(8, command.number("count"))
            said = {**READ, "address": address, "count": count, "least": 1, "late": late}
            rows = np.concatenate([encode("REPEAT", {**command.fields, **said})[None], words[at + 1 : end]])
            fewer = (command.number("count") - count) * by_queue(expanded(words[first:end]))
        made.append(later(rows, -gone))
        gone, at = gone + fewer, end
    found = with_words(program, np.concatenate(made), 8, address)
    return replace(found, meta={**found.meta, "data_bytes": address + 4})


@pytest.fixture
def long_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_loops, "STEPS", STEPS)


@pytest.mark.parametrize("seed", often(LOOPS, 3))
def test_programs_of_random_loops_are_proved(seed: int, long_loops: None) -> None:
    """Also those of their forms that read a number of rounds which have no hazards at any."""
    program = rolled_program(seed)
    assert proof_of_rounds(program).proved
    for late in (0, 1):
        other = reading(program, late)
        assert proof_of_rounds(other).proved == (not expansions(other))


@pytest.mark.parametrize(("seed", "tries"), often([(LOOPS[0], 3), *((seed, 12) for seed in LOOPS)], 7))
def test_changed_programs_of_random_loops(seed: int, tries: int, long_loops: None) -> None:
    program = rolled_program(seed)
    for late in (0, 1):
        found = told_apart(reading(program, late), tries, seed)
        assert not found[True, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if "cores" not in n])
def test_changed_recurrent_layers(name: str) -> None:
    """In front of, in and behind blocks: whatever has a hazard at some number is not proved."""
    make, _, target = CASES[name]
    program = program_of(free_length(make, 12, target)[0], target)
    assert proof_of_rounds(program).proved and not expansions(program)
    found = told_apart(program, 16, 1)
    assert not found[True, True]
    assert found[False, True] >= 4 and found[True, False] >= 2
    assert found[False, False] <= 2


def told_apart(program: Program, tries: int, seed: int) -> Counter[tuple[bool, bool]]:
    """Of changed programs: whether they are proved, and whether an expansion has a hazard."""
    rng, found = random.Random(seed), Counter[tuple[bool, bool]]()
    for _ in range(tries):
        words = mutated(program.stored[0], rng)
        changed = replace(program, stored=(words,), commands=(expanded(words),))
        found[proof_of_rounds(changed).proved, bool(expansions(changed))] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv_gru", "both_ways", "two_layers", "pooled"])
def test_chunks_are_proved(name: str) -> None:
    graph, _, _ = free_length(getattr(free_lengths, name), 96, TARGET)
    program = program_in_chunks(graph, 8)
    proof = proof_of_rounds(program)
    assert proof.proved, proof.why


def test_several_cores_are_refused() -> None:
    make, most, target = CASES["rnn, given states, four cores"]
    proof = proof_of_rounds(program_of(free_length(make, most, target)[0], target))
    assert not proof.proved and "4 cores" in proof.why
