"""What a Loop or Scan of a known number of steps has: states, scanned tensors, rows, what counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from npuflow.frontends._nodes.counters import Counters, followed, goes_on, number
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.types import Array
from npuflow.onnx.nodes import captured


class CannotLoopError(Exception):
    """Why a loop of the source is none of the graph."""


@dataclass(frozen=True)
class Scanned:
    """What goes through the steps: a tensor, the dimension that is cut, whether the last part is first."""

    name: str
    axis: int = 0
    back: bool = False


@dataclass
class LoopForm:
    """A Loop or Scan. `own`: inputs of the body, of states, then of scanned tensors; `results`: its outputs;
    `rows`: the node's outputs behind the states, "" where nothing reads one; `fixed`: inputs of the body that
    are known; `lasts`: the node's outputs that are states; `counters`: what counts beside these."""

    node: onnx.NodeProto
    body: onnx.GraphProto
    steps: int
    states: list[str]
    scanned: list[Scanned]
    own: list[str]
    results: list[str]
    rows: list[Scanned]
    lasts: list[str]
    fixed: dict[str, Array] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    name: str = ""                        # the loop's: that of the node, where no other loop has it

    @property
    def origin(self) -> tuple[str, ...]:
        return (self.node.name or next(o for o in self.node.output if o),)

    def named(self, taken: Collection[str]) -> LoopForm:
        """With a name beside those of other loops and of values."""
        name = self.origin[0]
        return replace(self, name=name if name not in taken else next(o for o in self.node.output if o))


def scan_form(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto) -> LoopForm:
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name != "body"}
    count: int = given["num_scan_inputs"]
    states, names = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
    outputs = node.output[len(states) :]
    axes, back = (given.get(f"scan_input_{name}") or [0] * count for name in ("axes", "directions"))
    out_axes, out_back = (
        given.get(f"scan_output_{name}") or [0] * len(outputs) for name in ("axes", "directions")
    )
    if not names or not builder.type(names[0]).is_static or not builder.type(names[0]).shape:
        raise CannotLoopError("the number of its steps is not known")
    shape = builder.type(names[0]).shape
    scanned = [Scanned(n, a, bool(b)) for n, a, b in zip(names, axes, back, strict=True)]
    rows = [Scanned(n, a, bool(b)) for n, a, b in zip(outputs, out_axes, out_back, strict=True)]
    return LoopForm(
        node, body, shape[axes[0] % len(shape)], states, scanned, [i.name for i in body.input],
        [o.name for o in body.output], rows, list(node.output[: len(states)]),
    )


def loop_form(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto) -> LoopForm:
    count, going = (number(builder, name) if name else None for name in (*node.input, "", "")[:2])
    step, go_on = body.input[0].name, body.input[1].name
    ends = not goes_on(builder, body)
    bounded = count is not None or (ends and not node.input[0])
    if not bounded or (len(node.input) > 1 and node.input[1] and not going):
        raise CannotLoopError("the number of its steps is not a constant")
    read = {i for n in body.node for i in (*n.input, *captured(n))} | {o.name for o in body.output}
    counters, given = Counters(count or 0), list(enumerate(node.input[2:]))
    if ends or step in read or any(builder.type(name).dtype != "float32" for _, name in given):
        counters = followed(builder, node, body, count)
        if not counters.steps:
            raise CannotLoopError("its steps cannot be followed")
        if ends and body.output[0].name not in counters.values:
            raise CannotLoopError("its condition depends on data")
    kept, scans = [k for k, _ in given if k not in counters.last], len(given)
    for k, array in counters.last.items():
        if node.output[k]:
            builder.constant(node.output[k], array)
    return LoopForm(
        node, body, counters.steps, [name for k, name in given if k in kept], [],
        [body.input[2 + k].name for k in kept],
        [*(body.output[1 + k].name for k in kept), *(o.name for o in body.output[1 + scans :])],
        [Scanned(name) for name in node.output[scans:]], [node.output[k] for k in kept],
        {go_on: np.array(True)}, counters,
    )
