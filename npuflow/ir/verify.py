"""The graph's invariants, checked at every stage boundary and after every rewrite in tests."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.base.errors import InternalError
from npuflow.ir import loops
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, Op
from npuflow.ir.sparsity import Pattern
from npuflow.ir.types import UNKNOWN, UNRANKED, GroupedType, QuantType, TensorType, Value


def verify(graph: Graph, after: str = "") -> Graph:
    """The graph itself, or an InternalError that lists everything wrong with it;
    `after` names who made it."""
    found = list(faults(graph))
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise InternalError(
            f"the graph{f' after {after}' if after else ''} is malformed: {found[0]}{more}",
            because="; ".join(found[:10]), code="NF-INTERNAL-046",
        )
    return graph


def faults(graph: Graph) -> Iterator[str]:
    """Every broken invariant, in words."""
    yield from _values(graph)
    known = set(graph.inputs) | {v.id for v in graph.values.values() if v.const is not None}
    if len(set(graph.inputs)) != len(graph.inputs):
        yield "an input is named twice"
    for value_id in graph.inputs:
        if value_id not in graph.values:
            yield f'input "{value_id}" has no value'
        elif graph.values[value_id].const is not None:
            yield f'input "{value_id}" is a constant'
    for node in graph.nodes:
        yield from _node(graph, node, known)
        for output in node.outputs:
            if output and output in known:
                yield f'value "{output}" of {node.name} is defined twice'
            known.add(output)
    for value_id in graph.outputs:
        if value_id not in known or value_id not in graph.values:
            yield f'output "{value_id}" is produced by nothing'
    yield from _state(graph)
    yield from _lengths(graph)
    yield from _rings(graph)
    yield from loops.faults(graph)


def _lengths(graph: Graph) -> Iterator[str]:
    for one in graph.lengths:
        if one.name not in graph.inputs or not 0 < one.least <= one.most:
            yield f'the length "{one.name}" of {one.least} to {one.most} is no input, or no range'
        if any(count.stride < 1 for count in (*one.inner, *dict(one.counts).values())):
            yield f'steps of the length "{one.name}" go on by less than one'


def _rings(graph: Graph) -> Iterator[str]:
    for one in graph.rings:
        if not 0 < one.window <= one.rows < one.most:
            yield f'the ring of "{one.index}" has {one.rows} of {one.most} rows, and a window of {one.window}'


def _state(graph: Graph) -> Iterator[str]:
    for output, given in graph.state:
        if output not in graph.outputs or given not in graph.inputs:
            yield f'state "{output}" of the input "{given}" is no output, or that is no input'
        elif graph.type(output) != graph.type(given):
            yield f'state "{output}" is {graph.type(output)}, the input "{given}" {graph.type(given)}'


def _values(graph: Graph) -> Iterator[str]:
    for key, value in graph.values.items():
        if key != value.id:
            yield f'value "{value.id}" is filed under "{key}"'
        if value.type.shape != UNRANKED and any(d < UNKNOWN for d in value.type.shape):
            yield f'value "{key}" has the shape {value.type.shape}'
        if value.quant is not None:
            yield from _quant(value, value.quant)
        if value.const is None:
            continue
        if value.const not in graph.consts:
            yield f'constant "{key}" has no array'
            continue
        array = graph.consts[value.const]
        if tuple(array.shape) != value.type.shape:
            yield f'constant "{key}" is declared {value.type.shape} and stored {array.shape}'
        sparse = value.quant.sparse if value.quant is not None else None
        if sparse is not None and not Pattern(*sparse).holds(array.reshape(1, -1)):
            yield f'constant "{key}" has more than {sparse[0]} of {sparse[1]} elements that are not zero'
        if array.dtype.name != value.dtype:
            yield f'constant "{key}" is declared {value.dtype} and stored {array.dtype.name}'


def _quant(value: Value, quant: QuantType) -> Iterator[str]:
    where = f'value "{value.id}"'
    if any(not s > 0 for s in quant.scale):
        yield f"{where} has a scale that is not positive"
    if any(not quant.lo <= z <= quant.hi for z in quant.zero_point):
        yield f"{where} has a zero point outside its codes"
    if quant.axis is None:
        if len(quant.scale) != 1 or len(quant.zero_point) != 1:
            yield f"{where} is quantised per tensor with {len(quant.scale)} scales"
        return
    if not 0 <= quant.axis < len(value.type.shape):
        yield f"{where} is quantised along axis {quant.axis} of {value.type.shape}"
        return
    size = value.type.shape[quant.axis]
    if quant.group is not None:
        if quant.group_axis is None or not 0 <= quant.group_axis < len(value.type.shape):
            yield f"{where} has scales by groups along axis {quant.group_axis} of {value.type.shape}"
            return
        size *= -(-value.type.shape[quant.group_axis] // quant.group)
    if isinstance(quant, GroupedType):
        yield from _grouped(where, value, quant, size)
        return
    if len(quant.scale) != size or len(quant.zero_point) not in (1, size):
        yield f"{where} has {len(quant.scale)} scales for {size} channels or groups"


def _grouped(where: str, value: Value, quant: GroupedType, count: int) -> Iterator[str]:
    if len(value.type.shape) != 2 or {quant.axis, quant.group_axis} != {0, 1}:
        yield f"{where} has groups with float16 scales and is no matrix of channels"
        return
    groups = quant.groups(value.type.shape)
    for name in ("scales", "zeros", "minima"):
        held = getattr(groups, name)
        if held is not None and held.size != count:
            yield f"{where} has {held.size} {name} for {count} groups"


def _node(graph: Graph, node: Node, known: set[str]) -> Iterator[str]:
    if not isinstance(node.op, Op):
        yield f"{node.name} has no operator"
        return
    if not any(node.outputs):
        yield f"{node.name} has no outputs"
    for value_id in node.inputs:
        if value_id and value_id not in known:
            yield f'{node.name} reads "{value_id}" before it is produced'
    missing = [v for v in (*node.inputs, *node.outputs) if v and v not in graph.values]
    if missing:
        yield f'{node.name}: "{missing[0]}" has no value'
        return
    for output in node.outputs:
        if output and graph.values[output].const is not None:
            yield f'{node.name} produces the constant "{output}"'
    for name, param in node.params or ():
        if isinstance(param, str) and param not in graph.consts:
            yield f"{node.name}: parameter {name} has no array"
    if node.params is not None and list(node.params) != sorted(node.params, key=lambda p: p[0]):
        yield f"{node.name}: parameters are not sorted"
    yield from _types(graph, node)


def _types(graph: Graph, node: Node) -> Iterator[str]:
    own = node.op.infer(*(graph.type(i) if i else None for i in node.inputs))
    if len(own) != len(node.outputs):
        yield f"{node.name} has {len(node.outputs)} outputs, its operator gives {len(own)}"
        return
    for output, kind in zip(node.outputs, own, strict=True):
        if output and not _same(kind, graph.type(output)):
            yield f'{node.name}: "{output}" is declared {graph.type(output)} and inferred {kind}'


def _same(inferred: TensorType, declared: TensorType) -> bool:
    return inferred == declared
