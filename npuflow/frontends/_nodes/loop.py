"""Makes loops of Scan, and of Loop with a known number of steps: the body once, between borders.

Scanned tensors have their steps in front, then as equal parts of the first dimension (see `ir/loops.py`).
What a loop of the graph cannot hold is written out by `unroll.py`: few steps, whole numbers that are carried,
a body that asks for the number of its step or has bodies of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from npuflow.frontends._nodes import fold
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.loops import FEW
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.nodes import subgraphs


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
    are known."""

    node: onnx.NodeProto
    body: onnx.GraphProto
    steps: int
    states: list[str]
    scanned: list[Scanned]
    own: list[str]
    results: list[str]
    rows: list[Scanned]
    fixed: dict[str, Array] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return next(o for o in self.node.output if o)

    @property
    def origin(self) -> tuple[str, ...]:
        return (self.node.name or self.prefix,)


def looped(builder: OnnxBuilder, node: onnx.NodeProto, version: int) -> str:
    """Add a Loop or Scan as a loop of the graph; else say why not."""
    body = next(a.g for a in node.attribute if a.name == "body")
    mark = builder.mark()
    try:
        form = _loop(builder, node, body) if node.op_type == "Loop" else _scan(builder, node, body)
        _Looped(builder, form, version).add()
    except CannotLoopError as why:
        builder.back(mark)
        return str(why)
    return ""


def _scan(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto) -> LoopForm:
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
        [o.name for o in body.output], rows,
    )


def _loop(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto) -> LoopForm:
    count, going = (_number(builder, name) if name else None for name in (*node.input, "", "")[:2])
    if count is None or (len(node.input) > 1 and node.input[1] and not going):
        raise CannotLoopError("the number of its steps is not a constant")
    step, go_on = body.input[0].name, body.input[1].name
    if any(step in (*n.input, *n.output) for n in body.node) or step in [o.name for o in body.output]:
        raise CannotLoopError("its body asks for the number of its step")
    if not _goes_on(builder, body, go_on):
        raise CannotLoopError("its condition is not a constant")
    states = list(node.input[2:])
    rows = [Scanned(name) for name in node.output[len(states) :]]
    return LoopForm(
        node, body, count, states, [], [i.name for i in body.input[2:]],
        [o.name for o in body.output[1:]], rows, {go_on: np.array(True)},
    )


def _goes_on(builder: OnnxBuilder, body: onnx.GraphProto, name: str) -> bool:
    """Whether a body's condition is always true."""
    makers = {o: n for n in body.node for o in n.output}
    held = {t.name: onnx.numpy_helper.to_array(t) for t in body.initializer}
    asked = body.output[0].name
    while asked in makers and makers[asked].op_type == "Identity":
        asked = makers[asked].input[0]
    if asked == name:
        return True
    node = makers.get(asked)
    if node is not None:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type != "Constant" or value is None:
            return False
        return bool(onnx.numpy_helper.to_array(value).all())
    known = held.get(asked, builder.arrays.get(asked))
    return known is not None and bool(known.all())


