"""From a quantised graph and its plan to a program: segments in order, commands, constants, metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from npuflow.base.errors import InternalError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.moves import reach
from npuflow.ir.op import Node
from npuflow.ir.queries import title
from npuflow.ir.space import elements
from npuflow.ir.types import UNRANKED, GroupedType, QuantType
from npuflow.place.host import HostWork, host_work
from npuflow.place.partition import Segment, host_model, host_steps, segments
from npuflow.program.codegen.commands import CommandList, Pending
from npuflow.program.codegen.consts import ConstPool
from npuflow.program.codegen.core import CoreProgram
from npuflow.program.codegen.data import DataStorage, lay_out
from npuflow.program.codegen.in_place import in_place
from npuflow.program.codegen.tiles import COMPUTE
from npuflow.program.codegen.transfers import share_loads, transfer
from npuflow.program.container import Program, fingerprint, target_meta, without_group_products
from npuflow.program.taps import ProgramTaps, Tapped, encode_taps
from npuflow.schedule.accesses import merge
from npuflow.schedule.allocate import Lifetime
from npuflow.schedule.bank_layout import set_apart
from npuflow.schedule.borders import spreads
from npuflow.schedule.build import in_turn, schedule_of
from npuflow.schedule.choice import Costs
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import Spread
from npuflow.schedule.jobs import Barrier, Phase, Schedule
from npuflow.schedule.local import Local, lay_local
from npuflow.schedule.machine import Machine
from npuflow.schedule.time import CycleBreakdown, ScheduleTime, time_of
from npuflow.schedule.views import Views
from npuflow.search.plan import TilingPlan


@dataclass
class _Output:
    """What the segments add up to."""

    cores: tuple[CoreProgram, ...]
    steps: list[dict[str, Any]] = field(default_factory=list)
    hosts: list[bytes] = field(default_factory=list)
    barriers: int = 0

    def counts(self) -> list[int]:
        return [len(c.commands.commands) for c in self.cores]


def generate(graph: Graph, plan: TilingPlan, target: Target, name: str = "") -> Program:
    """The program of a planned network."""
    parts = segments(graph)
    machine = Machine(target.compute, target.memory, target.dma)
    topology = Topology(graph, machine, target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    missing = set(topology.order) - {n for g in plan.groups for n in g.nodes}
    if missing:
        raise InternalError(
            f"the plan does not hold {graph.nodes[min(missing)].name}", code="NF-INTERNAL-013"
        )
    data = _data(topology, plan, frames)
    local, schedule, time = _scheduled(frames, plan, machine, data[0])
    consts = ConstPool(target.memory.burst)
    out = _Output(tuple(
        CoreProgram(CommandList(c, target.dma.channels), consts, own, target.numerics, topology.maker)
        for c, own in enumerate(data)
    ))
    phases: dict[int, list[Phase]] = {}
    for phase in schedule.phases:
        phases.setdefault(phase.segment, []).append(phase)
    for number, part in enumerate(parts):
        if part.kind == "host":
            _host(graph, part, out)
            continue
        first = out.counts()
        for core in out.cores:
            core.commands.starts.add(len(core.commands.commands))
        for phase in phases.get(number, ()):
            _phase(phase, out)
        count = [b - a for a, b in zip(first, out.counts(), strict=True)]
        segment = sum(step["kind"] == "npu" for step in out.steps)
        out.steps.append({"kind": "npu", "segment": segment, "first": first, "count": count})
    return _program(topology, target, name, out, frames, local, _plan_meta(plan, time))


def _data(topology: Topology, plan: TilingPlan, frames: Sequence[Frame]) -> list[DataStorage]:
    """Where values lie in external memory, and by core who has touched them."""
    memory, cores = topology.machine.memory, topology.machine.compute.cores
    spread, steps = spreads(frames, plan.kept, cores), _steps(topology, plan)
    borders = _borders(spread, frames, steps)
    born, dies = _lifetimes(topology.graph, steps, _in_data(topology.graph, frames))
    homes = in_place(frames, topology.views, born, dies)
    lives, layout = lay_out(topology.views, born, dies, borders, memory, plan.allocation, homes)
    return [DataStorage(topology.views, layout, lives, homes) for _ in range(cores)]


def _scheduled(
    frames: Sequence[Frame], plan: TilingPlan, machine: Machine, data: DataStorage
) -> tuple[Local, Schedule, ScheduleTime]:
    """The jobs and their time. Where banks have ports, what lies in one bank is set apart
    if that makes it no slower."""
    places = data.places()
    local = lay_local(frames, plan.kept, machine, method=plan.allocation)
    schedule = schedule_of(frames, local, machine, places)
    time = time_of(schedule, machine)
    if machine.memory.bank_ports:
        moved = set_apart(local, frames, machine)
        other = schedule_of(frames, moved, machine, places)
        again = time_of(other, machine)
        if again.cycles <= time.cycles:
            return moved, other, again
    return local, schedule, time


def _phase(phase: Phase, out: _Output) -> None:
    """The commands of all jobs between two barriers."""
    if phase.barrier is not None:
        _barrier(phase.barrier, out)
    loads: dict[int, Pending] = {}
    for number, job in enumerate(phase.jobs):
        core = out.cores[job.core]
        COMPUTE.get(type(job.what), transfer)(core, job)
        if job.key is not None:
            loads[number] = core.commands.commands[-1]
    share_loads(phase, loads)


def _barrier(barrier: Barrier, out: _Output) -> None:
    """All cores meet; what they stored before is seen behind it."""
    mask = (1 << len(out.cores)) - 1
    for core in out.cores:
        count = core.commands.barrier(out.barriers, mask, barrier.node)
        for value in barrier.seen:
            merge(core.data.of(value)[0].shared, {core.commands.queues.stores: count})
    out.barriers += 1


def _in_data(graph: Graph, frames: Sequence[Frame]) -> frozenset[str]:
    """Values that live in external memory: all but those that only local memory ever holds."""
    gone: set[str] = set()
    for frame in frames:
        if frame.moves:
            continue
        for n in frame.group.nodes:
            for o in graph.nodes[n].outputs:
                if o and (o not in frame.results or not frame.topology.wanted_in_data(o, frame.kept)):
                    gone.add(o)
    return frozenset(v for v in graph.values if v not in gone)


def _written(topology: Topology, frames: Sequence[Frame]) -> dict[str, int]:
    """Which node's stores complete each value: of a view, the last one that stored
    into its own bytes, if any did."""
    views, written = topology.views, dict[str, int]()
    # bytes that values share, by owner -> (first, end, node)
    stored: dict[str, list[tuple[int, int, int]]] = {}
    for _, frame in in_turn(frames):
        for number in frame.group.nodes:
            moves = topology.moving[number] if frame.moves else ()
            live = [m for n, m in enumerate(moves) if (number, n) not in views.saved]
            for position, value_id in enumerate(topology.graph.nodes[number].outputs):
                if not value_id:
                    continue
                (root, at), size, item = views.root(value_id), views.bytes(value_id), views.item(value_id)
                own = stored.setdefault(root, [])
                if not frame.moves:
                    own.append((at, at + size, number))
                for move in (m for m in live if m.output == position):
                    low, high = (
                        at + (move.dst_offset + end) * item for end in reach(move.dims, move.dst_strides)
                    )
                    own.append((low, high + item, number))
                writers = [n for first, end, n in own if first < at + size and at < end]
                if writers:
                    written[value_id] = writers[-1]
    return written


def _steps(topology: Topology, plan: TilingPlan) -> dict[int, int]:
    """When each node runs, of the host too; a group is one step."""
    first_of = {n: g.nodes[0] for g in plan.groups for n in g.nodes}
    step_of: dict[int, int] = {}
    for number in topology.everything:
        lead = first_of.get(number, number)
        step_of[number] = step_of[lead] if lead in step_of else len(step_of) + 1
    return step_of


def _borders(
    spread: Mapping[str, Spread], frames: Sequence[Frame], step_of: Mapping[int, int]
) -> list[Lifetime]:
    """What cores hand each other, from the group that makes it to the one that reads it."""
    found = []
    for s in spread.values():
        first, last = (
            (step_of[frames[g].group.nodes[0]] for g in (s.maker, s.reader)) if s.borders else (0, 0)
        )
        found += [
            Lifetime(b.name, elements(b.box) * frames[s.maker].item(b.value), first, last) for b in s.borders
        ]
    return found


def _lifetimes(
    graph: Graph, step_of: Mapping[int, int], kept: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Step of birth and of last use of every integer value in DATA."""
    born = {i: 0 for i in graph.inputs if graph.values[i].quant is not None}
    dies = dict(born)
    for number in sorted(step_of, key=lambda n: (step_of[n], n)):
        node, step = graph.nodes[number], step_of[number]
        for value_id in node.inputs:
            if value_id in born:
                dies[value_id] = max(dies[value_id], step)
        for value_id in node.outputs:
            value = graph.values.get(value_id)
            if value is not None and value.quant is not None and value.const is None and value_id in kept:
                born[value_id] = dies[value_id] = step
    last = max(step_of.values(), default=0) + 1
    dies.update({o: last for o in graph.outputs if o in born})
    return born, dies


