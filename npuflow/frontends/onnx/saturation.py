"""What the saturation of a rounding does to a value, as a node of its own."""

from __future__ import annotations

import numpy as np
import onnx

from npuflow.ir.types import Array

# Quantisers leave out a Relu or Clip whose work the rounding's saturation does:
# behind these it is spelled out.
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "BatchNormalization")


def saturated(
    source: str, name: str, bounds: tuple[float, float], version: int, added: dict[str, Array]
) -> onnx.NodeProto:
    """A Clip of `source` into `name`; from opset 11 on its bounds go into the constants `added`."""
    ends = dict(zip(("min", "max"), bounds, strict=True))
    if version < 11:
        node = onnx.helper.make_node("Clip", [source], [name])
        node.attribute.extend(onnx.helper.make_attribute(end, bound) for end, bound in ends.items())
        return node
    added.update({f"{name}:{end}": np.array(bound, np.float32) for end, bound in ends.items()})
    return onnx.helper.make_node("Clip", [source, *(f"{name}:{end}" for end in ends)], [name])
