"""A campaign over seeds: graphs quantised, planned, generated; the simulator makes
the reference's every integer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import Interpreter
from npuflow.schedule.machine import Machine as Costs
from npuflow.search.plan import plan_network
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine
from npuflow.testing.quantised import local_memory, quantize_graph
from tests.networks import random_groups, random_tilings
from tests.networks.random_graphs import Subject

Told = Callable[[Subject, Graph], Iterable[str]]         # what else is counted of a graph that was compared


def campaign(
    seeds: Iterable[int], case: Callable[[int], Subject], exact_each: int, reported: Told
) -> Counter[str]:
    """Every seed in turn; a failure names its seed. `exact_each`: how often no fast kernel is taken."""
    count: Counter[str] = Counter()
    for seed in seeds:
        subject = None
        try:
            subject = case(seed)
            try:
                graph, program = compiled(subject, random.Random(seed))
            except TargetError:
                count.update(
                    ["refused", f"refused on {subject.target.name}"] if subject.target.name else ["refused"]
                )
                continue
            tensors = compared(subject, graph, program, exact_only=seed % exact_each == 0)
        except Exception as error:
            error.add_note(
                f"seed {seed}" + (f": {subject.target.name}, level {subject.level}" if subject else "")
            )
            raise
        count["compared" if tensors else "host only"] += 1
        count["tensors"] += tensors
        count["operators"] += sum(n.is_integer for n in graph.nodes)
        if tensors:
            count.update([f"level {subject.level}", *reported(subject, graph)])
            count["several cores"] += sum(len(words) > 0 for words in program.commands) > 1
    return count


def bounded(count: Counter[str], graphs: int) -> None:
    assert count["refused"] < 0.25 * graphs, count
    assert count["compared"] > 0.6 * graphs and count["tensors"] > 2 * count["compared"], count


def compiled(s: Subject, rng: random.Random) -> tuple[Graph, Program]:
    """The quantised graph and its program, after a trip through the file format; every other plan is torn
    into tiles anyhow, on several cores into groups too, that cores share anyhow."""
    placement = place(s.graph, s.target)
    room = local_memory(s.target.memory.local_bytes) if s.target.numerics.float_types else None
    graph = quantize_graph(
        s.graph, placement.on_npu, s.ranges, s.config, s.target.numerics, prices=room
    ).graph
    machine = Costs(s.target.compute, s.target.memory, s.target.dma)
    torn = rng.random() < 0.5
    # in any case: it refuses what cannot fit
    plan = plan_network(graph, machine, s.target.numerics, 0 if torn else s.level)
    if torn and machine.compute.cores > 1:
        plan, _ = random_groups.plan(graph, machine, s.target.numerics, rng, s.level)
    elif torn:
        plan = random_tilings.plan(graph, machine, s.target.numerics, rng, s.level, tries=20)
    return graph, Program.from_bytes(generate(graph, plan, s.target).to_bytes())


def coded(graph: Graph, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A sample as the graph takes it: codes where its inputs are integer, patterns where they are floats."""
    quants = {i: graph.values[i].quant for i in graph.inputs}
    return {i: feed[i] if q is None else encode(feed[i], q) for i, q in quants.items()}


def compared(s: Subject, graph: Graph, program: Program, exact_only: bool) -> int:
    """How many integer tensors were compared, all equal, with those that only local memory holds. The host's
    values are the reference's own."""
    order = order_of(program)
    hazards = hazards_of(program, order)
    assert not hazards, str(hazards[0])
    reference = Interpreter(graph, s.target.numerics)
    wanted = [reference.run(coded(graph, feed), keep=lambda _: True) for feed in s.feeds]
    want = {v: np.stack([w[v] for w in wanted]) for v in wanted[0]}
    entries = program.meta["values"]
    given = {*graph.inputs, *(o for n in graph.nodes if not n.is_integer for o in n.outputs)}
    watch = [v for v in entries if v not in given]
    inside = [v for v in program.taps.values if v not in entries]
    machine = SimulatedMachine(
        program, len(s.feeds), watch=[*watch, *inside], order=order, exact_only=exact_only
    )
    for entry in program.meta["inputs"]:
        if entry["name"] in entries:
            machine.write(entry["name"], want[entry["name"]])
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            machine.run(step["segment"])
        for out in (
            [step["out"]] if step["kind"] == "quantize" else step["outputs"] if step["kind"] == "host" else []
        ):
            if out in entries:
                machine.write(out, want[out])
    for value in watch:
        np.testing.assert_array_equal(machine.seen[value], want[value], err_msg=value)
    for value in inside:
        shadow = machine.shadows[value]
        assert shadow.torn is None and shadow.seen.any(), value
        np.testing.assert_array_equal(
            shadow.array[:, shadow.seen], want[value][:, shadow.seen], err_msg=value
        )
    return len(watch) + len(inside)
