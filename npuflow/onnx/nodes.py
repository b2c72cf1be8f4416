"""ONNX attributes and subgraphs as data: frozen values, the names a subgraph takes
from outside, renaming them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from npuflow.ir.order import in_order

if TYPE_CHECKING:
    import onnx

Frozen = int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

_SIMPLE = {1, 2, 3, 6, 7, 8}          # FLOAT INT STRING FLOATS INTS STRINGS
_GRAPH, _GRAPHS = 5, 10


def frozen(attribute: onnx.AttributeProto) -> Frozen:
    """A hashable value: numbers and texts as they are, all else (tensors, graphs, empty
    lists) as the proto's bytes."""
    import onnx

    if attribute.type in _SIMPLE:
        value = onnx.helper.get_attribute_value(attribute)
        try:
            if isinstance(value, bytes):
                return value.decode()
            if not isinstance(value, (int, float)) and len(value):
                return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
            if isinstance(value, (int, float)):
                return value
        except UnicodeDecodeError:
            pass
    return bytes(attribute.SerializeToString(deterministic=True))


def thawed(name: str, value: Frozen) -> onnx.AttributeProto:
    """The attribute again."""
    import onnx

    if isinstance(value, bytes):
        attribute = onnx.AttributeProto()
        attribute.ParseFromString(value)
        return attribute
    return onnx.helper.make_attribute(name, list(value) if isinstance(value, tuple) else value)


def plain(attribute: onnx.AttributeProto) -> Any:
    """The value as operators read it: tensors as arrays, texts as str, lists as tuples, graphs as protos."""
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type in _SIMPLE and not isinstance(value, (int, float)):
        return tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in value)
    return value


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that the node's subgraphs read but do not define, in order of first use."""
    found: dict[str, None] = {}
    for graph in subgraphs(node):
        found.update(dict.fromkeys(_free(graph)))
    return tuple(found)


def _free(graph: onnx.GraphProto) -> Iterator[str]:
    known = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    known |= {i.values.name for i in graph.sparse_initializer}
    for node in graph.node:
        yield from (i for i in (*node.input, *captured(node)) if i and i not in known)
        known.update(node.output)
    yield from (o.name for o in graph.output if o.name and o.name not in known)


def rename_inputs(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename, in place, what the node reads, and what its subgraphs take from outside."""
    outside = {name: names[name] for name in captured(node) if name in names}
    _replace(node.input, names)
    rename(node, outside)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename, in place, what the node's subgraphs take from outside."""
    changed = {old: new for old, new in names.items() if old != new}
    if changed:
        for graph in subgraphs(node):
            _rename(graph, changed)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    defined: set[str] = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        defined.update(node.output)
    visible = {old: new for old, new in names.items() if old not in defined}
    for node in graph.node:
        _replace(node.input, visible)
        rename(node, visible)
    for output in graph.output:
        output.name = visible.get(output.name, output.name)


def _replace(names: Any, mapping: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in mapping:
            names[index] = mapping[name]


def ordered(nodes: Iterable[onnx.NodeProto], known: Iterable[str]) -> list[onnx.NodeProto] | None:
    """The nodes in topological order, as they are where that is one; None when there is a cycle."""
    units = list(nodes)
    produced = {o for n in units for o in n.output if o}
    order, rest = in_order(
        units, known, lambda n: (i for i in (*n.input, *captured(n)) if i in produced), lambda n: n.output
    )
    return None if rest else order