@dataclass
class _Looped:
    """A loop on its way into the graph."""

    builder: OnnxBuilder
    form: LoopForm
    version: int
    names: dict[str, str] = field(default_factory=dict)         # of the body's values in the graph

    def add(self) -> None:
        form, builder = self.form, self.builder
        if form.steps <= FEW:
            raise CannotLoopError(f"{form.steps} steps")
        self._check()
        count = len(form.states)
        for name, array in form.fixed.items():
            self.names[name] = builder.constant(self._named(name), array)
        for k, (own, state) in enumerate(zip(form.own, form.states, strict=False)):
            self._real(state)
            self.names[own] = self._named(own)
            self._passed("carry", state, self.names[own], k)
        for own, one in zip(form.own[count:], form.scanned, strict=True):
            self.names[own] = self._part(one, self._named(own))
        self._body()
        results = [self._result(name) for name in form.results]
        for k, (state, value) in enumerate(zip(form.states, results, strict=False)):
            if builder.type(value) != builder.type(state):
                raise CannotLoopError(f"the type of {state} changes from step to step")
            out = form.node.output[k] or builder.free(f"{form.prefix}/last{k}")
            self._passed("last", value, out, k)
        for value, row in zip(results[count:], form.rows, strict=True):
            if row.name:
                self._rows(value, row)

    def _check(self) -> None:
        for node in self.form.body.node:
            if any(True for _ in subgraphs(node)):
                raise CannotLoopError("its body has bodies of its own")
            if any(a.name == "ceil_mode" and a.i for a in node.attribute):
                raise CannotLoopError("windows that are rounded up have no known sizes in onnxruntime's Scan")

    def _named(self, name: str) -> str:
        """The name of a value of the body; it may be in the graph outside, too, or in another loop."""
        return self.builder.free(name)

    def _real(self, name: str) -> TensorType:
        """The type of a value that crosses the border of a loop."""
        kind = self.builder.type(name)
        if kind.dtype != "float32" or not kind.is_static:
            raise CannotLoopError(f"{name} of {kind.dtype} goes through its steps")
        return kind

    def _border(self, kind: str, source: str, out: str, **more: Any) -> str:
        op = OPS[f"loop{kind}"](loop=self.form.prefix, steps=self.form.steps, **more)
        return self.builder.add(op, (source,), (out,), self.form.origin)[0]

    def _passed(self, kind: str, source: str, out: str, index: int) -> None:
        """A value that is carried, behind a border. What has no dimension passes as a tensor of one element:
        steps copy what they carry, and commands copy elements along a dimension."""
        if self.builder.type(source).shape:
            self._border(kind, source, out, index=index)
        else:
            one, behind = self._element(source, out), self.builder.free(f"{out}:behind")
            self._border(kind, one, behind, index=index)
            self._moved(behind, "reshape", out, ())

    def _element(self, source: str, out: str) -> str:
        """A number as a tensor of one element, on its way to `out`."""
        return self._moved(source, "reshape", self.builder.free(f"{out}:element"), (1,))

    def _moved(self, source: str, kind: str, out: str, setting: tuple[int, ...]) -> str:
        return self.builder.add(OPS[kind](setting), (source,), (out,), self.form.origin)[0]

    def _part(self, one: Scanned, own: str) -> str:
        """What a step has of a tensor."""
        shape = self._real(one.name).shape
        axis, source = one.axis % len(shape), one.name
        if shape[axis] != self.form.steps:
            raise CannotLoopError("its tensors have several numbers of steps")
        part = (*shape[:axis], *shape[axis + 1 :])
        if axis:
            order = (axis, *(d for d in range(len(shape)) if d != axis))
            source = self._moved(source, "transpose", self.builder.free(f"{own}:turned"), order)
        if not part:
            lone = self._border("slice", source, self.builder.free(f"{own}:row"), reverse=one.back)
            return self._moved(lone, "reshape", own, ())
        whole = (shape[axis] * part[0], *part[1:])
        source = self._moved(source, "reshape", self.builder.free(f"{own}:whole"), whole)
        return self._border("slice", source, own, reverse=one.back)

    def _body(self) -> None:
        """The nodes of a step, with values of the outside behind borders."""
        builder, body = self.builder, self.form.body
        made = {o for n in body.node for o in n.output if o}
        for tensor in body.initializer:
            self.names[tensor.name] = self._named(tensor.name)
            builder.tensor(self.names[tensor.name], tensor)
        read = dict.fromkeys(i for n in body.node for i in n.input if i)
        for name in (*read, *self.form.results):
            if name not in made and name not in self.names and name not in builder.arrays:
                self._real(name)
                self.names[name] = self._border("capture", name, self._named(name))
        self.names.update({o: self._named(o) for o in made})
        copies = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in body.node]
        fold.rename_all(copies, self.names)
        for copy in copies:
            copy.name = self.form.origin[0]     # reports name the node of the source
            plain = copy.domain in ("", "ai.onnx")
            builder.node(copy, self.version if plain else builder.version(copy.domain))

    def _result(self, name: str) -> str:
        value = self.names.get(name, name)
        self._real(value)
        return value

    def _rows(self, value: str, row: Scanned) -> None:
        """What all steps made, under the node's name of it."""
        shape, steps = self.builder.type(value).shape, self.form.steps
        axis = row.axis % (len(shape) + 1)
        if not shape:
            value = self._element(value, row.name)
        made = self._border("stack", value, self.builder.free(f"{row.name}:rows"), reverse=row.back)
        target = self.builder.free(f"{row.name}:steps") if axis else row.name
        self._moved(made, "reshape", target, (steps, *shape))
        if axis:
            order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
            self._moved(target, "transpose", row.name, order)


def _number(builder: OnnxBuilder, name: str) -> int | None:
    held = builder.arrays.get(name)
    return int(held.reshape(-1)[0]) if held is not None and held.size == 1 else None
