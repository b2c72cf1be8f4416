"""Repeated commands: what REPEAT and ADVANCE mean, and that programs of loops are those of the loops written
out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from npuflow.base.errors import FitError, ModelError
from npuflow.checks.agreement import compare
from npuflow.hw.encode import Words, decode, decode_all, encode
from npuflow.hw.target import Compute, Dma, Memory, Target
from npuflow.ir.loops import loops
from npuflow.ir.unroll import written_out
from npuflow.program.codegen.loops import LoopCommands
from npuflow.program.container import Program
from npuflow.program.folding import folded, tiles_folded
from npuflow.program.order import order_of
from npuflow.program.repeats import Rounds, expanded
from npuflow.report.profile.measure import profile
from npuflow.run.interpret import interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of
from tests.frontends.test_loops import info, model
from tests.networks.harness import build
from tests.networks.looped import integers, program_of, quantised
from tests.networks.onnx_text import normal, rewritten
from tests.rules.test_recurrent import layer
from tests.tiers import often

Change = Callable[[Words], None]           # of a core's stored words

LOAD = {"space": "DATA", "element": 1, "dims": (1, 1, 1, 1, 1, 4), "external_strides": (0,) * 5 + (1,),
        "local_strides": (0,) * 5 + (1,)}
TARGET = Target(
    compute=Compute(array_rows=8, array_cols=8, vector_lanes=8, fill_cycles=8, command_cycles=4),
    memory=Memory(local_bytes=32768, local_align=16, burst=16, external_bandwidth=8.0),
    dma=Dma(setup_cycles=16),
)
CORES = replace(TARGET, compute=replace(TARGET.compute, cores=4))


def entries(rows: list[tuple[int, int, int]]) -> dict[str, tuple[int, ...]]:
    full = [*rows, *[(0, 0, 0)] * (17 - len(rows))]
    commands, words, steps = zip(*full, strict=True)
    return {"commands": commands, "words": words, "steps": steps}


def block(count: int = 3, length: int = 2, rows: list[tuple[int, int, int]] | None = None) -> Words:
    """One command, then a block of a LOAD and a STORE, then one more."""
    load = encode("LOAD", {**LOAD, "external": 64}, queue=0, wait=(0, 1))
    store = encode("STORE", {**LOAD, "external": 128}, queue=1, wait=(2,))
    return np.stack([
        encode("LOAD", LOAD, queue=0),
        encode("REPEAT", {"count": count, "length": length, "advances": 1}),
        encode("ADVANCE", entries([(0, 11, 8), (1, 11, -4)] if rows is None else rows)),
        load, store, encode("STORE", LOAD, queue=1, wait=(4,)),
    ])


def test_every_round_goes_on_by_its_steps_and_waits_for_its_own_commands() -> None:
    found = decode_all(expanded(block()))
    assert [c.opcode for c in found] == ["LOAD", *["LOAD", "STORE"] * 3, "STORE"]
    inner = found[1:-1]
    assert [c.number("external") for c in inner[::2]] == [64, 72, 80]
    assert [c.number("external") for c in inner[1::2]] == [128, 124, 120]
    # each round has one command in either queue; a count of 0 stays
    assert [c.wait for c in inner[::2]] == [(0, 1), (0, 2), (0, 3)]
    assert [c.wait for c in inner[1::2]] == [(2,), (3,), (4,)]
    assert found[0].wait == () and found[-1].wait == (4,)


def test_commands_without_a_repeat_stay_as_they_are() -> None:
    words = block()[3:]
    assert expanded(words) is words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (block(count=0), "0 rounds of 2 commands"),
        (block(length=0), "3 rounds of 0 commands"),
        (block(length=9), "its block ends behind the program's 6 commands"),
        (block(count=1 << 22), "are more than"),
        (block(rows=[(2, 11, 8)]), "command 2 of a block of 2"),
        (block(rows=[(0, 3, 8)]), "word 3 is none of the fields"),
        (block(rows=[(0, 64, 8)]), "word 64 is none of the fields"),
        (np.delete(block(), 1, axis=0), "an ADVANCE that no REPEAT announces"),
        (np.delete(block(), 2, axis=0), "LOAD stands where it announces an ADVANCE"),
        (np.concatenate([block(3, 7)[1:3], block(2, 5)[1:3], block(2, 2)[1:]]), "more than 2 deep"),
    ],
)
def test_what_cannot_be_repeated_is_refused(words: Words, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        expanded(words)


def test_a_block_may_lie_in_a_block() -> None:
    inner = block(count=12)[1:-1]
    words = np.concatenate([block(3, 4, [(2, 11, 1000)])[1:3], inner])
    found = decode_all(expanded(words))
    wanted = [64 + 1000 * outer + 8 * k for outer in range(3) for k in range(12)]
    assert [c.number("external") for c in found if c.opcode == "LOAD"] == wanted
    assert [c.wait for c in found if c.opcode == "STORE"] == [(2 + k,) for k in range(36)]
    assert len(tiles_folded(expanded(words))) < len(found)
    np.testing.assert_array_equal(expanded(tiles_folded(expanded(words))), expanded(words))


def test_tiles_of_a_buffer_in_local_memory_are_a_block() -> None:
    """A product's tiles read one place behind the other, and write two in turn."""
    dims = {"dims": (1, 1, 1, 1, 1, 64), "element": 1}
    rows = [
        encode(name, {**LOAD, **dims, name_of: 64 * k, "local": local}, queue=queue, wait=wait)
        for k in range(40)
        for name, name_of, queue, local, wait in (
            ("LOAD", "external", 0, 4096 + 64 * k, ()),
            ("STORE", "external", 1, 64 * (k % 2), (k + 1,)),
        )
    ]
    words = np.stack(rows)
    found = tiles_folded(words)
    assert len(found) == 6                # REPEAT, ADVANCE, and the commands of two tiles
    np.testing.assert_array_equal(expanded(found), words)


