"""A whole network on a target, from its float graph to simulated integers: what every
target must do with every model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuflow.base.errors import NpuflowError
from npuflow.checks.agreement import compare
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.export import export_model
from npuflow.place.partition import npu_share
from npuflow.place.place import op_name, place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.quantise.graph import Note
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare as compare_forms
from npuflow.run.interpret import host_session
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.sim.hazards import hazards_of
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.target import scheme


@dataclass(frozen=True)
class Subject:
    """A float network with one random sample, and the ranges that its values have there."""

    name: str
    graph: Graph
    feeds: Mapping[str, Array]
    ranges: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Verdict:
    """How one network went on one target. `reason` is empty where all is well; `host`: why
    nodes run there, with counts."""

    macs: int = 0
    share: float = 0.0
    integer: int = 0
    nodes: int = 0
    groups: int = 0
    commands: int = 0
    tensors: int = 0
    cycles: float = 0.0
    bound: float = 0.0
    moved: float = 0.0
    schedule: float = 0.0
    host: tuple[str, ...] = field(default=())
    reason: str = ""


def subject(name: str, graph: Graph, seed: int = 1) -> Subject:
    """One random sample through the float network."""
    rng = np.random.default_rng(seed)
    feeds = {i: _drawn(rng, graph.type(i)) for i in graph.inputs}
    names = [o for n in graph.nodes for o in n.outputs if o and graph.type(o).dtype == "float32"]
    found = dict(zip(names, host_session(export_model(graph, names)).run(names, feeds), strict=True))
    found |= {i: a for i, a in feeds.items() if a.dtype == np.float32}
    return Subject(name, graph, feeds, {n: (float(a.min()), float(a.max())) for n, a in found.items()})


def _drawn(rng: np.random.Generator, kind: TensorType) -> Array:
    """Standard normal; zeros and ones where the network takes integers."""
    real = kind.dtype.startswith("float")
    drawn = rng.normal(size=kind.shape) if real else rng.integers(0, 2, kind.shape)
    return drawn.astype(kind.dtype)


def judge(one: Subject, target: Target, level: int = 3, *, exact: bool = True) -> Verdict:
    """Placed, quantised, planned, generated and read back; no hazard, and every integer tensor of
    the sample as the reference has it. That no addresses overlap is proved while it is planned.
    `exact` False: nothing is run."""
    placement = place(one.graph, target)
    host = [f"{op} ({count}): {reason}" for (op, reason), count in placement.reasons().most_common()]
    macs, nodes = graph_macs(one.graph), len(one.graph.nodes)
    try:
        quantised = quantize_graph(
            one.graph,
            placement,
            one.ranges,
            scheme(target),
            target.numerics,
        )
        done, left = quantised.graph, [n for n in quantised.notes if n.on_host]
        host += [f"{name} ({count}): {reason}" for (name, reason), count in _counted(done, left).items()]
        plan = plan_network(done, Machine(target.compute, target.memory, target.dma), target.numerics, level)
        program = Program.from_bytes(generate(done, plan, target).to_bytes())
    except NpuflowError as fault:
        return Verdict(macs, placement.share, 0, nodes, host=tuple(host), reason=f"refused: {fault}")
    hazards = hazards_of(program, order_of(program))
    checks = compare(done, program, target.numerics, [one.feeds]) if exact else ()
    wrong = [c for c in checks if c.different]
    unseen = [c.value for c in checks if not c.elements]
    reason = f"hazard: {hazards[0]}" if hazards else ""
    reason = reason or (f"{len(wrong)} tensors differ, first {wrong[0].value}" if wrong else "")
    reason = reason or (f"{len(unseen)} tensors not seen, first {unseen[0]}" if unseen else "")
    measured = profile(program)
    total, forms = measured.totals(), compare_forms(measured)
    return Verdict(
        macs,
        npu_share(done, macs),
        sum(n.is_integer for n in done.nodes),
        len(done.nodes),
        len(plan.groups),
        total["commands"],
        sum(1 for c in checks if c.elements),
        total["npu_cycles"],
        total["bound_cycles"],
        total["bytes"],
        forms[0].error if forms else 0.0,
        tuple(host),
        reason,
    )


def _counted(graph: Graph, notes: Sequence[Note]) -> Counter[tuple[str, str]]:
    """(operator, the kind of reason) of the nodes that quantisation left to the host."""
    ops = {n.name: op_name(n) for n in graph.nodes}
    return Counter(
        (ops.get(n.node, "node"), re.sub(r"[\d.e+-]*\d", "N", n.reason).split(";")[0]) for n in notes
    )
