"""What a front end read as an ONNX model to run: the float network, rounded where the source states codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuflow.frontends import Reading
from npuflow.ir.types import QuantType
from npuflow.onnx.export import export_model

if TYPE_CHECKING:
    import onnx


def stated_model(reading: Reading) -> bytes:
    """QuantizeLinear and back around every activation whose codes are stated. Constants hold the values of
    their codes already."""
    import onnx

    model = onnx.load_model_from_string(export_model(reading.graph))
    made = {o for node in reading.graph.nodes for o in node.outputs}
    stated = {n: q for n, q in reading.stated.items() if n in made or n in reading.graph.inputs}
    nodes: list[onnx.NodeProto] = []
    fed = {name for name in stated if name in reading.graph.inputs}
    for name in fed:
        nodes += _rounding(model.graph, name, name, f"{name}:rounded", stated[name])
    for node in model.graph.node:
        node.input[:] = [f"{name}:rounded" if name in fed else name for name in node.input]
        own = [name for name in node.output if name in stated]
        node.output[:] = [f"{name}:exact" if name in stated else name for name in node.output]
        nodes.append(node)
        for name in own:
            nodes += _rounding(model.graph, f"{name}:exact", name, name, stated[name])
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copied)
    return bytes(model.SerializeToString())


def _rounding(
    graph: onnx.GraphProto, source: str, name: str, result: str, quant: QuantType
) -> list[onnx.NodeProto]:
    """The pair of nodes from `source` to `result`; scale and zero point are stored under `name`."""
    from onnx import helper, numpy_helper

    width = next(w for w in (8, 16, 32) if quant.bits <= w)
    dtype = f"int{width}" if quant.signed else f"uint{width}"
    scale, zero = np.array(quant.scale, np.float32), np.array(quant.zero_point, dtype)
    if quant.per_tensor:
        scale, zero = scale.reshape(()), zero.reshape(-1)[:1].reshape(())
    else:
        zero = np.broadcast_to(zero, scale.shape).copy()
    parameters = [f"{name}:scale", f"{name}:zero"]
    graph.initializer.extend(
        numpy_helper.from_array(a, n) for a, n in zip((scale, zero), parameters, strict=True)
    )
    codes = f"{name}:codes"
    pair = [
        helper.make_node("QuantizeLinear", [source, *parameters], [codes]),
        helper.make_node("DequantizeLinear", [codes, *parameters], [result]),
    ]
    for node in pair if quant.axis is not None else ():
        node.attribute.append(helper.make_attribute("axis", quant.axis))
    return pair