def test_rounds_that_are_not_alike_are_no_block() -> None:
    words = expanded(block())[1:5]
    tensors = ((0, 1 << 20, 8), (0, 1 << 20, -4))
    assert len(folded(words, [Rounds(0, 2, 5, tensors)])) == 4
    other = words.copy()
    other[2] = encode("LOAD", {**LOAD, "external": 72, "local": 16}, queue=0, wait=(0, 2))
    with pytest.raises(FitError, match="LOAD has another local"):
        folded(other, [Rounds(0, 2, 5, tensors)])
    with pytest.raises(FitError, match="LOAD goes from byte 64 to 72"):
        folded(words, [Rounds(0, 2, 5, ((64, 128, 16), *tensors[1:]))])
    with pytest.raises(FitError, match="a round has other commands"):
        folded(words[[0, 1, 1, 0]], [Rounds(0, 2, 5, tensors)])


def stacked_thrice() -> bytes:
    """A state that is stacked before each step, behind it, and behind it with the last step first."""
    ends = [info("s2", 2, 6), info("before", 2, 6), info("after", 2, 6), info("again", 2, 6)]
    nodes = [("Mul", "s", "w", "d"), ("Add", "d", "t", "sum"), ("Tanh", "sum", "s2")]
    nodes += [("Identity", of, name) for of, name in (("s", "before"), ("s2", "after"), ("s2", "again"))]
    body = helper.make_graph(
        [helper.make_node(op, read, [made]) for op, *read, made in nodes], "body",
        [info("s", 2, 6), info("t", 2, 6)], ends,
    )
    scan = helper.make_node(
        "Scan", ["h", "x"], ["last", "before_all", "all", "back"], "walk", body=body, num_scan_inputs=1,
        scan_output_directions=[0, 0, 1],
    )
    given = [info("h", 2, 6), info("x", 18, 2, 6)]
    made = [info("last", 2, 6), *(info(name, 18, 2, 6) for name in ("before_all", "all", "back"))]
    return model(scan, given, made, w=np.linspace(-1, 1, 6, dtype=np.float32))


