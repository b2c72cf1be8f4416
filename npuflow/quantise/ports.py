"""Inputs and outputs that are codes, without the casts of a declared half or double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import TensorType
from npuflow.quantise.config import Quantize

T = TypeVar("T")
_DECLARED = ("float16", "float64")


@dataclass(frozen=True)
class Bare:
    """The graph without those casts. `kept`: indices of its nodes in the graph that it
    was; `names`: old name -> new."""

    graph: Graph
    kept: tuple[int, ...]
    names: Mapping[str, str]

    def placed(self, on_npu: Callable[[int], bool]) -> Callable[[int], bool]:
        """The same judgement of nodes by their indices here."""
        return lambda index: on_npu(self.kept[index])

    def renamed(self, table: Mapping[str, T]) -> dict[str, T]:
        return {self.names.get(name, name): one for name, one in table.items()}


def bare(graph: Graph, config: Quantize) -> Bare:
    """Casts at the ends that the recipe makes integer are left out: the float32
    value takes the port's name."""
    names: dict[str, str] = {}
    gone: set[int] = set()
    readers = graph.consumers()
    for i, node in enumerate(graph.nodes):
        if not _is_cast(node):
            continue
        source, result = node.inputs[0], node.outputs[0]
        kinds = graph.type(source).dtype, graph.type(result).dtype
        entering = config.inputs == "integer" and source in graph.inputs and readers[source] == [node] \
            and kinds[0] in _DECLARED and kinds[1] == "float32" and result not in graph.outputs
        leaving = (
            config.outputs == "integer"
            and result in graph.outputs
            and result not in readers
            and kinds[0] == "float32"
            and kinds[1] in _DECLARED
            and source not in (*graph.inputs, *graph.outputs, *names)
        )
        if entering or (leaving and graph.const(source) is None):
            names[result if entering else source] = source if entering else result
            gone.add(i)
    if not gone:
        return Bare(graph, tuple(range(len(graph.nodes))), {})
    kept = tuple(i for i in range(len(graph.nodes)) if i not in gone)
    nodes = tuple(_renamed(graph.nodes[i], names) for i in kept)
    values = {name: value for name, value in graph.values.items() if name not in names}
    values.update(
        {new: replace(values[new], type=TensorType(values[new].type.shape)) for new in names.values()}
    )
    return Bare(graph.replaced(nodes=nodes, values=MappingProxyType(values)), kept, names)


def _is_cast(node: Node) -> bool:
    return kind(node) == "host:cast"


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs, outputs = (tuple(names.get(v, v) for v in ends) for ends in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def own_names(graph: Graph, source: Graph) -> Graph:
    """Float outputs under the names the model gives them: the codes behind one move aside, as
    those of inputs do ("v:q")."""
    holder = {v: v for v in graph.values}              # new name -> present one
    for own, name in zip(graph.outputs, source.outputs, strict=True):
        if holder.get(name) == own:
            continue
        holder.pop(next(new for new, old in holder.items() if old == own))
        if name in holder:
            codes = f"{name}:q"
            while codes in holder:
                codes += "'"
            holder[codes] = holder.pop(name)
        holder[name] = own
    renamed = {old: new for new, old in holder.items()}

    def new(value_id: str) -> str:
        return renamed.get(value_id, value_id)

    nodes = tuple(
        replace(n, inputs=tuple(map(new, n.inputs)), outputs=tuple(map(new, n.outputs))) for n in graph.nodes
    )
    values = {new(k): replace(v, id=new(k)) for k, v in graph.values.items()}
    return graph.replaced(outputs=source.outputs, nodes=nodes, values=MappingProxyType(values))
