"""Operators of ai.onnx.ml that are arithmetic, as standard operators.

Exporters write the scalers, norms and linear models of scikit-learn so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from npuflow.frontends._nodes.microsoft import FusedNode, Types
from npuflow.ir.types import Array

LEARNING = "ai.onnx.ml"
_NORMS = {"L1": 1, "L2": 2}                     # LpNormalization's p
_TRANSFORMS = {"NONE": "Identity", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}
_FLOAT = 1  # onnx's number of the type
MOST = 20   # labels that a note names


def arithmetic(node: onnx.NodeProto, types: Types, prefix: str) -> list[onnx.NodeProto] | None:
    """The node as nodes of the default domain; None where it is no arithmetic, or its form is not known."""
    form = FORMS.get(node.op_type) if node.domain == LEARNING else None
    if form is None or not node.input or not any(node.output):
        return None
    return form(FusedNode(node, types, prefix))


def _floats(f: FusedNode) -> str:
    """The input in float32, which all of these compute in."""
    kind, x = f.types.get(f.input(0)), f.input(0)
    return x if kind is not None and kind.dtype == "float32" else f.add("Cast", [x], "floats", to=_FLOAT)


def _constant(f: FusedNode, name: str, values: Array) -> str:
    made = onnx.numpy_helper.from_array(np.asarray(values, np.float32))
    output = f"{f.prefix}/{name}"
    f.made.append(onnx.helper.make_node("Constant", [], [output], value=made))
    return output


def _scaler(f: FusedNode) -> list[onnx.NodeProto] | None:
    """(x - offset) * scale, by feature or for all."""
    offset, scale = (np.array(f.number(name, []), np.float32) for name in ("offset", "scale"))
    if not offset.size or not scale.size:       # onnxruntime asks for both
        return None
    x = _floats(f)
    if offset.any():
        x = f.add("Sub", [x, _constant(f, "offset", offset)], "centred")
    f.add("Mul", [x, _constant(f, "scale", scale)], f.node.output[0])
    return f.done()


def _normalizer(f: FusedNode) -> list[onnx.NodeProto] | None:
    p = _NORMS.get(f.number("norm", b"MAX").decode())
    if p is None:
        return None
    f.add("LpNormalization", [_floats(f)], f.node.output[0], axis=-1, p=p)
    return f.done()


def _scores(f: FusedNode, targets: int, out: str) -> str | None:
    """x by the coefficients [targets, features], with the intercepts, transformed: [samples, targets]."""
    transform = _TRANSFORMS.get(f.number("post_transform", b"NONE").decode())
    weight = np.array(f.number("coefficients", []), np.float32)
    bias = np.array(f.number("intercepts", []), np.float32)
    if transform is None or not weight.size or weight.size % targets or bias.size not in (0, targets):
        return None
    bias = bias if bias.size else np.zeros(targets, np.float32)
    plain = transform == "Identity"
    held = _constant(f, "coefficients", weight.reshape(targets, -1)), _constant(f, "intercepts", bias)
    last = f.add("Gemm", [_floats(f), *held], out if plain else "sums", transB=1)
    if not plain:
        last = f.add(transform, [last], out, **({"axis": -1} if transform == "Softmax" else {}))
    return last


def _regressor(f: FusedNode) -> list[onnx.NodeProto] | None:
    made = _scores(f, f.number("targets", 1), f.node.output[0])
    return None if made is None else f.done()


def _classifier(f: FusedNode) -> list[onnx.NodeProto] | None:
    """Scores of as many labels, and the label of the greatest. Labels that are text have no tensor here."""
    labels = f.number("classlabels_ints", [])
    if len(labels) < 2 or len(f.number("intercepts", labels)) != len(labels):
        return None                             # one score for two labels
    scores = _scores(f, len(labels), f.node.output[1] if f.has_output(1) else "scores")
    if scores is None:
        return None
    if f.has_output(0):
        best = f.add("ArgMax", [scores], "best", axis=-1, keepdims=0)
        f.add("Gather", [f.integers("labels", labels), best], f.node.output[0], axis=0)
    return f.done()


def _feature_extractor(f: FusedNode) -> list[onnx.NodeProto] | None:
    """Columns of x [..., features] in the order of the indices; of a row as [1, indices]."""
    x, rank = f.input(0), f.rank(f.input(0))
    if rank is None:
        return None
    flat = f.add("Reshape", [f.input(1), f.integers("flat", [-1])], "indices")
    if rank == 1:
        x = f.add("Reshape", [x, f.integers("row", [1, -1])], "rows")
    f.add("Gather", [x, flat], f.node.output[0], axis=-1)
    return f.done()


def spread(model: onnx.ModelProto) -> list[str]:
    """Gives the scores of every ZipMap as an array, in place, and says so: a program gives no maps."""
    notes = []
    for node in model.graph.node:
        if node.domain == LEARNING and node.op_type == "ZipMap" and any(node.output):
            labels = next((a for a in node.attribute if a.name.startswith("classlabels_")), None)
            held = [] if labels is None else onnx.helper.get_attribute_value(labels)
            named = ", ".join(x.decode() if isinstance(x, bytes) else str(x) for x in held[:MOST])
            more = ", ..." if len(held) > MOST else ""
            said = "is an array of scores, not a map of labels to them; its columns are"
            notes.append(f'"{node.output[0]}" {said} {named}{more}')
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output[:1], node.name))
            for info in (i for i in model.graph.output if i.name == node.output[0]):
                info.ClearField("type")
    return notes


FORMS: Mapping[str, Callable[[FusedNode], list[onnx.NodeProto] | None]] = {
    "Scaler": _scaler,
    "Normalizer": _normalizer,
    "LinearRegressor": _regressor,
    "LinearClassifier": _classifier,
    "ArrayFeatureExtractor": _feature_extractor,
}