CASES: dict[str, Callable[[], bytes]] = {
    "lstm, given states": lambda: layer("LSTM", steps=21, states="input"),
    "lstm, both directions": lambda: layer(
        "LSTM", steps=13, attributes='direction="bidirectional"', directions=2, batch=1
    ),
    "gru": lambda: layer("GRU", steps=17, states="constant"),
    "rnn, backwards": lambda: layer("RNN", steps=19, attributes='direction="reverse"'),
    "a state that is stacked three times": stacked_thrice,
}


@pytest.mark.parametrize(("name", "cores"), often(product([*CASES][::-1], ["four cores", "one core"]), 10))
def test_a_repeated_block_computes_what_the_loop_does(name: str, cores: str) -> None:
    target = CORES if cores == "four cores" else TARGET
    graph, feeds = quantised(CASES[name](), target)
    program = program_of(graph, target)
    assert any(len(s) < len(w) for s, w in zip(program.stored, program.commands, strict=True))
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, target.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
    assert {c.value for c in checks if c.elements} >= {o for o in graph.outputs if graph.values[o].quant}
    found = profile(program)
    # of some dozens of steps, the first ones count
    assert abs(found.cycles / program.meta["plan"]["cycles"] - 1) < 0.05
    # and what the same loop does that is written out
    straight = written_out(graph)
    long = build(straight, target)
    wanted = ProgramRunner(long).run(feeds)
    for output, array in ProgramRunner(program).run(feeds).items():
        np.testing.assert_array_equal(array, wanted[output])
        np.testing.assert_array_equal(array, interpret(graph, feeds, target.numerics)[output])


@pytest.mark.slow
def test_steps_that_hold_their_part_of_a_tensor_are_repeated() -> None:
    """Of a mask, which several layers of a group read."""
    given = {"x": normal(7, 16, 1, 5), "lengths": np.array([9], np.int32)}
    graph = rewritten(layer("LSTM", steps=16, batch=1, lengths="input"), feeds=given).graph
    program = program_of(integers(graph, given, TARGET), TARGET)
    assert len(program.stored[0]) < len(program.commands[0])
    assert not hazards_of(program, order_of(program))


def test_no_command_of_a_round_copies_a_gate() -> None:
    """Its readers read it where the product has put it."""
    graph, _ = quantised(layer("LSTM", steps=20, batch=1), TARGET)
    (words,) = program_of(graph, TARGET).stored
    at = next(i for i, row in enumerate(words) if decode(row).opcode == "REPEAT")
    length = decode(words[at]).number("length")
    opcodes = [c.opcode for c in decode_all(words[at + 1 + decode(words[at]).number("advances") :][:length])]
    assert "MUL" in opcodes and "COPY" not in opcodes


@pytest.mark.slow
def test_a_longer_loop_has_hardly_more_commands() -> None:
    sizes = []
    for steps in (20, 120):
        graph, _ = quantised(layer("LSTM", steps=steps, batch=1), TARGET)
        sizes.append(sum(len(w) for w in program_of(graph, TARGET).stored))
    # the products of all steps come in more tiles
    assert sizes[1] < 1.1 * sizes[0]


def mutated(program: Program, change: Change) -> Program | None:
    """The program with other stored words; None where it is refused."""
    stored = [words.copy() for words in program.stored]
    change(stored[0])
    try:
        meta = _counted(program, stored)
        other = replace(program, stored=tuple(stored), commands=tuple(stored), meta=meta)
        return Program.from_bytes(other.to_bytes())
    except ModelError:
        return None


def _counted(program: Program, stored: list[Words]) -> dict[str, Any]:
    """The metadata with as many commands as the words now say."""
    count = [len(expanded(words, c)) for c, words in enumerate(stored)]
    steps = [{**s, "count": count} if s["kind"] == "npu" else s for s in program.meta["steps"]]
    return {**program.meta, "steps": steps}