def _host(graph: Graph, part: Segment, out: _Output) -> None:
    for step in host_steps(graph, part):
        if step.kind == "model":
            out.steps.append(
                {
                    "kind": "host",
                    "model": len(out.hosts),
                    "inputs": list(step.inputs),
                    "outputs": list(step.outputs),
                }
            )
            out.hosts.append(host_model(graph, step))
            continue
        (node,) = step.nodes
        coded = node.outputs[0] if step.kind == "quantize" else node.inputs[0]
        quant = graph.values[coded].quant
        assert quant is not None
        indices = [kept.below for kept in node.op.whole_numbers(graph.site(node)).values()]
        known = {"rows": min(indices)} if indices else {}
        ends = {"value": node.inputs[0], "out": node.outputs[0]}
        out.steps.append({"kind": step.kind, **ends, "quant": quant_meta(quant), **known})


def quant_meta(quant: QuantType) -> dict[str, Any]:
    found = asdict(quant)
    return {**found, "scale": list(quant.scale), "zero_point": list(quant.zero_point)}


def _program(
    topology: Topology,
    target: Target,
    name: str,
    out: _Output,
    frames: Sequence[Frame],
    local: Local,
    plan: Mapping[str, Any],
) -> Program:
    graph, consts, data = topology.graph, out.cores[0].consts, out.cores[0].data
    if not any(isinstance(v.quant, GroupedType) for v in graph.values.values()):
        target = without_group_products(target)
    const = consts.to_bytes()
    host = host_work(graph)
    macs = {n: topology.space(n).total_macs for f in frames if not f.moves for n in f.group.nodes}
    meta = {
        "name": name,
        "target": target_meta(target),
        "inputs": [_port(graph, i) for i in graph.inputs],
        "outputs": [_port(graph, o) for o in graph.outputs],
        **({"state": [list(pair) for pair in graph.state]} if graph.state else {}),
        "values": _values(graph, data, topology.views, _in_data(graph, frames), _written(topology, frames)),
        "steps": out.steps,
        "nodes": [_node(n, macs.get(i, 0), host.get(i)) for i, n in enumerate(graph.nodes)],
        "data_bytes": data.layout.total,
        "const_bytes": len(const),
        "local_bytes": target.memory.local_bytes,
        "memory": {
            "lives": [[v.name, data.layout.addresses[v.name], v.size, v.first, v.last] for v in data.lives],
            "bound": data.layout.bound, "in_place": data.homes,
            "const_given": consts.given,
            "local_used": local.total, "local_bound": local.layout.bound,
        },
        "plan": plan,
    }
    words = [c.commands.words() for c in out.cores]
    return Program(fingerprint(target), meta, tuple(words), const, tuple(out.hosts), _taps(graph, out.cores))


