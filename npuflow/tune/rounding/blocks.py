"""Blocks of a network: stretches of nodes that one tensor enters and one leaves, whose layers are
reconstructed together.

A residual block is one, since its shortcut crosses every place inside of it; plain layers after one another
are put together. A stretch with an operator that no gradient is known of, with no layer, or in a loop, is
left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from npuflow.ir.graph import Graph
from npuflow.ir.loops import inside
from npuflow.ir.op import Node
from npuflow.tune import tuned


@dataclass(frozen=True)
class LayerBlock:
    """Nodes from `first` up to, not with, `stop`; the tensors that enter and leave; layers, by node."""

    first: int
    stop: int
    source: str
    result: str
    layers: tuple[int, ...]


def blocks(graph: Graph, layers: Collection[int], most: int = tuned.BLOCK_LAYERS) -> Iterator[LayerBlock]:
    """In the network's order. `layers`: nodes whose weights may change."""
    open_block: LayerBlock | None = None
    looped = inside(graph.nodes)
    for one in _stretches(graph):
        own = tuple(i for i in range(one.first, one.stop) if i in layers)
        usable = all(
            i not in looped and differentiable(graph, graph.nodes[i]) for i in range(one.first, one.stop)
        )
        follows = open_block is not None and open_block.stop == one.first and usable
        if open_block is not None and follows and len(open_block.layers) + len(own) <= most:
            open_block = LayerBlock(
                open_block.first, one.stop, open_block.source, one.result, (*open_block.layers, *own)
            )
            continue
        if open_block is not None and open_block.layers:
            yield open_block
        open_block = LayerBlock(one.first, one.stop, one.source, one.result, own) if usable else None
    if open_block is not None and open_block.layers:
        yield open_block


def differentiable(graph: Graph, node: Node) -> bool:
    """Whether the gradient of a node is known: products with a constant weight, functions of single
    elements, and operators that move elements of one tensor."""
    site = graph.site(node)
    live = [v for v in node.inputs if v and graph.const(v) is None]
    if len(node.outputs) != 1 or any(graph.type(v).dtype != "float32" for v in (*live, *node.outputs)):
        return False
    if node.op.places(site):
        at = next((i for i, v in enumerate(node.inputs) if v and node.op.role(i) == "weight"), 0)
        return graph.const(node.inputs[at]) is not None
    return node.op.elementwise or node.op.unary or (node.op.moves_data and len(live) == 1)


def _stretches(graph: Graph) -> Iterator[LayerBlock]:
    """The least stretches between places that a single tensor crosses."""
    last = {value: at for at, node in enumerate(graph.nodes) for value in node.inputs if value}
    live = {value for value in graph.inputs if value in last}
    first, source = 0, next(iter(live)) if len(live) == 1 else ""
    for at, node in enumerate(graph.nodes):
        live |= {v for v in node.outputs if v in last or v in graph.outputs}
        live -= {v for v in node.inputs if v in live and last[v] == at and v not in graph.outputs}
        if len(live) == 1:
            (result,) = live
            if source and result in node.outputs:
                yield LayerBlock(first, at + 1, source, result, ())
            first, source = at + 1, result