def changes_of(words: Words, at: int) -> list[Change]:
    """Changes of the block of a REPEAT: its count, its end, steps, and waits, but for those that an earlier
    one of the queue implies."""
    one, advance = decode(words[at]), at + 1
    used = [k for k, step in enumerate(decode(words[advance]).vector("steps")) if step]

    def add(row: int, word: int, by: int) -> Change:
        def change(stored: Words) -> None:
            stored[row, word] = (int(stored[row, word]) + by) & 0xFFFFFFFF
        return change

    changes = [add(at, word, by) for word in (10, 11) for by in (-1, 1)]
    changes += [add(advance, 10 + 2 * 17 + k, by) for k in used for by in (-16, 1)]
    changes += [add(advance, 10 + k, 1) for k in used]
    known, first = dict[tuple[int, int], int](), advance + one.number("advances")
    for row in range(first, first + one.number("length")):
        command = decode(words[row])
        counts = {(command.queue, q): count for q, count in enumerate(command.wait)}
        more = {place: count for place, count in counts.items() if count > known.get(place, 0)}
        known.update(more)
        changes += [lambda stored, row=row: stored[row, 2:10].fill(0)] if more else []
    return changes


def unseen(program: Program, changes: Sequence[Change], feeds: Mapping[str, np.ndarray]) -> int:
    """How many of these programs are neither refused, nor have hazards, nor give other results."""
    wanted, found = ProgramRunner(program).run(feeds), 0
    for change in changes:
        try:
            other = mutated(program, change)
            if other is None:
                continue
            hazards = hazards_of(other, order_of(other))
            made = ProgramRunner(other).run(feeds)
        except ModelError:
            continue
        found += not hazards and all(np.array_equal(made[name], wanted[name]) for name in wanted)
    return found


@pytest.mark.parametrize("every", often([3, 1], 2))
def test_other_words_of_a_repeat_are_refused_or_told_apart(every: int) -> None:
    """A count, a step, the end of the block, a wait: none can be wrong unseen; of all, or of every third."""
    graph, feeds = quantised(layer("LSTM", steps=16, states="input"), TARGET)
    program = program_of(graph, TARGET)
    words = program.stored[0]
    at = next(i for i, row in enumerate(words) if decode(row, index=i).opcode == "REPEAT")
    changes = changes_of(words, at)
    assert len(changes) > 20 and not unseen(program, changes[::every], feeds)


