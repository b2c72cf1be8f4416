"""Whole programs in C: networks of all kinds, on several cores, with loops and with state."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import NpuflowError
from npuflow.hw.encode import decode_all
from npuflow.hw.target import Target
from npuflow.input.data.lengths import cut
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.packing.package import packed
from npuflow.quantise.config import Quantize
from npuflow.runner import raw
from npuflow.runner.simulated import ProgramRunner
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.frontends.test_nested_loops import scan_in_scan
from tests.networks import random_graphs, random_networks
from tests.networks.harness import SMALL, build, machine
from tests.networks.looped import free_length, program_of, quantised
from tests.networks.small import Builder
from tests.program.test_chunks import program_in_chunks, sample
from tests.program.test_counts import CASES
from tests.program.test_repeats import CORES, TARGET
from tests.program.test_round_loads import WIDE, stacked
from tests.program.test_strided_lengths import MOST, NETWORKS
from tests.rules.test_recurrent import layer
from tests.runtime.harness import CProgram, RuntimeFault, codes_of, differing, simulated
from tests.tiers import often

USAGE, NETWORK = 1, 12


def grown(seed: int, bits: int = 0) -> Program | None:
    """The program of a random network; None: parts of it are the host's, or its target cannot hold it."""
    one = random_graphs.subject(seed)
    config = one.config
    if bits:
        config = replace(config, activations=replace(config.activations, bits=bits))
    try:
        placed, numerics = place(one.graph, one.target), one.target.numerics
        done = quantize_graph(one.graph, placed, one.ranges, config, numerics)
        plan = plan_network(done.graph, machine(one.target), numerics, one.level)
        program = Program.from_bytes(generate(done.graph, plan, one.target).to_bytes())
    except NpuflowError:
        return None
    return program if all(step["kind"] != "host" for step in program.meta["steps"]) else None


@pytest.mark.parametrize("seed", often(range(12), 2))
def test_a_network_has_the_simulators_bits(runtime: ctypes.CDLL, seed: int) -> None:
    program = grown(seed)
    if program is None:
        pytest.skip("the seed's network has no program without a host")
    wrong, of = differing(runtime, program, 3)
    assert wrong == 0 < of


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_networks_have_the_simulators_bits(runtime: ctypes.CDLL, seed: int) -> None:
    program = grown(seed)
    if program is not None:
        assert differing(runtime, program, 5)[0] == 0


@pytest.mark.slow
def test_rounds_that_load_constants_have_the_simulators_bits(runtime: ctypes.CDLL) -> None:
    """Blocks in which both addresses of a load go on, and addresses in local memory."""
    program = program_of(quantised(stacked(), WIDE)[0], WIDE)
    assert program.stored and differing(runtime, program, 7)[0] == 0


@pytest.mark.parametrize("kind", often(["LSTM", "GRU"], 2))
def test_repeated_commands_have_the_simulators_bits(runtime: ctypes.CDLL, kind: str) -> None:
    program = program_of(quantised(layer(kind, steps=24), TARGET)[0], TARGET)
    assert program.stored and differing(runtime, program, 3)[0] == 0


def test_loops_on_cores_of_their_own_have_the_simulators_bits(runtime: ctypes.CDLL) -> None:
    directions = layer("GRU", steps=17, attributes='direction="bidirectional"', directions=2, batch=1)
    program = program_of(quantised(directions, CORES)[0], CORES, cores=4)
    blocks = [any(c.opcode == "REPEAT" for c in decode_all(words)) for words in program.stored]
    assert blocks == [True, True, False, False] and differing(runtime, program, 3)[0] == 0


@pytest.mark.parametrize("target", often([TARGET, CORES], 2))
def test_blocks_in_blocks_have_the_simulators_bits(runtime: ctypes.CDLL, target: Target) -> None:
    program = program_of(quantised(scan_in_scan(10, 12), target)[0], target, nested=True, level=1)
    assert program.meta["nested"] and differing(runtime, program, 3)[0] == 0


