"""Spells float Mod with the divisor's sign as the one with x's sign and a correction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import attribute
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellFlooredMod(Decomposition):
    """What the host computes of it, behind the rule that makes NPU operators of it: below opset 28 ONNX has
    Mod of floats with fmod 1 alone. Infinite operands, signed zeros and NaN are as Python has them."""

    order = 5
    triggers = ("host:mod",)
    makes = ("host",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if graph.type(node.inputs[0]).dtype != "float32" or attribute(node, "fmod", 0):
            return None
        return super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        x, by = parts.input(0), parts.input(1)
        own = replace(parts.node.op, attributes=(("fmod", 1),))  # type: ignore[call-arg]
        left = parts.op_as(own, (x, by), "left")
        sign = _host(parts, "Sign", by)
        product = _host(parts, "Mul", _host(parts, "Sign", left), sign)
        apart = _host(parts, "Less", product, parts.const(0.0, "zero"), dtype="bool")
        turned = _host(parts, "Where", apart, _host(parts, "Add", left, by), left)
        # the sign of a zero as well, which onnxruntime's Where loses
        return (_host(parts, "Mul", _host(parts, "Abs", turned), sign),)


def _host(parts: Parts, name: str, *inputs: str, dtype: str = "float32") -> str:
    """An operator of the host that no rule spells in others: masks of 0 and 1 know no infinity."""
    shape = np.broadcast_shapes(*(parts.shape(i) for i in inputs))
    op = OPS["host"](
        op_type=name, version=EXPORT_OPSET, types=(TensorType(shape, dtype),), kept=True,
        reason="its Mod is the host's",
    )
    return parts.op_as(op, inputs, name.lower())
