"""Programs of any length behind strides: the bits, and the steps, of the network of so many steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import onnxruntime
import pytest

from npuflow.base.errors import ModelError
from npuflow.base.step_count import EACH, StepCount
from npuflow.checks.agreement import compare
from npuflow.input.data.lengths import cut
from npuflow.ir.graph import Graph
from npuflow.ir.loops import counted, loops
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.chunks import chunk_sizes, chunked, whole_layers
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from tests.networks import free_lengths
from tests.networks.looped import Range, free_length
from tests.program.test_chunks import program_in_chunks, sample
from tests.program.test_repeats import TARGET
from tests.tiers import often, tiered

MOST, LOOPED = 96, 8                    # LOOPED: steps of a layer that is a loop at its own length, too
Case = tuple[Callable[[int], bytes], int, StepCount, bool]
NETWORKS: Mapping[str, Case] = {          # with the least steps, those behind strides, and zeros behind a run
    "border": (free_lengths.strided_gru, 1, StepCount(2, 1), False),
    "two strides, both directions": (free_lengths.strided_lstm, 1, StepCount(4, 3), True),
    "no border": (partial(free_lengths.strided_gru, pads="0,0"), 5, StepCount(2, -3), False),
    "pooling": (free_lengths.strided_pool, 6, StepCount(6, 0), True),
    "spectra": (free_lengths.strided_pictures, 1, StepCount(4, 3), True),
    "a border in front": (partial(free_lengths.strided_gru, pads="4,0"), 1, StepCount(2, 1), False),
}


def sqnr(wanted: Array, found: Array) -> float:
    noise = float(np.square(wanted - found).sum())
    return float(10 * np.log10(np.square(wanted).sum() / max(noise, 1e-30)))


def check_lengths(
    case: Case, graph: Graph, ranges: Mapping[str, Range], program: Program, lengths: list[int]
) -> None:
    """The bits of the integer network of so many steps, and the numbers of the float network, within the
    noise of 8 bits; no hazards."""
    make, least, count, zeros = case
    runner, (length,), entries = ProgramRunner(program), graph.lengths, program.meta["lengths"]
    feeds = {i: np.zeros(graph.type(i).shape, np.float32) for i in graph.inputs if i != length.name}
    feeds[length.name] = np.zeros(graph.type(length.name).shape, np.int32)
    for steps in lengths:
        feed = sample(graph, feeds, steps)
        (found,) = runner.run_fed([feed])
        found = cut(entries, feed, found)
        short = program.at({length.name: steps})
        assert not hazards_of(short, order_of(short)), steps
        given = {"x": feed["x"][(slice(None),) * dict(length.axes)["x"] + (slice(steps),)]}
        if count.of(steps) >= LOOPED and count.of(steps) > count.of(least):
            alone, *_ = free_length(make, steps, TARGET, ranges, zeros, least)
            said = {alone.lengths[0].name: np.full_like(feed[length.name], steps)}
            reference = Interpreter(alone, TARGET.numerics).run({**given, **said})
        else:                             # steps are written out there, as other layers
            reference = cut(entries, feed, Interpreter(graph, TARGET.numerics).run(feed))
        for value, wanted in reference.items():
            np.testing.assert_array_equal(found[value], wanted, f"{value} at {steps} steps")
        (real,) = onnxruntime.InferenceSession(make(steps)).run(None, given)
        assert found["y"].shape == real.shape
        assert sqnr(real, found["y"]) > 15, (steps, sqnr(real, found["y"]))


def check(case: Case, most: int, lengths: list[int], size: int = 0) -> None:
    make, least, count, zeros = case
    graph, feeds, ranges = free_length(make, most, TARGET, zeros=zeros, least=least)
    (length,) = graph.lengths
    assert count == EACH or (dict(length.counts) == {"y": count} and length.inner[0] == count)
    assert from_text(to_text(graph), graph.consts) == graph
    found = [counted(graph, loop) for loop in loops(graph)]
    assert found and all(own is not None and own.count == count for own in found)
    program = program_in_chunks(graph, size)
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, TARGET.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
    check_lengths(case, graph, ranges, program, lengths)
    middle = max(least, most // 2)
    short, whole = (timeline_of(p, order_of(p)).cycles for p in (program.at({length.name: middle}), program))
    assert short < whole


@pytest.mark.parametrize(
    ("name", "lengths"),
    often([("border", (41, MOST)), *((n, (7, 31, 40, 41, 42, 43, MOST - 1, MOST)) for n in NETWORKS)], 8),
)
def test_programs_behind_strides_give_the_bits_of_each_length(name: str, lengths: tuple[int, ...]) -> None:
    check(NETWORKS[name], MOST, sorted({NETWORKS[name][1], *lengths}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), list(product(NETWORKS, (2 * MOST, 2 * MOST + 1, 199))))
def test_strided_layers_run_in_chunks(name: str, most: int) -> None:
    make, least, count, zeros = NETWORKS[name]
    graph, *_ = free_length(make, most, TARGET, zeros=zeros, least=least)
    sizes = chunk_sizes(graph)
    assert sizes and not whole_layers(graph) and all(size % count.stride == 0 for size in sizes)
    made = chunked(graph, sizes[-1])
    strided = [n for n in made.nodes if max(getattr(n.op, "strides", ()), default=1) > 1]
    inner = {o for loop in loops(made) for i in loop.nodes for o in made.nodes[i].outputs}
    assert strided and all(n.outputs[0] in inner for n in strided)
    check(NETWORKS[name], most, sorted({least, 7, 47, 48, 49, most // 2, most - 1, most}), sizes[-1])


@cache
def strided_program() -> Program:
    graph, *_ = free_length(free_lengths.strided_gru, 24, TARGET)
    return program_in_chunks(graph, 0)


@pytest.mark.parametrize("strides", [{"y": [0, 1]}, {"y": [2, 2]}, {"y": [2]}, {"z": [2, 1]}, [2, 1]])
def test_metadata_of_other_strides_are_an_error(strides: object) -> None:
    program = strided_program()
    (length,) = program.meta["lengths"]
    broken = {**program.meta, "lengths": [{**length, "strides": strides}]}
    with pytest.raises(ModelError, match=r"step"):
        Program.from_bytes(replace(program, meta=broken).to_bytes())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), list(product(NETWORKS, (0, 12))))
def test_fifty_lengths(name: str, size: int) -> None:
    least, most = NETWORKS[name][1], 2 * MOST + 1
    check(NETWORKS[name], most, np.unique(np.linspace(least, most, 50).astype(int)).tolist(), size)


@pytest.mark.parametrize("seed", tiered(range(40), 6))
def test_random_strides(seed: int) -> None:
    make, most = partial(free_lengths.random_strides, seed), 192 + seed % 9
    graph, *_ = free_length(make, most, TARGET, zeros=True, least=40)
    (length,), sizes = graph.lengths, chunk_sizes(graph)
    count = dict(length.counts).get("y", EACH)
    lengths = np.random.default_rng(seed).integers(40, most, 4).tolist()
    size = sizes[seed % len(sizes)] if sizes else 0
    check((make, 40, count, True), most, sorted({40, 41, most - 1, most, *lengths}), size)