def _taps(graph: Graph, cores: Sequence[CoreProgram]) -> bytes:
    """What the emitters noted of values in local memory."""
    shown = {tap.value for core in cores for tap in core.taps}
    values = {
        o: Tapped(graph.type(o).shape, graph.values[o].dtype, number, quant_meta(quant))
        for number, node in enumerate(graph.nodes)
        for o in node.outputs
        if o in shown and (quant := graph.values[o].quant) is not None
    }
    return encode_taps(ProgramTaps(values, tuple(tuple(c.taps) for c in cores)))


def _plan_meta(plan: TilingPlan, time: ScheduleTime) -> dict[str, Any]:
    """What the schedule takes, for profiles and for the comparison with the clock;
    `searched`: by the search's estimate."""
    return {
        "groups": [
            {
                "nodes": list(g.nodes),
                "cycles": span,
                "bytes": t.bytes,
                "bound": g.costs.bound_cycles,
                "cores": g.cores[1],
                "strips": [list(c) for c in g.strips],
                "held": len(g.held),
                "sizes": dict(g.choice.sizes) if g.choice else {},
                "order": list(g.choice.order) if g.choice else [],
                "terms": _terms(t),
                "searched": _searched(g.costs),
            }
            for g, t, span in zip(plan.groups, time.terms, time.spans, strict=True)
        ],
        "cycles": time.cycles,
        "bytes": sum(t.bytes for t in time.terms),
        "searched": plan.cycles,
        "bound_cycles": plan.bounds.cycles,
        "bound_bytes": plan.bounds.bytes,
        "bound_compute": plan.bounds.compute,
        "bound_traffic": plan.bounds.traffic,
        "bound_chain": plan.bounds.chain,
        "bound_late": plan.bounds.late,
        "bound_alone": plan.bounds.alone,
        "roofline": plan.bounds.roofline,
    }


