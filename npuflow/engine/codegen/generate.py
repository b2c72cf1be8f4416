"""From a quantised graph and its plan to a program: segments in order, commands, constants, metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from npuflow.base.errors import InternalError
from npuflow.engine.allocate import Life
from npuflow.engine.codegen.commands import CommandList
from npuflow.engine.codegen.consts import ConstPool
from npuflow.engine.codegen.data import Data, lay_out
from npuflow.engine.codegen.groups import GroupEmitter, Residents
from npuflow.engine.codegen.in_place import in_place
from npuflow.engine.codegen.moves import emit_moves
from npuflow.engine.codegen.share import share_loads
from npuflow.engine.codegen.slots import merge
from npuflow.engine.codegen.tiles import Bench
from npuflow.engine.host import Work, host_work
from npuflow.engine.partition import Segment, host_model, host_steps, segments
from npuflow.engine.program.container import Program, fingerprint, target_meta
from npuflow.engine.program.taps import Tapped, Taps, encode_taps
from npuflow.engine.schedule.build import schedule_of
from npuflow.engine.schedule.jobs import Places
from npuflow.engine.schedule.time import ScheduleTime, Terms, time_of
from npuflow.engine.tiling.banks import set_apart
from npuflow.engine.tiling.borders import Spread, loaded, spreads
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.frame import Frame, Topology
from npuflow.engine.tiling.local import Local, lay_local
from npuflow.engine.tiling.moves import staging_bytes
from npuflow.engine.tiling.plan import Plan
from npuflow.engine.tiling.search import Costs
from npuflow.engine.tiling.views import Views, views_of
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, Node
from npuflow.ir.movement import reach
from npuflow.ir.onnx_types import UNRANKED
from npuflow.ir.op import Move
from npuflow.ir.space import elements
from npuflow.ir.types import QuantType


@dataclass
class _Output:
    """What the segments add up to."""

    benches: tuple[Bench, ...]             # by core
    steps: list[dict[str, Any]]
    hosts: list[bytes]
    written: dict[str, int]                # value -> node whose stores complete it
    stored: dict[str, list[tuple[int, int, int]]]   # bytes that values share, by owner -> (first, end, node), as stored
    macs: dict[int, int]
    residents: tuple[Residents, ...]
    busy: set[int] = field(default_factory=set)     # cores that used external memory since they last met
    fresh: set[str] = field(default_factory=set)    # values stored since then
    barriers: int = 0
    spread: Mapping[str, Spread] = field(default_factory=dict)
    shared: list[int] = field(default_factory=list)     # commands of each core up to the last meeting; none: loads are not shared

    def counts(self) -> list[int]:
        return [len(b.commands.commands) for b in self.benches]


def generate(graph: Graph, plan: Plan, target: Target, name: str = "") -> Program:
    """The program of a planned network."""
    parts = segments(graph)
    machine = Machine(target.compute, target.memory, target.dma)
    topology = Topology(graph, machine, target.numerics)
    moves = topology.moving
    index = {id(n): i for i, n in enumerate(graph.nodes)}
    order = [(index[id(n)], n) for p in parts for n in p.nodes]
    views = views_of(graph, [(i, n) for i, n in order if i in moves], moves)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    in_data = _in_data(graph, frames)
    spread = spreads(frames, plan.kept, target.compute.cores)
    steps = _steps(graph, parts, plan)
    borders = _borders(spread, frames, steps)
    born, dies = _lifetimes(graph, steps, in_data)
    homes = in_place(frames, views, born, dies)
    lives, layout = lay_out(views, born, dies, borders, target.memory, plan.allocation, homes)
    consts = ConstPool(target.memory.burst)
    benches = tuple(
        Bench(CommandList(core, target.dma.channels), consts, Data(views, layout, lives, homes), target.numerics)
        for core in range(target.compute.cores)
    )
    data = benches[0].data
    whole = {v: (views.root(v)[0], data.address(v)) for v in graph.values if v in data}
    places = Places({**whole, **{b.name: (b.name, layout.addresses[b.name]) for b in borders}}, views.saved)
    local = lay_local(frames, plan.kept, machine, method=plan.allocation)
    closed = time_of(schedule_of(frames, local, machine, places), machine)
    if target.memory.bank_ports:
        moved = set_apart(local, frames, machine)
        again = time_of(schedule_of(frames, moved, machine, places), machine)
        if again.cycles <= closed.cycles:                 # nothing waits for its bytes longer
            local, closed = moved, again
    out = _Output(benches, [], [], {}, {}, {}, tuple(Residents() for _ in benches), spread=spread)
    groups = {f.group.nodes[0]: (g, f) for g, f in enumerate(frames)}
    done: set[int] = set()
    segment = 0
    for part in parts:
        if part.kind == "host":
            _host(graph, part, out)
            continue
        first = out.counts()
        for bench in benches:
            bench.commands.starts.add(len(bench.commands.commands))
        out.busy, out.fresh = set(), set()
        out.shared = first if target.dma.multicast else []
        for node in part.nodes:
            number = index[id(node)]
            if number in done:
                continue
            if number not in groups:
                raise InternalError(f"the plan does not hold {node.name}", code="NF-INTERNAL-013")
            done.update(groups[number][1].group.nodes)
            _group(*groups[number], views, local, machine, out)
        _share(out)
        count = [b - a for a, b in zip(first, out.counts(), strict=True)]
        out.steps.append({"kind": "npu", "segment": segment, "first": first, "count": count})
        segment += 1
    return _program(graph, plan, target, name, out, views, local, closed)


def _group(number: int, frame: Frame, views: Views, local: Local, machine: Machine, out: _Output) -> None:
    """The commands of one group on all its cores."""
    group, topology = frame.group, frame.topology
    used = set(range(group.cores[1])) | {c for c in range(len(out.benches)) if loaded(out.spread, number, c)}
    if len(out.busy | used) > 1 and out.busy:
        _meet(group.nodes[0], out)
    before = out.counts()
    live = None
    if frame.moves:
        node = group.nodes[0]
        live = [m for n, m in enumerate(topology.moving[node]) if (node, n) not in views.saved]
        slots = local.slots(f"{number}.move", 2)
        size = topology.staging(node, machine)
        emit_moves(out.benches[0], topology.site(node), live, staging_bytes(machine), slots, size, node)
    else:
        for core in sorted(used):
            bench, residents = out.benches[core], out.residents[core]
            emitter = GroupEmitter(bench, frame, number, core, local, residents, machine.memory.slot_align, out.spread)
            emitter.fetch()
            if core < group.cores[1]:
                emitter.emit()
        out.macs.update({n: topology.space(n).total_macs for n in group.nodes})
    out.busy |= {c for c, (a, b) in enumerate(zip(before, out.counts(), strict=True)) if a < b}
    for member in group.nodes:
        out.fresh.update(o for o in topology.graph.nodes[member].outputs if o)
        _note_stores(topology.graph.nodes[member], member, live, views, out)


def _meet(node: int, out: _Output) -> None:
    """A barrier of all cores; what they stored before is seen behind it."""
    mask = (1 << len(out.benches)) - 1
    _share(out)
    for bench in out.benches:
        count = bench.commands.barrier(out.barriers, mask, node)
        for value in out.fresh:
            if value in bench.data:
                merge(bench.data.of(value)[0].shared, {bench.commands.channels: count})
            for border in out.spread[value].borders if value in out.spread else ():
                merge(bench.data.storage(border.name).shared, {bench.commands.channels: count})
    out.barriers += 1
    out.busy, out.fresh = set(), set()


def _share(out: _Output) -> None:
    """What several cores load alike since they last met, they load together."""
    if out.shared:
        share_loads([b.commands for b in out.benches], out.shared)
        out.shared = out.counts()


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


def _note_stores(node: Node, number: int, moves: Sequence[Move] | None, views: Views, out: _Output) -> None:
    """Which node's stores complete each output: of a view, the last one that stored into its own bytes, if any did."""
    for position, value_id in enumerate(node.outputs):
        if not value_id:
            continue
        (root, at), size = views.root(value_id), views.bytes(value_id)
        stored = out.stored.setdefault(root, [])
        if moves is None:
            stored.append((at, at + size, number))
        item = views.item(value_id)
        for move in (m for m in moves or () if m.output == position):
            low, high = reach(move.dims, move.dst_strides)
            stored.append((at + (move.dst_offset + low) * item, at + (move.dst_offset + high + 1) * item, number))
        writers = [n for first, end, n in stored if first < at + size and at < end]
        if writers:
            out.written[value_id] = writers[-1]