@pytest.mark.parametrize("name", often(list(CASES), 4))
def test_a_program_of_any_length_runs_the_steps_it_is_told(runtime: ctypes.CDLL, name: str) -> None:
    make, most, target = CASES[name]
    graph, feeds, _ = free_length(make, most, target)
    program = program_of(graph, target)
    (length,), runner = program.meta["lengths"], ProgramRunner(program)
    steps_of = length["input"]
    with CProgram(runtime, program.to_bytes()) as one:
        assert one.steps(steps_of, 0) == one.steps(steps_of, most + 1) == USAGE
        for steps in (most, 1, 5, most - 1):
            sample = {n: a[:steps] if n in length["axes"] else a for n, a in feeds.items() if n != steps_of}
            wanted = runner.run(sample)
            assert one.steps(steps_of, steps) == 0
            codes = {}
            for port, array in sample.items():
                whole = np.zeros(feeds[port].shape, np.float32)
                whole[: len(array)] = array
                codes[port] = one.quantize(port, whole)
            for port, made in one.run(codes).items():
                real, cut = one.dequantize(port, made), steps if port in length["axes"] else None
                said = f"{port} of {steps} steps"
                np.testing.assert_array_equal(real[:cut], wanted[port][:cut], err_msg=said)


@pytest.mark.parametrize("name", often(["no border", "two strides, both directions"], 2))
def test_outputs_behind_strides_have_the_steps_that_are_told(runtime: ctypes.CDLL, name: str) -> None:
    make, least, count, zeros = NETWORKS[name]
    graph, feeds, _ = free_length(make, MOST, TARGET, zeros=zeros, least=least)
    program = Program.from_bytes(program_in_chunks(graph, 8).to_bytes())
    (length,), runner = program.meta["lengths"], ProgramRunner(program)
    with CProgram(runtime, program.to_bytes()) as one:
        for steps in (MOST, least, 41, MOST - 1):
            assert one.steps(length["input"], steps) == 0
            assert one.output_steps("y") == count.of(steps)
            x = sample(graph, feeds, steps)["x"]
            wanted = cut([length], {length["input"]: steps}, runner.run({"x": x[..., :steps]}))["y"]
            made = one.dequantize("y", one.run({"x": one.quantize("x", x)})["y"])
            np.testing.assert_array_equal(made[: count.of(steps)], wanted, err_msg=f"{steps} steps")
    broken = {**program.meta, "lengths": [{**length, "strides": {"y": [0, 1]}}]}
    with pytest.raises(RuntimeFault):
        CProgram(runtime, replace(program, meta=broken).to_bytes())


def fed_back() -> Program:
    """A convolution whose output is its next input, of another scale, and what is given."""
    b = Builder()
    h, x = b.input("h", (1, 3, 6, 5)), b.input("x", (1, 3, 6, 5))
    y = b.conv(b.add(OPS["add"](), h, x), 3, 3)
    graph = Graph(("h", "x"), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), SMALL.numerics).graph
    program = build(done, SMALL)
    return Program.from_bytes(replace(program, meta={**program.meta, "state": [[y, "h"]]}).to_bytes())


def test_state_is_kept_from_run_to_run(runtime: ctypes.CDLL) -> None:
    program, rng = fed_back(), np.random.default_rng(1)
    runner = ProgramRunner(program)
    with CProgram(runtime, program.to_bytes()) as one:
        for k in range(6):
            if k == 4:
                runner.reset()
                one.reset()
            x = rng.normal(size=(1, 3, 6, 5)).astype(np.float32)
            wanted, found = runner.run({"x": x}), one.run({"x": one.quantize("x", x)})
            for port, made in found.items():
                np.testing.assert_array_equal(one.dequantize(port, made), wanted[port], err_msg=f"run {k}")


def test_a_file_of_several_networks_runs_each_by_its_name(runtime: ctypes.CDLL) -> None:
    graphs = [random_networks.network(random.Random(k), SMALL.numerics, 3)[0] for k in (1, 2)]
    programs = {f"net{k}": build(graph, SMALL) for k, graph in enumerate(graphs)}
    file = packed(programs).to_bytes()
    for name, program in programs.items():
        rng = np.random.default_rng(1)
        codes = {slot.name: codes_of(slot, rng, 1) for slot in raw.inputs(program)}
        with CProgram(runtime, file, name) as one:
            made = one.run({port: array[0] for port, array in codes.items()})
        for port, array in simulated(program, codes).items():
            np.testing.assert_array_equal(made[port], array[0])
    for name in (None, "other"):
        with pytest.raises(RuntimeFault) as fault:
            CProgram(runtime, file, name)
        assert fault.value.status == NETWORK
