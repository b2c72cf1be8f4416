"""Questions about a graph's structure: what a node is, who made a value, who reads it."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node


class _Seen:
    """Producers and consumers of the graph asked about last: rules ask many times between two changes."""

    graph: Graph | None = None
    producer: Mapping[str, Node] = {}
    consumers: Mapping[str, list[Node]] = {}


def _look(graph: Graph) -> tuple[Mapping[str, Node], Mapping[str, list[Node]]]:
    if _Seen.graph is not graph:
        _Seen.graph, _Seen.producer, _Seen.consumers = graph, graph.producer(), graph.consumers()
    return _Seen.producer, _Seen.consumers


def remember(graph: Graph, producer: Mapping[str, Node], consumers: Mapping[str, list[Node]]) -> None:
    """Take these for the graph's producers and consumers, where whoever made it knows them."""
    _Seen.graph, _Seen.producer, _Seen.consumers = graph, producer, consumers


def kind(node: Node) -> str:
    """The operator's file name; "host:<onnx type>" for nodes kept for the host."""
    return f"host:{title(node).lower()}" if node.op.hosted else type(node.op).__module__.rpartition(".")[2]


def title(node: Node) -> str:
    """The operator by its ONNX name, else by its class's: for messages and tables."""
    return node.op.onnx_type()[1] or type(node.op).__name__


def maker(graph: Graph, value_id: str) -> Node | None:
    return _look(graph)[0].get(value_id)


def made_by(graph: Graph, value_id: str, *kinds: str) -> Node | None:
    """The producer, if it is of one of these kinds."""
    node = maker(graph, value_id)
    return node if node is not None and kind(node) in kinds else None


def users(graph: Graph, value_id: str) -> list[Node]:
    return _look(graph)[1].get(value_id, [])


def sole_user(graph: Graph, value_id: str) -> Node | None:
    """The one node that reads the value, if the caller does not read it too."""
    found = users(graph, value_id)
    return found[0] if len(found) == 1 and value_id not in graph.outputs else None
