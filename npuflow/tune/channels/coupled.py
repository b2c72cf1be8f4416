"""Groups of layers whose output channels are coupled, with the layers that read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.tune.channels.labels import ChannelLabels

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CoupledChannels:
    """Channels that some layers make and some read: `labels`, one for all that can only go together.
    `makers`, `readers`: indices of nodes. `obstacle`: why none of them can be removed."""

    labels: tuple[int, ...]
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    obstacle: str = ""

    def name(self, graph: Graph) -> str:
        """The layers that make the channels."""
        return ", ".join(graph.nodes[i].name for i in self.makers)

    def layers(self, graph: Graph) -> list[tuple[tuple[str, ...], str]]:
        """Names and operators of the layers that make the channels."""
        return [(names_of(graph.nodes[i]), op_name(graph.nodes[i])) for i in self.makers]


def made_by(known: ChannelLabels, node: Node) -> Ints:
    """Labels of the output channels of a layer's weight; none of other nodes."""
    found = known.consts.get((node.outputs[0], 1), ()) if node.op.role(1) == "weight" else ()
    return found[0].each if len(node.inputs) > 1 and found else np.zeros(0, np.int64)


def read_by(known: ChannelLabels, node: Node) -> Ints:
    """Labels of the input channels over which a layer sums; none of other nodes."""
    if len(node.inputs) < 2 or node.op.role(1) != "weight":
        return np.zeros(0, np.int64)
    found = known.consts.get((node.outputs[0], 1), ())
    return found[1].each if len(found) > 1 else np.zeros(0, np.int64)


def coupled(known: ChannelLabels) -> list[CoupledChannels]:
    """All groups in the order of the network."""
    graph = known.graph
    makers = [i for i, node in enumerate(graph.nodes) if len(made_by(known, node))]
    parent = {i: i for i in makers}

    def find(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    first: dict[int, int] = {}
    for i in makers:
        for label in set(made_by(known, graph.nodes[i]).tolist()):
            a, b = find(first.setdefault(label, i)), find(i)
            parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for i in makers:
        groups.setdefault(find(i), []).append(i)
    return [_group(known, some) for some in groups.values()]


def _group(known: ChannelLabels, makers: list[int]) -> CoupledChannels:
    nodes = known.graph.nodes
    every = np.unique(np.concatenate([made_by(known, nodes[i]) for i in makers]))
    labels = set(every.tolist())
    readers = tuple(i for i, node in enumerate(nodes) if labels & set(read_by(known, node).tolist()))
    why = next((known.blocked[label] for label in every.tolist() if label in known.blocked), "")
    if not why and not readers:
        why = "no layer with constant weights reads it"
    return CoupledChannels(tuple(every.tolist()), tuple(makers), readers, why)
