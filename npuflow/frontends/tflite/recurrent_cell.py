"""A recurrent cell as a loop: with norms, projections and bounds, which ONNX's layers lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.frontends.tflite.network import ACTIVATIONS, TfliteBuilder, TfliteOperatorError
from npuflow.ir.loops import FEW
from npuflow.ir.op import OPS
from npuflow.ir.types import Array

GATES = "ifco"  # input, forget, cell, output, as TFLite orders them
EPSILON = 1e-8  # of LiteRT's norms


@dataclass(frozen=True)
class Cell:
    """Weights of one direction by gate; a simple cell has the gate "c" alone. `activation`: TFLite's
    number of the function of the cell's gate and state."""

    w: Mapping[str, Array]  # of the input, [units, inputs]
    r: Mapping[str, Array]  # of the state, [units, outputs]
    b: Mapping[str, Array]
    peepholes: Mapping[str, Array] = field(default_factory=dict)
    norms: Mapping[str, Array] = field(default_factory=dict)
    projection: Array | None = None  # [outputs, units]
    projection_bias: Array | None = None
    activation: int = 4
    cell_clip: float = 0.0
    projection_clip: float = 0.0


def written(builder: TfliteBuilder, x: str, cell: Cell, size: tuple[int, int, int], backward: bool) -> str:
    """The results of all steps, [steps, batch, outputs]. `x`: [steps, batch, inputs], as `size` says."""
    steps, batch, inputs = size
    rows = builder.node("Reshape", [x, builder.shape([steps * batch, inputs])])
    products = {gate: _products(builder, rows, cell, gate) for gate in cell.w}
    if steps > FEW:
        return _looped(builder, products, cell, size, backward)
    sums = {gate: _steps(builder, made, gate, steps, batch) for gate, made in products.items()}
    results, h, c = [""] * steps, "", ""
    for step in range(steps - 1, -1, -1) if backward else range(steps):
        given = {gate: sums[gate][step] for gate in cell.w}
        h, c = _step(builder, cell, given, h, c)
        results[step] = builder.node("Unsqueeze", [h, builder.shape([0])])
    return builder.node("Concat", results, axis=0)


def _looped(
    builder: TfliteBuilder, products: Mapping[str, str], cell: Cell, size: tuple[int, int, int],
    backward: bool,
) -> str:
    """The same as a loop of the graph."""
    steps, batch, _ = size
    units = cell.r["c"].shape[0]
    name = builder.free(f"{builder.origin}:{'backward' if backward else 'forward'}")

    def border(kind: str, source: str, what: str, **more: Any) -> str:
        op = OPS[f"loop{kind}"](loop=name, steps=steps, **more)
        return builder.graph.add(op, (source,), (builder.free(f"{name}:{what}"),), (builder.origin,))[0]

    def carried(width: int, index: int, what: str) -> str:
        zeros = builder.constant(np.zeros((batch, width), np.float32), name=f"{name}:{what}_initial")
        return border("carry", zeros, what, index=index)

    given = {gate: border("slice", made, gate, reverse=backward) for gate, made in products.items()}
    h, c = carried(cell.r["c"].shape[1], 0, "state"), carried(units, 1, "memory") if "o" in cell.w else ""
    after, memory = _step(builder, cell, given, h, c)
    border("last", after, "last", index=0)
    if c:
        border("last", memory, "last_memory", index=1)
    made = border("stack", after, "rows", reverse=backward)
    return builder.node("Reshape", [made, builder.shape([steps, batch, cell.r["c"].shape[1]])])


def _products(builder: TfliteBuilder, rows: str, cell: Cell, gate: str) -> str:
    """The input's part of a gate at all steps. A norm's bias is added behind the norm."""
    bias = [] if gate in cell.norms else [builder.constant(cell.b[gate])]
    return builder.node("Gemm", [rows, builder.constant(cell.w[gate]), *bias], transB=1)


def _steps(builder: TfliteBuilder, made: str, gate: str, steps: int, batch: int) -> list[str]:
    if steps == 1:
        return [made]
    parts = [builder.free(f"{builder.origin}:{gate}{step}") for step in range(steps)]
    builder.many("Split", [made, builder.shape([batch] * steps)], parts, axis=0)
    return parts


def _step(builder: TfliteBuilder, cell: Cell, given: Mapping[str, str], h: str, c: str) -> tuple[str, str]:
    """State and cell state behind a step; "" stands for zeros."""

    def gate(name: str, state: str) -> str:
        total = given[name]
        if h:
            product = builder.node("Gemm", [h, builder.constant(cell.r[name])], transB=1)
            total = builder.node("Add", [total, product])
        if name in cell.peepholes and state:
            seen = builder.node("Mul", [state, builder.constant(cell.peepholes[name])])
            total = builder.node("Add", [total, seen])
        if name in cell.norms:
            more = [builder.constant(cell.norms[name]), builder.constant(cell.b[name])]
            total = builder.node("LayerNormalization", [total, *more], axis=-1, epsilon=EPSILON)
        return active(builder, cell, total) if name == "c" else builder.node("Sigmoid", [total])

    if "o" not in cell.w:
        return gate("c", ""), ""
    new = builder.node("Mul", [gate("i", c), gate("c", "")])
    if c:
        new = builder.node("Add", [builder.node("Mul", [gate("f", c), c]), new])
    c = bounded(builder, new, cell.cell_clip)
    h = builder.node("Mul", [gate("o", c), active(builder, cell, c)])
    if cell.projection is not None:
        bias = [] if cell.projection_bias is None else [builder.constant(cell.projection_bias)]
        h = builder.node("Gemm", [h, builder.constant(cell.projection), *bias], transB=1)
        h = bounded(builder, h, cell.projection_clip)
    return h, c


def active(builder: TfliteBuilder, cell: Cell, x: str) -> str:
    if not cell.activation:
        return x
    if cell.activation not in ACTIVATIONS:
        raise TfliteOperatorError(f"activation function {cell.activation}")
    kind, bounds = ACTIVATIONS[cell.activation]
    return builder.node(kind, [x, *(builder.constant(bound) for bound in bounds)])


def bounded(builder: TfliteBuilder, x: str, most: float) -> str:
    return builder.node("Clip", [x, *(builder.constant(np.float32(v)) for v in (-most, most))]) if most else x
