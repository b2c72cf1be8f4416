"""What programs of a free length take, with layers outside loops whole and in chunks.

    python benchmarks/free_lengths.py [--check] [--write]

Networks of 64 states on edge-4t, 8 bits: an LSTM between dense layers, a convolution of five steps before a
GRU, both directions of an LSTM before a dense layer, two convolutions of five and three steps before a GRU,
a convolution of five steps between two GRUs, a convolution of five steps and stride 2 before a GRU, two of
three steps and stride 2 before both directions of an LSTM. They take up to 512 steps; one takes 509, a prime
number. Rows:
cycles of the clock at some lengths, whole layers, and chunks of several sizes; what the stage `chunked` takes
is marked. Bound: that of the network of so many steps (docs/explanation/bounds.md). `--check` runs what is
taken at 50 lengths on the simulator: outputs that differ from the integer reference of whole layers, and
hazards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import study
from shapes import target_named

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npuflow.hw.target import Target
from npuflow.input.data.lengths import cut
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.bounds import bounds_of
from npuflow.schedule.chunks import chunk_sizes, chunked
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.stages.chunked import FEW, MORE
from tests.networks import free_lengths
from tests.networks.looped import free_length
from tests.program.test_chunks import sample

MOST, PRIME, LENGTHS, TRIED = 512, 509, (16, 64, 128, 256, 509, 512), 50
NETWORKS: Mapping[str, Callable[[int], bytes]] = {
    "LSTM": partial(free_lengths.lstm, states=64, inputs=64),
    "Conv + GRU": partial(free_lengths.conv_gru, states=64, inputs=40, channels=64),
    "bidirectional LSTM": partial(free_lengths.both_ways, states=64, inputs=64),
    "LSTM, 509 steps": partial(free_lengths.lstm, states=64, inputs=64),
    "Conv + Conv + GRU": partial(free_lengths.conv_stack, states=64, inputs=40, channels=64),
    "GRU + Conv + GRU": partial(free_lengths.conv_between, states=64, inputs=64),
    "strided Conv + GRU": partial(free_lengths.strided_gru, states=64, inputs=40, channels=64),
    "2 strided Conv + bidirectional LSTM": partial(
        free_lengths.strided_lstm, states=64, inputs=40, channels=64
    ),
}
ZEROS = {"Conv + Conv + GRU", "2 strided Conv + bidirectional LSTM"}      # of convolutions, behind a run
HEAD = f"""# Programs of a free length: layers outside loops in chunks

{(__doc__ or "").partition("``" + "`")[0].split(chr(10) * 2, 2)[2].strip()}

| network | | {" | ".join(f"T = {n}" for n in LENGTHS)} |
| --- | --- | {" | ".join("---:" for _ in LENGTHS)} |
"""


def cycles(program: Program, graph: Graph, steps: int) -> float:
    short = program.at({graph.lengths[0].name: steps})
    return timeline_of(short, order_of(short)).cycles


def program_of(graph: Graph, target: Target, size: int) -> Program:
    few = rolled(chunked(graph, size))
    machine = Machine(target.compute, target.memory, target.dma)
    return generate(few, plan_network(few, machine, target.numerics), target)


def bound(make: Callable[[int], bytes], steps: int, target: Target) -> float:
    """Of the network of so many steps."""
    few = rolled(free_length(make, steps, target)[0])
    return bounds_of(few, Machine(target.compute, target.memory, target.dma), target.numerics).cycles


def different(graph: Graph, feeds: Mapping[str, Array], program: Program, target: Target) -> tuple[int, int]:
    """Lengths whose outputs are not those of the reference, and hazards, of some lengths."""
    reference, runner, wrong, found = Interpreter(graph, target.numerics), ProgramRunner(program), 0, 0
    (length,), entries = graph.lengths, program.meta["lengths"]
    for steps in np.linspace(1, length.most, TRIED).astype(int).tolist():
        short, feed = program.at({length.name: steps}), sample(graph, feeds, steps)
        found += len(hazards_of(short, order_of(short)))
        wanted, made = (cut(entries, feed, one) for one in (reference.run(feed), *runner.run_fed([feed])))
        wrong += any(not np.array_equal(made[name], wanted[name]) for name in made)
    return wrong, found


def rows(name: str, check: bool) -> list[str]:
    target, make, most = target_named("edge-4t"), NETWORKS[name], PRIME if str(PRIME) in name else MOST
    graph, feeds, _ = free_length(make, most, target, zeros=name in ZEROS)
    programs = {size: program_of(graph, target, size) for size in (0, *chunk_sizes(graph))}
    taken = {size: [cycles(p, graph, n) for n in (most, most // FEW)] for size, p in programs.items()}
    whole, lengths = taken[0], [n for n in LENGTHS if n < PRIME or n == most]
    allowed = {s: a / whole[0] + b / whole[1] for s, (a, b) in taken.items() if a <= MORE * whole[0]}
    best = min(allowed, key=lambda size: allowed[size])

    def row(what: str, at: Callable[[int], float]) -> str:
        cells = [f"{at(n):,.0f}" if n in lengths else "" for n in LENGTHS]
        return f"| {name} | {what} | {' | '.join(cells)} |"

    made = []
    for size, program in programs.items():
        said = f"chunks of {size}" if size else "whole layers"
        made.append(row(said + (", taken" if size == best else ""), partial(cycles, program, graph)))
    made.append(row("bound", lambda steps: bound(make, steps, target)))
    if check:
        wrong, hazards = different(graph, feeds, programs[best], target)
        made.append(f"| {name} | {TRIED} lengths | different {wrong}, hazards {hazards} |{' |' * 5}")
    for line in made:
        print(line, flush=True)
    return made


def main() -> None:
    lines = [line for name in NETWORKS for line in rows(name, "--check" in sys.argv)]
    if "--write" in sys.argv:
        study.write(__file__, HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
