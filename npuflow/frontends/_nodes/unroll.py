"""Writes out Loop and Scan of a known number of steps.
Each step is a copy of the body, with its values renamed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.frontends._nodes import fold
from npuflow.frontends._nodes.counters import goes_on, number
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.types import Array
from npuflow.onnx.nodes import subgraphs

MOST = 16384                              # nodes that a loop may become, with all loops in it
# why a loop in the body of another one is not written out in it, and that one is
LARGE = "the loops of its body, written out in it, have more nodes than all of its steps with these loops"
# nodes of a step of a recurrent layer that is written out, and of one that is a loop
RECURRENT = {"LSTM": 12, "GRU": 12, "RNN": 4}
LOOP = 20
_make = onnx.helper.make_node


def unrolled(builder: OnnxBuilder, node: onnx.NodeProto, version: int) -> str:
    """Add a Loop or Scan written out; else say why it stays."""
    body = next(a.g for a in node.attribute if a.name == "body")
    return (
        _loop(builder, node, body, version) if node.op_type == "Loop" else _scan(builder, node, body, version)
    )


def _loop(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto, version: int) -> str:
    """As many steps as the trip count says, or until a condition that is known at every step."""
    count, going = (number(builder, name) if name else None for name in (*node.input, "", "")[:2])
    if node.input[0] and count is None:
        return "the number of its steps is not a constant"
    if (len(node.input) > 1 and node.input[1] and going is None) or (count is None and going is None):
        return "its condition is not a constant"
    states, scans, step = list(node.input[2:]), len(node.output) - len(node.input) + 2, 0
    rows: list[list[str]] = [[] for _ in range(scans)]
    most = MOST if builder.room is None else builder.room
    each = f"more than {MOST} nodes, {len(body.node)} in each of its steps"
    long = each if builder.room is None else LARGE
    if count is not None and going != 0 and goes_on(builder, body) and count * len(body.node) > most:
        return long
    while (count is None or step < count) and (going is None or going):
        if (step + 1) * len(body.node) > most:
            return long
        names = {body.input[1].name: _constant(builder, node, f"{step}/going", np.array(True))}
        names[body.input[0].name] = _constant(builder, node, f"{step}/step", np.array(step, np.int64))
        names.update(zip((i.name for i in body.input[2:]), states, strict=True))
        results = _step(builder, node, body, version, step, names)
        going = number(builder, results[0])
        if going is None:
            return "its condition depends on data"
        _handed_on(builder, node, states, results[1:])
        states = results[1 : 1 + len(states)]
        for row, value in zip(rows, results[1 + len(states) :], strict=True):
            row.append(value)
        step += 1
    if scans and not step:
        return "no steps"
    _finish(builder, node, version, states, rows, [0] * scans)
    return ""


def _scan(builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto, version: int) -> str:
    """A step for each slice of the scanned inputs."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name != "body"}
    count: int = given["num_scan_inputs"]
    states = list(node.input[: len(node.input) - count])
    scanned, outputs = list(node.input[len(states) :]), len(node.output) - len(states)
    axes, back = (given.get(f"scan_input_{name}") or [0] * count for name in ("axes", "directions"))
    out_axes, out_back = (
        given.get(f"scan_output_{name}") or [0] * outputs for name in ("axes", "directions")
    )
    shapes = [builder.type(name).shape for name in scanned]
    if not all(shapes) or not shapes or any(not builder.type(name).is_static for name in scanned):
        return "the number of its steps is not known"
    steps = shapes[0][axes[0] % len(shapes[0])]
    if builder.room is not None and steps * (len(body.node) + count) > builder.room:
        return LARGE
    if steps * (len(body.node) + count) > MOST:
        return f"{steps} steps of {len(body.node)} nodes, more than {MOST} in all"
    rows: list[list[str]] = [[] for _ in range(outputs)]
    for step in range(steps):
        names = dict(zip((i.name for i in body.input), states, strict=False))
        for k, (name, axis, shape) in enumerate(zip(scanned, axes, shapes, strict=True)):
            at = _constant(
                builder, node, f"{step}/at{k}", np.array(steps - 1 - step if back[k] else step, np.int64)
            )
            one = f"{_prefix(node)}/{step}/input{k}"
            builder.node(_make("Gather", [name, at], [one], _called(node), axis=axis % len(shape)), version)
            names[body.input[len(states) + k].name] = one
        results = _step(builder, node, body, version, step, names)
        _handed_on(builder, node, states, results)
        states = results[: len(states)]
        for k, value in enumerate(results[len(states) :]):
            rows[k].insert(0 if out_back[k] else step, value)
    _finish(builder, node, version, states, rows, list(out_axes))
    return ""


