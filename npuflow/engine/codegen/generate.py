"""From a quantised graph and its plan to a program: segments in order, commands, constants, metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npuflow.base.errors import InternalError
from npuflow.engine.allocate import Ring
from npuflow.engine.codegen.commands import CommandList
from npuflow.engine.codegen.consts import ConstPool
from npuflow.engine.codegen.data import Data, lay_out
from npuflow.engine.codegen.moves import emit_moves
from npuflow.engine.codegen.tiles import Bench, emit_group
from npuflow.engine.partition import Segment, host_model, host_steps, segments
from npuflow.engine.program.container import Program, fingerprint, target_meta
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.model import describe, space_of
from npuflow.engine.tiling.moves import staging_bytes
from npuflow.engine.tiling.plan import Group, Plan, moves_of, stored
from npuflow.engine.tiling.search import Costs
from npuflow.engine.tiling.views import Views, views_of
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, Node
from npuflow.ir.movement import reach
from npuflow.ir.op import Move
from npuflow.ir.types import QuantType


@dataclass
class _Output:
    """What the segments add up to."""

    bench: Bench
    steps: list[dict[str, Any]]
    hosts: list[bytes]
    written: dict[str, int]                # value -> node whose stores complete it
    stored: dict[str, list[tuple[int, int, int]]]   # bytes that values share, by owner -> (first, end, node), as stored
    macs: dict[int, int]


def generate(graph: Graph, plan: Plan, target: Target, name: str = "") -> Program:
    """The program of a planned network."""
    parts = segments(graph)
    moves = moves_of(graph)
    index = {id(n): i for i, n in enumerate(graph.nodes)}
    order = [(index[id(n)], n) for p in parts for n in p.nodes]
    views = views_of(graph, [(i, n) for i, n in order if i in moves], moves)
    kept = stored(graph, plan.groups)
    data = lay_out(views, *_lifetimes(graph, parts, plan, kept), target.memory)
    commands = CommandList(0, target.dma.channels)
    ring = Ring(target.memory.local_bytes, target.memory.slot_align)
    bench = Bench(commands, ring, ConstPool(target.memory.burst), data, target.numerics)
    out = _Output(bench, [], [], {}, {}, {})
    machine = Machine(target.compute, target.memory, target.dma)
    groups = {g.nodes[0]: g for g in plan.groups}
    done: set[int] = set()
    segment = 0
    for part in parts:
        if part.kind == "host":
            _host(graph, part, out)
            continue
        first = len(commands.commands)
        commands.starts.add(first)
        for node in part.nodes:
            number = index[id(node)]
            if number in done:
                continue
            group = groups.get(number)
            if group is None:
                raise InternalError(f"the plan does not hold {node.name}")
            done.update(group.nodes)
            if number in moves:
                live = [m for n, m in enumerate(moves[number]) if (number, n) not in views.saved]
                emit_moves(bench, graph.site(node), live, staging_bytes(machine), number)
            else:
                live = None
                _tiled(graph, group, kept, target, out)
            for member in group.nodes:
                _note_stores(graph.nodes[member], member, live, views, out)
        count = len(commands.commands) - first
        idle = [0] * (target.compute.cores - 1)
        out.steps.append({"kind": "npu", "segment": segment, "first": [first, *idle], "count": [count, *idle]})
        segment += 1
    return _program(graph, plan, target, name, out, views)


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


def _tiled(graph: Graph, group: Group, kept: Collection[str], target: Target, out: _Output) -> None:
    """The commands of a group of tiled nodes."""
    sites = [graph.site(graph.nodes[n]) for n in group.nodes]
    spaces = [space_of(s, target.numerics) for s in sites]
    for number, space in zip(group.nodes, spaces, strict=True):
        out.macs[number] = space.total_macs
    assert group.choice is not None
    emit_group(out.bench, sites, spaces, describe(sites, target.numerics, kept), group.choice, group.nodes)


def _lifetimes(
    graph: Graph, parts: Sequence[Segment], plan: Plan, kept: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Step of birth and of last use of every integer value in DATA; a group is one step."""
    first_of = {n: g.nodes[0] for g in plan.groups for n in g.nodes}
    index = {id(n): i for i, n in enumerate(graph.nodes)}
    step_of: dict[int, int] = {}
    for node in (n for p in parts for n in p.nodes):
        lead = first_of.get(index[id(node)], index[id(node)])
        step_of[index[id(node)]] = step_of[lead] if lead in step_of else len(step_of) + 1
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
    graph: Graph, plan: Plan, target: Target, name: str, out: _Output, views: Views
) -> Program:
    bench, data = out.bench, out.bench.data
    const = bench.consts.to_bytes()
    meta = {
        "name": name,
        "target": target_meta(target),
        "inputs": [_port(graph, i) for i in graph.inputs],
        "outputs": [_port(graph, o) for o in graph.outputs],
        "values": _values(graph, data, views, out.written),
        "steps": out.steps,
        "nodes": [_node(n, out.macs.get(i, 0)) for i, n in enumerate(graph.nodes)],
        "data_bytes": data.layout.total,
        "const_bytes": len(const),
        "local_bytes": target.memory.local_bytes,
        "memory": {
            "lives": [[v.name, data.layout.addresses[v.name], v.size, v.first, v.last] for v in data.lives],
            "bound": data.layout.bound,
            "const_given": bench.consts.given,
        },
        "plan": _plan_meta(plan),
    }
    words = [bench.commands.words()]
    words += [words[0][:0]] * (target.compute.cores - 1)
    return Program(fingerprint(target), meta, tuple(words), const, tuple(out.hosts))


def _plan_meta(plan: Plan) -> dict[str, Any]:
    """The closed form's figures, for profiles and for the comparison with the clock."""
    return {
        "groups": [
            {"nodes": list(g.nodes), "cycles": g.costs.cycles, "bytes": g.costs.bytes, "bound": g.costs.bound_cycles,
             "sizes": dict(g.choice.sizes) if g.choice else {}, "order": list(g.choice.order) if g.choice else [],
             "terms": _terms(g.costs)}
            for g in plan.groups
        ],
        "cycles": plan.cycles, "bytes": plan.bytes, "bound_cycles": plan.bounds.cycles, "bound_bytes": plan.bounds.bytes,
        "bound_compute": plan.bounds.compute, "bound_traffic": plan.bounds.traffic, "roofline": plan.bounds.roofline,
    }  # fmt: skip


def _terms(costs: Costs) -> dict[str, float]:
    """What the closed form adds up, in cycles of the engine or bus that spends them; profiles set the clock's beside it."""
    set_up = costs.load + costs.store - costs.bus
    return {"array": costs.tensor, "vector": costs.vector, "set-up": set_up, "bus": costs.bus}


def _port(graph: Graph, value_id: str) -> dict[str, Any]:
    value = graph.values[value_id]
    return {
        "name": value_id, "shape": list(value.type.shape), "dtype": value.dtype,
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


def _node(node: Node, macs: int) -> dict[str, Any]:
    name = node.op.onnx or type(node.op).__name__
    return {"name": node.name, "op": name, "origin": list(node.origin), "macs": macs, "outputs": list(node.outputs)}
