"""Which values lie channels-last: those of convolutions, pools and what follows them element by element."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.whole.export_c.whole import Buffers, Unsuited, commands_of

WANTS = frozenset(("CONV", "MAXPOOL", "AVGPOOL", "RESIZE"))
AVOIDS = frozenset(("MATMUL", "SOFTMAX"))


def channels_last(
    graph: Graph, nodes: Sequence[Node], numerics: Numerics, fixed: Collection[str]
) -> frozenset[str]:
    """`fixed`: values of the interface, which lie in C order."""
    found: set[str] = set()
    avoided: set[str] = set()
    for node in nodes:
        site = graph.site(node)
        opcodes = {c.opcode for c in commands_of(graph, node, numerics, frozenset(), Buffers(), site)}
        read = [i for i in node.inputs if i and graph.values[i].const is None]
        if opcodes & AVOIDS:
            avoided.update(read, node.outputs)
        if opcodes & WANTS:
            found.update(read, node.outputs)
        elif not opcodes & AVOIDS and any(i in found for i in read):
            found.update(node.outputs)
    found = {v for v in found - avoided - set(fixed) if v and len(graph.type(v).shape) in (3, 4)}
    changed = True
    while changed:  # what a node cannot do channels-last, its values do not
        changed = False
        for node in nodes:
            own = {v for v in (*node.inputs, *node.outputs) if v in found}
            if own and not _works(graph, node, numerics, frozenset(own)):
                found -= own
                changed = True
    return frozenset(found)


def _works(graph: Graph, node: Node, numerics: Numerics, last: frozenset[str]) -> bool:
    try:
        commands_of(graph, node, numerics, last, Buffers())
    except (Unsuited, AssertionError):
        return False
    return True
