"""A Resize that no operator file takes (cubic, antialiased) as one product per axis
with a constant matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.ir.types import Array, TensorType
from npuflow.onnx.run import CannotRunError
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 20                           # elements of a matrix


@RULES.entry
class SpellResize(Decomposition):
    """What the resized axis of a unit matrix becomes is the matrix; onnxruntime computes it."""

    triggers = ("host:resize",)
    makes = ("matmul", "transpose", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, out = parts.input(0), parts.shape(parts.node.outputs[0])
        if str(parts.attribute("coordinate_transformation_mode", "half_pixel")) == "tf_crop_and_resize":
            return "a crop: what lies outside is a number of its own"
        if str(parts.attribute("keep_aspect_ratio_policy", "stretch")) != "stretch":
            return "an aspect ratio that is kept"
        if any(parts.input(i) and parts.number(i) is None for i in (2, 3)) or not all(d > 0 for d in out):
            return "neither scales nor sizes is a constant"
        scales = _scales(parts, len(out))
        for axis, (size, wanted) in enumerate(zip(parts.shape(x), out, strict=True)):
            if size == wanted and (scales is None or scales[axis] == 1.0):
                continue
            if size * wanted > _MOST:
                return f"an axis of {size} to {wanted}"
            try:
                matrix = _matrix(parts, size, wanted, None if scales is None else scales[axis])
            except CannotRunError as fault:
                return str(fault)
            x = _along(parts, x, axis, matrix)
        return (x,)


def _scales(parts: Parts, rank: int) -> list[float] | None:
    """By axis of the tensor; None where sizes are given."""
    held = parts.number(2)
    if held is None or not held.size:
        return None
    axes = parts.attribute("axes", tuple(range(rank)))
    found = [1.0] * rank
    for axis, scale in zip(axes if isinstance(axes, tuple) else (), held.reshape(-1).tolist(), strict=True):
        found[int(axis) % rank] = float(scale)
    return found


def _matrix(parts: Parts, size: int, wanted: int, scale: float | None) -> Array:
    """[size, wanted]: the last axis of a unit matrix, resized."""
    op = parts.node.op
    kept = tuple((k, v) for k, v in op.attributes if k != "axes")  # type: ignore[attr-defined]
    alone = replace(op, attributes=kept, types=(TensorType((1, 1, size, wanted)),))  # type: ignore[call-arg]
    unit = np.eye(size, dtype=np.float32)[None, None]
    scales = np.array([1, 1, 1, scale], np.float32) if scale is not None else None
    sizes = np.array([1, 1, size, wanted], np.int64) if scale is None else None
    (found,) = alone.reference(*([unit, None, scales] if sizes is None else [unit, None, None, sizes]))
    return np.asarray(found[0, 0])


def _along(parts: Parts, x: str, axis: int, matrix: Array) -> str:
    """x times the matrix along an axis."""
    rank = len(parts.shape(x))
    if axis == rank - 2:                  # columns stay: the matrix stands in front
        return parts.matmul(parts.const(matrix.T, "matrix"), x)
    order = [d for d in range(rank) if d != axis] + [axis]
    y = parts.matmul(parts.transpose(x, order), parts.const(matrix, "matrix"))
    return parts.transpose(y, np.argsort(order).tolist())
