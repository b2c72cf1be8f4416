"""Random graphs, schemes and targets: quantised, planned, generated; the simulator makes the reference's every integer."""

from __future__ import annotations

import os
import random
from collections import Counter

import numpy as np
import pytest
from random_graphs import Subject, subject

from npuflow.base.errors import TargetError
from npuflow.engine.codegen.generate import generate
from npuflow.engine.interpret import Interpreter
from npuflow.engine.place import place
from npuflow.engine.program.container import Program
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.engine.sim.hazards import hazards_of
from npuflow.engine.sim.machine import Machine
from npuflow.engine.sim.order import order_of
from npuflow.engine.tiling.cost import Machine as Costs
from npuflow.engine.tiling.plan import plan_network
from npuflow.hw.numerics import quantize
from npuflow.ir.graph import Graph
from tests.codegen import random_tilings

SHARD = 500
SEEDS = range(*(int(n) for n in os.environ.get("NPUFLOW_FUZZ", "1000:11000").split(":")))    # of the slow campaign


def compiled(s: Subject, rng: random.Random) -> tuple[Graph, Program]:
    """The quantised graph and its program, after a trip through the file format; every other plan is torn into tiles anyhow."""
    placement = place(s.graph, s.target)
    graph = quantize_graph(s.graph, placement.on_npu, s.ranges, s.config, s.target.numerics).graph
    machine = Costs(s.target.compute, s.target.memory, s.target.dma)
    torn = rng.random() < 0.5
    plan = plan_network(graph, machine, s.target.numerics, 0 if torn else s.level)      # in any case: it refuses what cannot fit
    if torn:
        plan = random_tilings.plan(graph, machine, s.target.numerics, rng, s.level, tries=20)
    return graph, Program.from_bytes(generate(graph, plan, s.target).to_bytes())


def coded(graph: Graph, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A sample as the graph takes it: codes where its inputs are integer."""
    quants = {i: graph.values[i].quant for i in graph.inputs}
    return {
        i: feed[i] if q is None else quantize(feed[i], q.scale[0], q.zero_point[0], q.lo, q.hi).astype(q.dtype)
        for i, q in quants.items()
    }


def compared(s: Subject, graph: Graph, program: Program, exact_only: bool) -> int:
    """How many integer tensors were compared, all equal. The host's values are the reference's own."""
    order = order_of(program)
    hazards = hazards_of(program, order)
    assert not hazards, str(hazards[0])
    reference = Interpreter(graph, s.target.numerics)
    wanted = [reference.run(coded(graph, feed), keep=lambda _: True) for feed in s.feeds]
    want = {v: np.stack([w[v] for w in wanted]) for v in wanted[0]}
    entries = program.meta["values"]
    given = {*graph.inputs, *(o for n in graph.nodes if not n.is_integer for o in n.outputs)}
    watch = [v for v in entries if v not in given]
    machine = Machine(program, len(s.feeds), watch=watch, order=order, exact_only=exact_only)
    for entry in program.meta["inputs"]:
        if entry["name"] in entries:
            machine.write(entry["name"], want[entry["name"]])
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            machine.run(step["segment"])
        for out in [step["out"]] if step["kind"] == "quantize" else step["outputs"] if step["kind"] == "host" else []:
            if out in entries:
                machine.write(out, want[out])
    for value in watch:
        np.testing.assert_array_equal(machine.seen[value], want[value], err_msg=value)
    return len(watch)


def campaign(seeds: range) -> Counter[str]:
    """Every seed in turn; a failure names its seed."""
    count: Counter[str] = Counter()
    for seed in seeds:
        try:
            s = subject(seed)
            try:
                graph, program = compiled(s, random.Random(seed))
            except TargetError:
                count["refused"] += 1
                continue
            tensors = compared(s, graph, program, exact_only=seed % 2 == 0)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        count["compared" if tensors else "host only"] += 1
        count[f"level {s.level}"] += 1
        count["several cores"] += s.target.compute.cores > 1
        count["tensors"] += tensors
        count["operators"] += sum(n.is_integer for n in graph.nodes)
    return count


def bounded(count: Counter[str], graphs: int) -> None:
    assert count["refused"] < 0.25 * graphs, count
    assert count["compared"] > 0.6 * graphs and count["tensors"] > 2 * count["compared"], count


def test_random_graphs_agree() -> None:
    bounded(campaign(range(200)), 200)


def test_a_tile_of_softmax_may_be_a_part_of_what_is_held() -> None:
    assert campaign([4144])["compared"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", SEEDS[::SHARD])
def test_many_random_graphs_agree(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    """NPUFLOW_FUZZ=FIRST:END chooses other seeds, or a share of them for one of several processes."""
    seeds = range(first, min(first + SHARD, SEEDS.stop))
    found = campaign(seeds)
    with capsys.disabled():
        print(f"\n{len(seeds)} graphs from seed {first}: {', '.join(f'{n} {name}' for name, n in sorted(found.items()))}")
    bounded(found, len(seeds))
    assert {f"level {n}" for n in (0, 3, 5)} <= {*found} and found["several cores"] > 0, found
