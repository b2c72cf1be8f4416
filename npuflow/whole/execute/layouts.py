"""Which values of a segment lie with channels innermost: those that convolutions of bytes read or make, and
what is computed of them place by place."""

from __future__ import annotations

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.graph import Graph
from npuflow.ir.lowering import Buffer
from npuflow.ir.op import Node
from npuflow.kernels.fast import usable
from npuflow.place.partition import Segment
from npuflow.whole.execute.bench import FIRST
from npuflow.whole.execute.decoded import decoded
from npuflow.whole.execute.layout import BatchTensor, TensorLayout, channels_last, plain
from npuflow.whole.lowering import lowered

# commands whose kernels take any strides, and go through channels fast enough where those lie side by side
NOTHING = np.zeros(0, np.uint8)
FREE = {"CONV", "REQUANT", "LUT", "ADD", "MUL", "MINMAX", "PRELU", "RESCALE", "MAXPOOL", "REDUCE", "RESIZE"}


def layouts(graph: Graph, part: Segment, numerics: Numerics) -> dict[str, TensorLayout]:
    """Value -> layout of those that do not lie in C order."""
    if not usable():
        return {}
    free: list[list[str]] = []                   # values of nodes that any layout suits
    near: set[str] = set()                       # values of convolutions
    bound: set[str] = set()                      # values that some node makes in C order
    for node in part.nodes:
        touched = [v for v in (*node.inputs, *node.outputs) if v and graph.const(v) is None]
        commands = _commands(graph, node, numerics)
        same = all(_imaged(graph, v) for v in touched)
        if commands is None or ({c.opcode for c in commands} <= FREE and same):
            free.append([v for v in touched if _imaged(graph, v)])
        else:
            bound.update(node.outputs)
        if commands and any(_fast(c) for c in commands) and same:
            near.update(touched)
    chosen = set(near) - bound
    grown = True
    while grown:
        before = len(chosen)
        for values in free:
            if chosen.intersection(values):
                chosen.update(v for v in values if v not in bound)
        grown = len(chosen) > before
    return {v: channels_last(graph.values[v].type.shape) for v in chosen}


def _imaged(graph: Graph, value: str) -> bool:
    """Whether a value has a dimension of channels that is not the last."""
    return len(graph.values[value].type.shape) in (3, 4)


def _fast(c: Command) -> bool:
    """Whether there is a kernel for a convolution with channels innermost."""
    if c.opcode != "CONV" or c.vector("insert") != (1, 1) or c.text("acc_type") != "int32":
        return False
    from npuflow.whole.execute.dot import available  # slow to load

    return ELEMENTS[c.text("x_type")].bytes == 1 and ELEMENTS[c.text("w_type")].bytes == 1 and available()


def _commands(graph: Graph, node: Node, numerics: Numerics) -> list[Command] | None:
    """The node's commands on tensors in C order; None for movers."""
    site = graph.site(node)
    space = forms.space(site, numerics)
    if space is None or not all(v.type.size for v in site.outputs):
        return None
    address = iter(range(FIRST, 2 * FIRST, 1 << 32))

    def buffer(dtype: str, shape: tuple[int, ...]) -> Buffer:
        return BatchTensor(next(address), dtype, plain(shape), NOTHING).buffer

    def held(value: str) -> Buffer:
        return buffer(graph.values[value].element, graph.values[value].type.shape)

    sums = space.accumulator
    acc = None if sums is None else buffer(forms.sum_type(site, numerics), sums.shape)
    arrays = {o.name: site.array(o.name) for o in space.params}
    params = {name: buffer(array.dtype.name, array.shape) for name, array in arrays.items()}
    inputs = [held(v) if v else None for v in node.inputs]
    outputs = [held(v) for v in node.outputs if v]
    return decoded(lowered(site, space, numerics, inputs, outputs, params, acc))
