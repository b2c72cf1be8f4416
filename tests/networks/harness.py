"""Programs from graphs, run on the simulator and compared with the reference interpreter."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from npuflow.hw.target import Compute, Dma, Memory, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import interpret
from npuflow.schedule.machine import Machine
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine as Simulator

SMALL = Target(
    compute=Compute(
        array_rows=4, array_cols=4, depthwise_macs=4, vector_lanes=4, fill_cycles=4, command_cycles=2
    ),
    numerics=Numerics(),
    memory=Memory(local_bytes=4096, local_align=16, burst=16, external_bandwidth=4.0, external_bytes=1 << 24),
    dma=Dma(setup_cycles=8),
)


def local(target: Target, size: int) -> Target:
    return replace(target, memory=replace(target.memory, local_bytes=size))


def machine(target: Target) -> Machine:
    return Machine(target.compute, target.memory, target.dma)


def build(
    graph: Graph, target: Target, plan: TilingPlan | None = None, without: Collection[str] = ()
) -> Program:
    plan = plan or plan_network(graph, machine(target), target.numerics, without=without)
    program = generate(graph, plan, target)
    return Program.from_bytes(program.to_bytes())


def simulate(
    program: Program, values: dict[str, np.ndarray], exact_only: bool = False
) -> dict[str, np.ndarray]:
    """Every integer value as it was when complete, fed with the reference's own boundary tensors; what taps
    show of values in local memory is compared here."""
    order = order_of(program)
    found = hazards_of(program, order)
    assert not found, "\n".join(map(str, found[:5]))
    watch = [*(v for v, e in program.meta["values"].items() if e["node"] is not None), *program.taps.values]
    runner = Simulator(program, 1, watch=watch, order=order, exact_only=exact_only)
    for step in program.meta["steps"]:
        if step["kind"] == "quantize":
            runner.write(step["out"], values[step["out"]][None])
        elif step["kind"] == "npu":
            runner.run(step["segment"])
    for name, shadow in runner.shadows.items():
        assert shadow.torn is None and shadow.seen.any(), name
        np.testing.assert_array_equal(shadow.array[0][shadow.seen], values[name][shadow.seen], err_msg=name)
    return {k: v[0] for k, v in runner.seen.items()}


def check_exact(
    graph: Graph,
    inputs: dict[str, np.ndarray],
    target: Target,
    plan: TilingPlan | None = None,
    exact_only: bool = False,
) -> Program:
    """Bit for bit on every integer tensor, without hazards."""
    expected = interpret(graph, inputs, target.numerics, keep=lambda _: True)
    program = build(graph, target, plan)
    for value_id, array in simulate(program, expected, exact_only).items():
        np.testing.assert_array_equal(array, expected[value_id], err_msg=value_id)
    return program
