"""Several inferences as one program: bit for bit those of the program alone, without hazards, and timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.program.container import Program
from npuflow.program.copies import Copies
from npuflow.program.order import order_of
from npuflow.report.throughput import throughput
from npuflow.run.interpret import interpret
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine
from tests.networks.harness import SMALL, build, local
from tests.networks.small import mixed
from tests.tiers import often

WIDE = local(replace(SMALL, dma=replace(SMALL.dma, channels=2)), 1 << 14)
MULTICAST = replace(WIDE, dma=replace(WIDE.dma, multicast=True))


def cores(target: Target, number: int) -> Target:
    return replace(target, compute=replace(target.compute, cores=number))


def feeds(graph: Graph, number: int) -> list[dict[str, np.ndarray]]:
    """Inputs of `number` different inferences."""
    rng = np.random.default_rng(0)
    sizes = {i: graph.type(i).shape for i in graph.inputs}
    return [{i: rng.normal(size=s).astype(np.float32) for i, s in sizes.items()} for _ in range(number)]


def check(graph: Graph, target: Target, instances: int, rounds: int) -> Program:
    """Every integer tensor in external memory of every inference equals the reference's."""
    copies = Copies(build(graph, target), instances, rounds)
    assert not copies.obstacle()
    merged = Program.from_bytes(copies.merged().to_bytes())
    order = order_of(merged)
    found = hazards_of(merged, order)
    assert not found, [h.text(merged) for h in found[:3]]
    samples = feeds(graph, copies.number)
    expected = [interpret(graph, s, target.numerics, keep=lambda _: True) for s in samples]
    machine = SimulatedMachine(merged, 1, watch=list(merged.meta["values"]), order=order)
    for step in merged.meta["steps"]:
        if step["kind"] == "quantize":
            name, number = step["out"].rsplit("@", 1)
            machine.write(step["out"], expected[int(number)][name][None])
        elif step["kind"] == "npu":
            machine.run(step["segment"])
    compared = {name: array for name, array in machine.seen.items() if "@" in name}
    assert {name.rsplit("@", 1)[1] for name in compared} == {str(k) for k in range(copies.number)}
    for name, array in compared.items():
        value, number = name.rsplit("@", 1)
        np.testing.assert_array_equal(array[0], expected[int(number)][value], err_msg=name)
    return merged


@pytest.mark.parametrize(
    ("target", "instances", "rounds"),
    often([(t, *n) for t in (SMALL, WIDE, MULTICAST) for n in ((1, 3), (4, 1), (2, 2))], 4),
    ids=lambda one: one.name if isinstance(one, Target) else None,
)
def test_inferences_are_exact_and_safe(target: Target, instances: int, rounds: int) -> None:
    check(mixed(target.numerics)[0], target, instances, rounds)


def test_rounds_of_several_cores_together() -> None:
    check(mixed(WIDE.numerics)[0], cores(MULTICAST, 2), 1, 2)


def test_waits_between_rounds_are_needed() -> None:
    """Without those of later rounds, local memory is written while the round before still reads it."""
    copies = Copies(build(mixed(SMALL.numerics)[0], SMALL), 1, 2)
    for needs in copies._needs:
        needs[...] = 0
    merged = copies.merged()
    assert hazards_of(merged, order_of(merged))


def test_overlap_shortens_the_steady_state() -> None:
    program = build(mixed(WIDE.numerics)[0], WIDE)
    found, alone = throughput(program), timeline_of(program, order_of(program)).cycles
    assert found.overlapped and alone <= found.latency < 1.1 * alone
    assert 0.5 * alone < found.period < alone


def test_multicast_loads_constants_once() -> None:
    """With a narrow bus, cores that load the weights together gain more than cores that load them apart."""
    graph, _ = mixed(WIDE.numerics)
    apart, together = (throughput(build(graph, target), 4) for target in (WIDE, MULTICAST))
    assert together.bytes < apart.bytes
    assert 1 < apart.speed_up < together.speed_up <= 4


def test_obstacles_are_named() -> None:
    program = build(mixed(SMALL.numerics)[0], SMALL)
    room = Copies(program).external_bytes
    narrow = replace(SMALL, memory=replace(SMALL.memory, external_bytes=room + Copies(program).stride))
    found = throughput(build(mixed(SMALL.numerics)[0], narrow))
    assert not found.overlapped and "external bytes" in found.because
    assert found.period == found.latency
    meta = {**program.meta, "state": []}
    assert "state" not in Copies(replace(program, meta=meta), 1, 2).obstacle()