def _steps(graph: Graph, parts: Sequence[Segment], plan: Plan) -> dict[int, int]:
    """When each node runs; a group is one step."""
    first_of = {n: g.nodes[0] for g in plan.groups for n in g.nodes}
    index = {id(n): i for i, n in enumerate(graph.nodes)}
    step_of: dict[int, int] = {}
    for node in (n for p in parts for n in p.nodes):
        lead = first_of.get(index[id(node)], index[id(node)])
        step_of[index[id(node)]] = step_of[lead] if lead in step_of else len(step_of) + 1
    return step_of


def _borders(spread: Mapping[str, Spread], frames: Sequence[Frame], step_of: Mapping[int, int]) -> list[Life]:
    """What cores hand each other, from the group that makes it to the one that reads it."""
    found = []
    for s in spread.values():
        first, last = (step_of[frames[g].group.nodes[0]] for g in (s.maker, s.reader)) if s.borders else (0, 0)
        found += [Life(b.name, elements(b.box) * frames[s.maker].item(b.value), first, last) for b in s.borders]
    return found


def _lifetimes(graph: Graph, step_of: Mapping[int, int], kept: Collection[str]) -> tuple[dict[str, int], dict[str, int]]:
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
                {"kind": "host", "model": len(out.hosts), "inputs": list(step.inputs), "outputs": list(step.outputs)}
            )
            out.hosts.append(host_model(graph, step))
            continue
        (node,) = step.nodes
        coded = node.outputs[0] if step.kind == "quantize" else node.inputs[0]
        quant = graph.values[coded].quant
        assert quant is not None
        out.steps.append(
            {"kind": step.kind, "value": node.inputs[0], "out": node.outputs[0], "quant": quant_meta(quant)}
        )


