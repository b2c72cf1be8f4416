"""From a quantised graph and its plan to a program: segments in order, commands, constants, metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npuflow.base.errors import InternalError
from npuflow.engine.allocate import Ring
from npuflow.engine.codegen_commands import CommandList
from npuflow.engine.codegen_consts import ConstPool
from npuflow.engine.codegen_data import Data, lay_out
from npuflow.engine.codegen_moves import emit_moves
from npuflow.engine.codegen_tiles import Bench, emit_layer
from npuflow.engine.cost import Machine
from npuflow.engine.partition import Segment, host_model, host_steps, segments
from npuflow.engine.program import Program, fingerprint, target_meta
from npuflow.engine.tiling import Plan, moves_of
from npuflow.engine.tiling_model import describe
from npuflow.engine.tiling_moves import staging_bytes
from npuflow.engine.tiling_views import Views, views_of
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, Node
from npuflow.ir.types import QuantType


@dataclass
class _Output:
    """What the segments add up to."""

    bench: Bench
    steps: list[dict[str, Any]]
    hosts: list[bytes]
    written: dict[str, int]                # value -> last node that stores into it
    macs: dict[int, int]


def generate(graph: Graph, plan: Plan, target: Target, name: str = "") -> Program:
    """The program of a planned network."""
    parts = segments(graph)
    moves = moves_of(graph)
    index = {id(n): i for i, n in enumerate(graph.nodes)}
    order = [(index[id(n)], n) for p in parts for n in p.nodes]
    views = views_of(graph, [(i, n) for i, n in order if i in moves], moves)
    data = lay_out(views, *_lifetimes(graph, parts), target.memory)
    commands = CommandList(0, target.dma.channels)
    ring = Ring(target.memory.local_bytes, target.memory.local_align)
    bench = Bench(commands, ring, ConstPool(target.memory.burst), data, target.numerics)
    out = _Output(bench, [], [], {}, {})
    machine = Machine(target.compute, target.memory, target.dma)
    choices = {g.nodes[0]: g.choice for g in plan.groups}
    segment = 0
    for part in parts:
        if part.kind == "host":
            _host(graph, part, out)
            continue
        first = len(commands.commands)
        commands.starts.add(first)
        for node in part.nodes:
            number = index[id(node)]
            site = graph.site(node)
            if number in moves:
                live = [m for n, m in enumerate(moves[number]) if (number, n) not in views.saved]
                emit_moves(bench, site, live, staging_bytes(machine), number)
            else:
                choice = choices.get(number)
                if choice is None:
                    raise InternalError(f"the plan does not tile {node.name}")
                layer = describe(site, target.numerics)
                out.macs[number] = layer.space.total_macs
                emit_layer(bench, site, layer, choice, number)
            for value_id in node.outputs:
                out.written[views.root(value_id)[0]] = number
        count = len(commands.commands) - first
        idle = [0] * (target.compute.cores - 1)
        out.steps.append({"kind": "npu", "segment": segment, "first": [first, *idle], "count": [count, *idle]})
        segment += 1
    return _program(graph, plan, target, name, out, views)


def _lifetimes(graph: Graph, parts: Sequence[Segment]) -> tuple[dict[str, int], dict[str, int]]:
    """Step of birth and of last use of every integer value in DATA."""
    born: dict[str, int] = {}
    dies: dict[str, int] = {}
    step = 0
    for part in parts:
        for node in part.nodes:
            step += 1
            for value_id in node.inputs:
                if value_id in born:
                    dies[value_id] = step
            for value_id in node.outputs:
                if value_id and graph.values[value_id].quant is not None and graph.values[value_id].const is None:
                    born[value_id] = dies[value_id] = step
    for value_id in graph.inputs:
        if graph.values[value_id].quant is not None:
            born[value_id] = 0
            dies.setdefault(value_id, 0)
            readers = [i for i, n in enumerate(n for p in parts for n in p.nodes) if value_id in n.inputs]
            dies[value_id] = max((i + 1 for i in readers), default=0)
    for value_id in graph.outputs:
        if value_id in born:
            dies[value_id] = step + 1
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
             "sizes": dict(g.choice.sizes) if g.choice else {}, "order": list(g.choice.order) if g.choice else []}
            for g in plan.groups
        ],
        "cycles": plan.cycles, "bytes": plan.bytes, "bound_cycles": plan.bounds.cycles, "bound_bytes": plan.bounds.bytes,
        "bound_compute": plan.bounds.compute, "bound_traffic": plan.bounds.traffic, "roofline": plan.bounds.roofline,
    }  # fmt: skip


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
            "quant": quant_meta(value.quant), "node": written.get(views.root(value_id)[0]),
        }
        for value_id, value in graph.values.items()
        if value.quant is not None and value.const is None and value_id in data
    }  # fmt: skip


def _node(node: Node, macs: int) -> dict[str, Any]:
    name = node.op.onnx or type(node.op).__name__
    return {"name": node.name, "op": name, "origin": list(node.origin), "macs": macs, "outputs": list(node.outputs)}
