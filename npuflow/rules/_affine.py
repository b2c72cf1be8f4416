"""Moves per-channel y = scale * f(x) + shift into weights and bias, where exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import No, Node, Op
from npuflow.ir.queries import kind
from npuflow.ir.types import Array
from npuflow.rules import Change
from npuflow.rules._match import attribute, fresh, origins, per_channel

Reals = npt.NDArray[np.float64]
WEIGHTED = ("conv", "convtranspose", "gemm")


@dataclass(frozen=True)
class Affine:
    """y[c] = scale[c] * x[c] + shift[c] of the activation `source`."""

    source: str
    scale: Reals
    shift: Reals


def affine(graph: Graph, node: Node, axis: int) -> Affine | None:
    """The per-channel map along `axis` that an Add, Sub, Mul or Div with a constant, or a
    batch normalisation, computes."""
    name, out = kind(node), graph.type(node.outputs[0])
    if name == "host:batchnormalization":
        return batchnorm(graph, node)
    if name not in ("add", "sub", "mul", "div") or len(out.shape) <= axis or not out.is_static:
        return None
    for position in (0, 1):
        array = graph.const(node.inputs[1 - position])
        source = node.inputs[position]
        if array is None or graph.const(source) is not None or graph.type(source).shape != out.shape:
            continue
        c = per_channel(array.astype(np.float64), out.shape, axis)
        if c is None or (name == "div" and (position == 1 or not np.all(c))):
            return None
        one, zero = np.ones_like(c), np.zeros_like(c)
        scale = {
            "mul": c,
            "div": one / c if name == "div" else one,
            "add": one,
            "sub": one if position == 0 else -one,
        }[name]
        shift = {"mul": zero, "div": zero, "add": c, "sub": -c if position == 0 else c}[name]
        return Affine(source, scale, shift)
    return None


def batchnorm(graph: Graph, node: Node) -> Affine | None:
    """Inference-mode batch normalisation with constant statistics; None otherwise."""
    arrays = [graph.const(i) for i in node.inputs[1:5]]
    if attribute(node, "training_mode", 0) or any(a is None for a in arrays) or len(arrays) < 4:
        return None
    gamma, beta, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    scale = gamma / np.sqrt(variance + float(attribute(node, "epsilon", 1e-5)))
    return Affine(node.inputs[0], scale, beta - mean * scale)


def after(graph: Graph, source: Node, node: Node, change: Affine) -> Change | str:
    """`node` computes the affine map of `source`'s result: one node with other weights, or why not."""
    weight = graph.const(source.inputs[1])
    bias = graph.const(source.inputs[2]) if len(source.inputs) > 2 and source.inputs[2] else None
    if weight is None:
        return "the weight is not a constant"
    if len(source.inputs) > 2 and source.inputs[2] and bias is None:
        return "the bias is not a constant"
    if source.op.clip is not None:
        return "a clip is between them"
    found = source.op.then_scaled(weight, bias, change.scale, change.shift)
    if isinstance(found, No):
        return found.reason
    return _reweighted(graph, (source, node), source.op.unit_bias(), source.inputs[0], *found)


def before(graph: Graph, source: Node, node: Node, change: Affine) -> Change | str:
    """`source` computes an affine map of what the weighted `node` reads: one node
    with other weights, or why not."""
    border = node.op.border(graph.site(node))
    if isinstance(border, No):
        return f"its offset would also move what surrounds the image: {border.reason}"
    if np.any(change.shift) and any(border[0]) and graph.const(node.inputs[1]) is not None:
        return f"its offset would also move the zero padding {spatial(border[0])}"
    weight = graph.const(node.inputs[1])
    bias = graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weight is None or (len(node.inputs) > 2 and node.inputs[2] and bias is None):
        return "weight or bias is not a constant"
    found = node.op.of_scaled(weight, bias, change.scale, change.shift)
    if isinstance(found, No):
        return found.reason
    return _reweighted(graph, (node, source), node.op, change.source, *found)


def _reweighted(
    graph: Graph, pair: tuple[Node, Node], op: Op, source: str, w: Array, b: Array | None
) -> Change | str:
    if not np.all(np.isfinite(w)) or (b is not None and not np.all(np.isfinite(b))):
        return "the new weights are not finite"
    output = pair[1].outputs[0] if pair[0].outputs[0] in pair[1].inputs else pair[0].outputs[0]
    value, consts = constant(fresh(graph, f"{output}:weight"), w.astype(np.float32))
    values, inputs = [value], [source, value.id]
    if b is not None:
        bias, more = constant(fresh(graph, f"{output}:bias"), np.ascontiguousarray(b).astype(np.float32))
        values.append(bias)
        inputs.append(bias.id)
        consts.update(more)
    node = Node(op, tuple(inputs), (output,), origins(*pair))
    return Change(pair, (node,), tuple(values), tuple(consts.items()))


def spatial(widths: Sequence[int]) -> tuple[int, ...]:
    """The widths of a border without those of batch and channels."""
    half = len(widths) // 2
    return (*widths[2:half], *widths[half + 2 :])