def quant_meta(quant: QuantType) -> dict[str, Any]:
    found = asdict(quant)
    return {**found, "scale": list(quant.scale), "zero_point": list(quant.zero_point)}


def _program(
    graph: Graph, plan: Plan, target: Target, name: str, out: _Output, views: Views, local: Local, closed: ScheduleTime
) -> Program:
    bench, data = out.benches[0], out.benches[0].data
    const = bench.consts.to_bytes()
    host = host_work(graph)
    meta = {
        "name": name,
        "target": target_meta(target),
        "inputs": [_port(graph, i) for i in graph.inputs],
        "outputs": [_port(graph, o) for o in graph.outputs],
        "values": _values(graph, data, views, out.written),
        "steps": out.steps,
        "nodes": [_node(n, out.macs.get(i, 0), host.get(i)) for i, n in enumerate(graph.nodes)],
        "data_bytes": data.layout.total,
        "const_bytes": len(const),
        "local_bytes": target.memory.local_bytes,
        "memory": {
            "lives": [[v.name, data.layout.addresses[v.name], v.size, v.first, v.last] for v in data.lives],
            "bound": data.layout.bound, "in_place": data.homes,
            "const_given": bench.consts.given,
            "local_used": local.total, "local_bound": local.layout.bound,
        },
        "plan": _plan_meta(plan, closed),
    }
    words = [b.commands.words() for b in out.benches]
    return Program(fingerprint(target), meta, tuple(words), const, tuple(out.hosts), _taps(graph, out.benches))


def _taps(graph: Graph, benches: Sequence[Bench]) -> bytes:
    """What the emitters noted of values in local memory."""
    shown = {tap.value for bench in benches for tap in bench.taps}
    values = {
        o: Tapped(graph.type(o).shape, graph.values[o].dtype, number, quant_meta(quant))
        for number, node in enumerate(graph.nodes)
        for o in node.outputs
        if o in shown and (quant := graph.values[o].quant) is not None
    }
    return encode_taps(Taps(values, tuple(tuple(b.taps) for b in benches)))


def _plan_meta(plan: Plan, closed: ScheduleTime) -> dict[str, Any]:
    """The closed form's figures, for profiles and for the comparison with the clock; `searched`: what the search went by."""
    return {
        "groups": [
            {"nodes": list(g.nodes), "cycles": span, "bytes": t.bytes, "bound": g.costs.bound_cycles,
             "cores": g.cores[1], "strips": [list(c) for c in g.strips], "held": len(g.held),
             "sizes": dict(g.choice.sizes) if g.choice else {}, "order": list(g.choice.order) if g.choice else [],
             "terms": _terms(t), "searched": _searched(g.costs)}
            for g, t, span in zip(plan.groups, closed.terms, closed.spans, strict=True)
        ],
        "cycles": closed.cycles, "bytes": sum(t.bytes for t in closed.terms), "searched": plan.cycles,
        "bound_cycles": plan.bounds.cycles, "bound_bytes": plan.bounds.bytes,
        "bound_compute": plan.bounds.compute, "bound_traffic": plan.bounds.traffic, "roofline": plan.bounds.roofline,
    }  # fmt: skip


def _searched(c: Costs) -> dict[str, float]:
    """The same by the sums that the search ranks candidates by."""
    return {"cycles": c.cycles, "array": c.tensor, "vector": c.vector, "set-up": c.load + c.store - c.bus, "bus": c.bus}


def _terms(t: Terms) -> dict[str, float]:
    """What the closed form adds up, in cycles of the engine or bus that spends them; profiles set the clock's beside it."""
    return {"array": t.array, "vector": t.vector, "set-up": t.set_up, "bus": t.bus}


def _port(graph: Graph, value_id: str) -> dict[str, Any]:
    value = graph.values[value_id]
    return {
        "name": value_id, "shape": None if value.type.shape == UNRANKED else list(value.type.shape), "dtype": value.dtype,
        "quant": quant_meta(value.quant) if value.quant else None,
    }  # fmt: skip


def _values(graph: Graph, data: Data, views: Views, written: Mapping[str, int]) -> dict[str, Any]:
    return {
        value_id: {
            "address": data.address(value_id), "shape": list(value.type.shape), "dtype": value.dtype,
            "quant": quant_meta(value.quant), "node": written.get(value_id),
            "owner": views.root(value_id)[0],
        }
        for value_id, value in graph.values.items()
        if value.quant is not None and value.const is None and value_id in data
    }  # fmt: skip


def _node(node: Node, macs: int, host: Work | None) -> dict[str, Any]:
    """`macs` are the NPU's; `host`: what the host does for the node, where it costs time."""
    name = getattr(node.op, "op_type", "") or node.op.onnx or type(node.op).__name__
    names = {"name": node.name, "op": name, "origin": list(node.origin)}
    found: dict[str, Any] = {**names, "macs": macs, "outputs": list(node.outputs)}
    return found if host is None else {**found, "host": asdict(host)}
