"""Roundings in the bodies of Loop and Scan, and in bodies in these, lifted as those of the model are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from npuflow.ir.types import QuantType
from npuflow.onnx.nodes import captured, subgraphs

Lift = Callable[[onnx.ModelProto], tuple[onnx.ModelProto, dict[str, QuantType]]]


def with_bodies(model: onnx.ModelProto, lift: Lift) -> tuple[onnx.ModelProto, dict[str, QuantType]]:
    """The model, itself where no body rounds, and the codes of values of its bodies. `lift`: a model without
    its roundings, those of its own bodies among them, and the codes that they are to."""
    if not any(_rounds(body) for _, body in _bodies(model)):
        return model, {}
    made, stated = onnx.ModelProto.FromString(model.SerializeToString()), dict[str, QuantType]()
    outer = {t.name: t for t in made.graph.initializer}
    for attribute, body in _bodies(made):
        alone = onnx.ModelProto(ir_version=made.ir_version)
        alone.opset_import.extend(made.opset_import)
        alone.graph.CopyFrom(body)
        own = {o for n in body.node for o in n.output} | {t.name for t in body.initializer}
        read = dict.fromkeys(
            i for n in body.node for i in (*n.input, *captured(n)) if i in outer and i not in own
        )
        alone.graph.initializer.extend(outer[name] for name in read)
        whole, codes = lift(alone)
        stated.update(codes)
        kept = [t for t in whole.graph.initializer if t.name not in read]
        attribute.g.CopyFrom(whole.graph)
        del attribute.g.initializer[:]
        attribute.g.initializer.extend(kept)
    return made, stated


def _bodies(model: onnx.ModelProto) -> Iterator[tuple[onnx.AttributeProto, onnx.GraphProto]]:
    for node in model.graph.node:
        if node.op_type in ("Loop", "Scan") and node.domain in ("", "ai.onnx"):
            yield from ((a, a.g) for a in node.attribute if a.name == "body")


def _rounds(body: onnx.GraphProto) -> bool:
    return any(
        node.op_type in ("QuantizeLinear", "DequantizeLinear") or any(map(_rounds, subgraphs(node)))
        for node in body.node
    )
