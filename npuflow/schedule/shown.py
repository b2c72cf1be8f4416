"""Values in the bytes of others that are wanted, too: two cores might store both at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuflow.schedule.frame import Topology


def shown_twice(topology: Topology, nodes: Iterable[int]) -> dict[str, str]:
    """Results of some nodes which are parts of the bytes that the node reads in external memory, where these
    have other readers or are an output: the halves of a value that is split, or a Reshape. With each what is
    read. None where there is one core, which stores the same bytes in turn."""
    graph, found = topology.graph, dict[str, str]()
    if topology.machine.compute.of_one_inference.cores == 1:
        return found
    for index in nodes:
        node = graph.nodes[index]
        for made in filter(None, node.outputs):
            for v in set(topology.views.owners(made)) & set(node.inputs):
                if v in graph.outputs or len(topology.readers.get(v, ())) > 1:
                    found[made] = v
    return found


def stores_again(topology: Topology, nodes: Sequence[int], kept: Collection[str]) -> bool:
    """Whether a group of these nodes stores anything that lies in the bytes of such a value which is made in
    local memory: there, or in an earlier group from which it stays. The whole value lies in these bytes, and
    another core might store or load it."""
    twice = topology.shown_twice
    if not twice:
        return False
    for value in topology.needed(nodes):
        around = {v for v in (value, *topology.views.owners(value)) if v in twice}
        local = any(v in kept or topology.maker[v] in nodes for v in around)
        if local and topology.wanted_in_data(value, kept):
            return True
    return False
