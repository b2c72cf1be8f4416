"""What the operators that move data ask of an ONNX node."""

from __future__ import annotations

import numpy as np

from npuflow.ir.op import No, OnnxCall
from npuflow.ir.types import TensorType


def static_input(call: OnnxCall) -> TensorType | No:
    """The first input's type, whose every dimension must be known."""
    x = call.types[0]
    return x if x is not None and x.is_static else No("the input's shape is not static")


def integers(call: OnnxCall, name: str) -> tuple[int, ...] | No | None:
    """What is an attribute in old opsets and the second input in new ones; None if the node has neither."""
    given = call.attributes.get(name)
    if given is not None:
        return tuple(int(v) for v in given)
    if len(call.types) < 2 or call.types[1] is None:
        return None
    if call.consts[1] is None:
        return No(f"the {name} is not a constant" if name == "shape" else f"the {name} are not a constant")
    return tuple(np.asarray(call.consts[1]).reshape(-1).tolist())