def _step(
    builder: OnnxBuilder,
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    version: int,
    step: int,
    names: Mapping[str, str],
) -> list[str]:
    """A copy of the body; its results' names."""
    prefix = f"{_prefix(node)}/{step}"
    renamed = {n: f"{prefix}/{n}" for inner in body.node for n in inner.output if n}
    renamed |= {t.name: f"{prefix}/{t.name}" for t in body.initializer}
    renamed.update(names)
    for tensor in body.initializer:
        builder.tensor(renamed[tensor.name], tensor)
    copies = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in body.node]
    fold.rename_all(copies, renamed)
    for copy in copies:
        copy.name = _called(node)         # reports name the node of the source
        builder.node(copy, version if copy.domain in ("", "ai.onnx") else builder.version(copy.domain))
    return [renamed.get(o.name, o.name) for o in body.output]


def _handed_on(builder: OnnxBuilder, node: onnx.NodeProto, before: list[str], after: list[str]) -> None:
    """An error where a step hands on another element type than it takes, in a Scan another shape, too."""
    for k, names in enumerate(zip(before, after, strict=False)):
        old, new = kinds = [builder.type(name) for name in names]
        shape = node.op_type == "Scan" and old.is_static and new.is_static and old.shape != new.shape
        if old.dtype != new.dtype or shape:
            said = ["x".join(map(str, (*one.shape, one.dtype))) for one in kinds]
            raise ModelError(
                f"carried value {k} of {node.op_type} {_called(node)} changes its "
                + ("shape" if old.dtype == new.dtype else "type"),
                because=f"a step takes {said[0]} and hands {said[1]} on", code="NF-MODEL-510",
                hint="make the body give what it takes: a Cast or a Reshape at its end",
            ).at(node=_called(node), value=names[0])


def _finish(
    builder: OnnxBuilder,
    node: onnx.NodeProto,
    version: int,
    states: list[str],
    rows: list[list[str]],
    axes: list[int],
) -> None:
    """The last states, and what every step gave as one tensor, under the node's own names."""
    for value, output in zip(states, node.output, strict=False):
        if output:
            builder.node(_make("Identity", [value], [output], _called(node)), version)
    for k, (row, axis, output) in enumerate(zip(rows, axes, node.output[len(states) :], strict=True)):
        if not output:
            continue
        at = _constant(builder, node, f"axis{k}", np.array([axis], np.int64))
        wide = [f"{_prefix(node)}/{step}/output{k}" for step in range(len(row))]
        for value, name in zip(row, wide, strict=True):
            builder.node(_make("Unsqueeze", [value, at], [name], _called(node)), version)
        builder.node(_make("Concat", wide, [output], _called(node), axis=axis), version)


def _prefix(node: onnx.NodeProto) -> str:
    """In front of the names of its steps; a node in a loop has the name of the loop,
    but outputs of its own."""
    return next(o for o in node.output if o)


def _called(node: onnx.NodeProto) -> str:
    return node.name or _prefix(node)


def _constant(builder: OnnxBuilder, node: onnx.NodeProto, name: str, values: Array) -> str:
    value = f"{_prefix(node)}/{name}"
    builder.constant(value, values)
    return value


def size_of(body: onnx.GraphProto) -> int:
    """Nodes of a body whose own loops stay loops."""
    count = len(body.node)
    for node in body.node:
        inner = sum(size_of(one) for one in subgraphs(node))
        count += inner + len(node.input) + len(node.output) if inner else LOOP * (node.op_type in RECURRENT)
    return count


def steps_of_layer(builder: OnnxBuilder, node: onnx.NodeProto) -> int:
    """How many steps a recurrent layer has; 0: it is none."""
    if node.op_type not in RECURRENT or node.domain:
        return 0
    first = next((a.i for a in node.attribute if a.name == "layout"), 0)
    shape = builder.type(node.input[0]).shape
    return shape[first] if len(shape) == 3 else 0
