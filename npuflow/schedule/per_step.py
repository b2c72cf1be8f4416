"""Products of all steps in front of a loop, made step by step in it.

What the input alone adds to a recurrent layer is one product in front of its loop. Its results go to external
memory and come back step by step, which the loop has to wait for. Made in the loop, the next step's product
runs while the vector unit is busy with this step's gates, where local memory has room for its weights, too.
How layers are cut decides no code: only plans and programs see such a graph.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, border, counted, every_loop, loops, side_of
from npuflow.ir.op import Node
from npuflow.ir.space import DimMap
from npuflow.ir.types import TensorType, Value
from npuflow.place.partition import is_npu
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import space_of

ANY = Numerics()                          # axes of operators do not depend on numbers


def step_products(graph: Graph, machine: Machine) -> list[list[tuple[str, ...]]]:
    """By loop which products in front of it may be made in it, by their results: each alone, the largest
    first, and all, where their constants have room beside the loop's own. Loops of most steps come first,
    those of inner loops in all steps of the outer one."""
    maker = {o: i for i, n in enumerate(graph.nodes) for o in n.outputs}
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for v in dict.fromkeys(node.inputs):
            readers[v] = readers.get(v, 0) + 1
    found = []
    outer = {one.name: loop.steps for loop in loops(graph) for one in loop.inner}
    for loop in sorted(every_loop(graph), key=lambda one: -one.steps * outer.get(one.name, 1)):
        room = machine.memory.local_bytes * machine.compute.cores
        room -= sum(_bytes(graph, graph.nodes[i]) for i in loop.nodes)
        cuts = [i for i in loop.nodes if side_of(graph.nodes[i], loop) == "slice"]
        made = {graph.nodes[i].inputs[0]: i for i in cuts}
        sizes = {
            value: _bytes(graph, graph.nodes[maker[value]]) for value, i in made.items()
            if value in maker and readers[value] == 1 and value not in graph.outputs
            and _row_by_row(graph, loop, maker[value], i)
        }
        every = sorted(sizes, key=lambda value: (-sizes[value], value))
        options = [*((value,) for value in every), *([tuple(every)] if len(every) > 1 else [])]
        fit = [option for option in options if sum(sizes[value] for value in option) < room]
        if fit:
            found.append(fit)
    return found


def made_by_step(graph: Graph, values: Collection[str]) -> Graph:
    """The graph with products of all steps made in the loops that cut them. `values`: their results, which
    no longer are; the values of a step keep their names, types and bits."""
    if not values:
        return graph
    known, moved = dict(graph.values), frozenset(values)
    maker = {o: n for n in graph.nodes for o in n.outputs if o in moved}
    nodes: list[Node] = []
    for node in graph.nodes:
        if moved & set(node.outputs):
            del known[node.outputs[0]]
        elif border(node)[0] == "slice" and node.inputs[0] in moved:
            nodes += _in_step(graph, node, maker[node.inputs[0]], known)
        else:
            nodes.append(node)
    return graph.replaced(nodes=tuple(nodes), values=MappingProxyType(known))


def _in_step(graph: Graph, cut: Node, product: Node, known: dict[str, Value]) -> list[Node]:
    """A part of what a product reads, and the product of it."""
    source, (made,) = product.inputs[0], cut.outputs
    part = f"{made}:rows"
    while part in known:
        part += "'"
    shape = graph.type(source).shape
    rows = graph.type(made).shape[0]
    kind = TensorType((rows, *shape[1:]), graph.type(source).dtype)
    known[part] = replace(graph.values[source], id=part, type=kind)
    return [
        replace(cut, inputs=(source,), outputs=(part,)),
        replace(product, inputs=(part, *product.inputs[1:]), outputs=(made,)),
    ]


def _row_by_row(graph: Graph, loop: Loop, product: int, cut: int) -> bool:
    """Whether a step's part of a product is the same product of a part of its first operand."""
    node, own = graph.nodes[product], border(graph.nodes[cut])[1]
    if not is_npu(node) or border(node)[0] or own.axis or any(own.halo) or own.chunk or counted(graph, loop):
        return False
    if len(node.outputs) != 1 or graph.const(node.inputs[0]) is not None:
        return False
    if any(graph.const(v) is None for v in node.inputs[1:] if v):
        return False
    space = space_of(graph.site(node), ANY)
    first, made = space.inputs[0], space.outputs[0]
    if not space.macs or first is None or not first.maps or made.maps[0] != first.maps[0]:
        return False
    axis = made.maps[0].axis
    if axis is None or made.maps[0] != DimMap(axis):
        return False
    others = [m for one in (*space.inputs[1:], *space.params) if one is not None for m in one.maps]
    others += [*first.maps[1:], *made.maps[1:]]
    rows = graph.type(graph.nodes[cut].outputs[0]).shape[0]
    part = TensorType((rows, *first.shape[1:]), graph.type(node.inputs[0]).dtype)
    kinds = [part, *(graph.type(v) if v else None for v in node.inputs[1:])]
    return (
        space.axis(axis).kind == "par" and all(m.axis != axis for m in others)
        and first.shape[0] == own.steps * rows
        and list(node.op.infer(*kinds)) == [graph.type(graph.nodes[cut].outputs[0])]
    )


def _bytes(graph: Graph, node: Node) -> int:
    """Of a node's constants."""
    arrays = {p for _, p in node.params or () if isinstance(p, str)}
    arrays |= {d for v in node.inputs if v and (d := graph.values[v].const) is not None}
    return sum(graph.consts[a].nbytes for a in arrays if a in graph.consts)
