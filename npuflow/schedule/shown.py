"""Values in the bytes of others that are wanted in external memory, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from npuflow.ir.graph import Graph
from npuflow.ir.views import Views


def shown_twice(
    graph: Graph, views: Views, readers: Mapping[str, Sequence[int]], nodes: Iterable[int]
) -> dict[str, str]:
    """Results of some nodes which are parts of the bytes that the node reads in external memory, where these
    have other readers or are an output: the halves of a value that is split, or a Reshape. With each what is
    read."""
    found = dict[str, str]()
    for index in nodes:
        node = graph.nodes[index]
        for made in filter(None, node.outputs):
            for v in set(views.owners(made)) & set(node.inputs):
                if v in graph.outputs or len(readers.get(v, ())) > 1:
                    found[made] = v
    return found