@pytest.mark.slow
def test_tiles_behind_a_loop_of_very_many_commands_are_blocks() -> None:
    """Where queues have had more commands than a count of 0 tells from one that is yet to come."""
    two = block(3, 2)[3:5]
    rounds = np.concatenate([two] * 4)
    for k, at in enumerate(rounds):
        at[2:10] = 0
        at[11] = 64 + 8 * (k // 2)
    tensors = ((0, 1 << 20, 8),)
    tiles = np.concatenate([rounds] * 8)
    for k, at in enumerate(tiles):
        at[11] = 4096 + 16 * (k // 2)
    loop = Rounds(0, 2, 20_000, tensors)
    stored = folded(np.concatenate([rounds[:4], tiles]), [loop])
    assert len(stored) < 12
    found = decode_all(expanded(stored))
    assert len(found) == 2 * 20_000 + len(tiles)
    # a queue has had 20,000 commands: a count of 0 would be one that is yet to come
    assert all(0 < count <= 20_000 + k // 2 for k, c in enumerate(found[40_000:]) for count in c.wait[:2])


QUEUES, HALF = 2, 1 << 15


def orderly(words: Words) -> Words:
    """The commands, each of which waits for none that comes later: what a count of 16 bits means is found as
    the machine does."""
    queue = (words[:, 0] >> 8 & 0xFF).astype(int)
    seen = np.cumsum(np.eye(QUEUES, dtype=np.int64)[queue], axis=0) - np.eye(QUEUES, dtype=np.int64)[queue]
    counts = np.ascontiguousarray(words[:, 2:10]).view("<u2")[:, :QUEUES].astype(np.int64)
    asked = seen + (counts - seen + HALF) % (2 * HALF) - HALF
    assert (asked <= seen).all(), np.argwhere(asked > seen)[:4]
    return words


def two_rounds(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> Words:
    """Two rounds of a LOAD and a STORE with these waits."""
    return np.stack([
        encode(("LOAD", "STORE")[q], {**LOAD, "external": 64 + 8 * k}, queue=q, wait=wait)
        for k, waits in enumerate((first, second)) for q, wait in enumerate(waits)
    ])


TENSORS = ((0, 1 << 20, 8),)


def test_a_first_round_that_waits_for_nothing_stands_in_front_of_the_block() -> None:
    """The second LOAD waits for the first STORE, the first one for none: a count of 0 would stay 0."""
    words = two_rounds([(), (1,)], [(0, 1), (2,)])
    found = decode_all(orderly(expanded(folded(words, [Rounds(0, 2, 9, TENSORS)]))))
    assert [c.wait for c in found[::2]] == [(), *((0, k) for k in range(1, 9))]
    assert [c.wait for c in found[1::2]] == [(k,) for k in range(1, 10)]
    assert [c.number("external") for c in found[::2]] == [64 + 8 * k for k in range(9)]
    three = folded(words, [Rounds(0, 2, 3, TENSORS)])
    assert len(expanded(three)) == 6


@pytest.mark.parametrize("before", range(65_530, 65_537))
def test_a_round_waits_for_a_count_that_16_bits_do_not_hold(before: int) -> None:
    """The loop begins where queues have had about 2^16 commands, in a loop before it."""
    first = two_rounds([(0, 1), (2,)], [(0, 2), (3,)])
    lead = two_rounds([(), ()], [(), ()])[:2]
    second = two_rounds([(0, 3), (4,)], [(0, 4), (5,)])
    words = np.concatenate([lead, first, second])
    loops = [Rounds(2, 2, before - 1, TENSORS), Rounds(6, 2, 40_000, TENSORS)]
    stored = folded(words, loops)
    assert len(stored) < 20
    made = orderly(expanded(stored))
    assert len(made) == 2 * (before + 40_000)
    inner = np.ascontiguousarray(made[2 * before :, 2:10]).view("<u2").astype(int)
    rounds = before + np.arange(40_000)
    assert (inner[::2, 1] == rounds & 0xFFFF).all() and (inner[1::2, 0] == rounds + 1 & 0xFFFF).all()


@pytest.mark.parametrize("lead", range(3, 7))
def test_what_waits_for_nothing_is_not_taken_for_one_that_waits_for_what_is_yet_to_come(lead: int) -> None:
    """However many commands queues have had before the loop."""
    before = np.concatenate([two_rounds([(), ()], [(), ()])[:2]] * lead)
    rounds = two_rounds([(), (lead + 1,)], [(), (lead + 2,)])
    orderly(expanded(folded(np.concatenate([before, rounds]), [Rounds(2 * lead, 2, 70_000, TENSORS)])))


def test_a_loop_without_commands_of_a_queue_that_has_had_very_many() -> None:
    first = two_rounds([(), ()], [(), ()])
    second = two_rounds([(), ()], [(), ()])[[1, 3]]
    loops = [Rounds(0, 2, 40_000, TENSORS), Rounds(4, 1, 9, TENSORS)]
    orderly(expanded(folded(np.concatenate([first, second]), loops)))


def test_a_loop_whose_rounds_are_no_block_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason: here steps read parts of a tensor that is not known as theirs."""
    monkeypatch.setattr(LoopCommands, "_tensors", lambda self, loop: ())
    graph, _ = quantised(layer("GRU", steps=17, states="input"), TARGET)
    said = f'loop "{loops(graph)[0].name}" as repeated commands: .* goes from'
    with pytest.raises(FitError, match=said) as raised:
        program_of(graph, TARGET)
    assert "[parse] loops = false" in raised.value.hint and raised.value.code == "NF-FIT-013"


def test_a_loop_of_more_commands_than_a_program_may_have_is_refused() -> None:
    words = two_rounds([(), ()], [(), ()])
    with pytest.raises(FitError, match='"walk" has 3000000 rounds of 2 commands') as raised:
        folded(words, [Rounds(0, 2, 3_000_000, TENSORS, "walk")])
    assert "fewer steps a run" in raised.value.hint