def _searched(c: Costs) -> dict[str, float]:
    """The same by the sums that the search ranks candidates by."""
    return {
        "cycles": c.cycles,
        "array": c.tensor,
        "vector": c.vector,
        "set-up": c.load + c.store - c.bus,
        "bus": c.bus,
    }


def _terms(t: CycleBreakdown) -> dict[str, float]:
    """What jobs add up to, in cycles of the engine or bus that spends them; profiles
    set the clock's beside it."""
    return {"array": t.array, "vector": t.vector, "set-up": t.set_up, "bus": t.bus}


def _port(graph: Graph, value_id: str) -> dict[str, Any]:
    value = graph.values[value_id]
    return {
        "name": value_id,
        "shape": None if value.type.shape == UNRANKED else list(value.type.shape),
        "dtype": value.dtype,
        "quant": quant_meta(value.quant) if value.quant else None,
    }


def _values(
    graph: Graph, data: DataStorage, views: Views, stored: Collection[str], written: Mapping[str, int]
) -> dict[str, Any]:
    """Where values lie. Of one that only local memory ever holds, others may have the bytes that it would."""
    return {
        value_id: {
            "address": data.address(value_id), "shape": list(value.type.shape), "dtype": value.dtype,
            "quant": quant_meta(value.quant), "node": written.get(value_id),
            "owner": views.root(value_id)[0],
        }
        for value_id, value in graph.values.items()
        if value.quant is not None and value.const is None and value_id in data and value_id in stored
    }


def _node(node: Node, macs: int, host: HostWork | None) -> dict[str, Any]:
    """`macs` are the NPU's; `host`: what the host does for the node, where it costs time."""
    names = {"name": node.name, "op": title(node), "origin": list(node.origin)}
    found: dict[str, Any] = {**names, "macs": macs, "outputs": list(node.outputs)}
    return found if host is None else {**found, "host": asdict(host)}
