"""Codes of the nodes that decode boxes: 16 bits over the whole range, as coordinates need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from npuflow.base.wording import counted
from npuflow.hw.target import Numerics
from npuflow.input.postprocess import BITS, Postprocess, size_of
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import QuantType
from npuflow.quantise.config import Quantize, activation_grid
from npuflow.quantise.scales import ScaleGroups
from npuflow.quantise.types import activation_type
from npuflow.statistics.statistics import ObservedStatistics
from npuflow.tune import tuned

Span = tuple[float, float]


def box_codes(
    graph: Graph,
    table: Postprocess,
    statistics: ObservedStatistics,
    quantize: Quantize,
    numerics: Numerics,
    on_npu: Callable[[int], bool],
    growth: float = 1.0,
) -> dict[str, QuantType]:
    """Codes by value id: results and constant operands of the nodes that decode boxes on the NPU. A node that
    the recipe's exceptions name keeps what they say. `growth`: how many times larger than here pictures
    of the network's other shapes are, whose cells lie so much farther away."""
    if max(numerics.activation_bits) < BITS:
        return {}
    # cells count from 0: the last of 3 is 2, that of 8 is 7
    growth = 2 * growth if growth > 1 else 1.0
    most = tuned.BOX_REACH * growth * max(size_of(graph, table))
    nodes = [n for i, n in enumerate(graph.nodes) if on_npu(i) and _decodes(n, table, quantize)]
    made = [n for n in nodes if not (n.op.shares_scale or n.op.moves_data)]
    spans = {o: _span(statistics, o, most, growth) for n in made for o in n.outputs if o in statistics}
    sets = ScaleGroups()
    for node in nodes:
        if node.op.shares_scale:
            for pair in pairwise([i for i in node.inputs if i in spans]):
                sets.join(pair)
    for node in made:
        for index, name in enumerate(node.inputs):
            array = graph.const(name)
            if array is not None and array.size and node.op.role(index) == "activation":
                spans[name] = growth * min(0.0, float(array.min())), growth * max(0.0, float(array.max()))
    hulls: dict[str, Span] = {}
    for name, (low, high) in spans.items():
        root = sets.find(name)
        known = hulls.get(root, (low, high))
        hulls[root] = min(low, known[0]), max(high, known[1])
    grid = activation_grid(quantize.activations, numerics, BITS)
    both = numerics.signed_activations and numerics.unsigned_activations
    both = both and quantize.activations.signed is None
    return {name: activation_type(*hulls[sets.find(name)], grid, both) for name in spans}


def _decodes(node: Node, table: Postprocess, quantize: Quantize) -> bool:
    """Whether a node came with the boxes, and nothing else is said of it."""
    own = any(name.startswith(f"{table.name}/") for name in node.origin)
    return own and not node.op.hosted and not quantize.matching((*node.outputs, *node.origin), kind(node))


def _span(statistics: ObservedStatistics, name: str, most: float, growth: float) -> Span:
    tensor, room = statistics[name], tuned.BOX_ROOM * growth
    return max(min(0.0, room * tensor.lo), -most), min(max(0.0, room * tensor.hi), most)


def described(codes: Mapping[str, QuantType]) -> str:
    return f"{BITS} bits for {counted(len(codes), 'value')} of the box decoding"
