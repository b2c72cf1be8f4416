"""Picks elements of a table along its middle dimension by computed indices.
y[a, j, i] is x[a, index[j], i], or x[a, index[a, j, i], i].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OnnxCall, Op, OpContext, OpSample, Role, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import INDEX_BITS, Array, IntArray, Span, TensorType, WholeNumbers
from npuflow.ops._draw import draw

MOST = 1 << INDEX_BITS  # rows that an index tells apart
SLOTS = 4  # of local memory: two for the table's tile, the rest for all else


@OPS.entry
@dataclass(frozen=True)
class Lookup(Op):
    """Indices are whole numbers in float32; a negative one counts from the end, and the last row stands for
    one outside of the table. `wrap`: what is added to a negative one (0: the number of rows). Rows of a
    constant are loaded from external memory; from a computed table the vector unit picks. Floats are picked
    as patterns of 16 bits."""

    wrap: int = 0
    domain: ClassVar[str] = "npuflow"
    onnx: ClassVar[str] = "Lookup"
    moves_data: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_move"]}

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> No:
        return No("made by rules only")

    def to_onnx(self, site: OpContext) -> OnnxCall:
        each = len(site.shape(1)) > 1
        name, pick = ("LookupEach", "GatherElements") if each else ("Lookup", "Gather")
        body = f"""{name} <last: int, wrap: int> (x, index) => (y) {{
            whole = Cast <to = 6> (index)
            zero = Constant <value = int32 {{0}}> ()
            more = Constant <value_int: int = @wrap> ()
            most = Constant <value_int: int = @last> ()
            wrap = Cast <to = 6> (more)
            last = Cast <to = 6> (most)
            below = Less (whole, zero)
            behind = Add (whole, wrap)
            row = Where (below, behind, whole)
            low = Less (row, zero)
            high = Greater (row, last)
            out = Or (low, high)
            inside = Where (out, last, row)
            at = Cast <to = 7> (inside)
            y = {pick} <axis = 1> (x, at)
        }}"""
        rows = site.shape(0)[1]
        return OnnxCall(name, {"last": rows - 1, "wrap": self.wrap or rows}, self.domain, 1, body=body)

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, index = types[0], types[1]
        assert x is not None and index is not None
        each = len(index.shape) > 1
        return (TensorType(index.shape if each else (x.shape[0], index.shape[0], x.shape[2]), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, index = inputs[0], inputs[1]
        assert x is not None and index is not None
        return (self._picked(x, np.rint(index).astype(np.int64)),)

    def _picked(self, x: Array, index: npt.NDArray[np.int64]) -> Array:
        rows = x.shape[1]
        at = np.where(index < 0, index + (self.wrap or rows), index)
        at = np.where((at < 0) | (at >= rows), rows - 1, at)
        found = np.take(x, at, 1) if at.ndim == 1 else np.take_along_axis(x, at, 1)
        return np.ascontiguousarray(found)

    # --- integers
    def role(self, index: int) -> Role:
        return "index" if index == 1 else "table"

    def whole_numbers(self, site: OpContext) -> Mapping[str, WholeNumbers]:
        index = site.inputs[1]
        assert index is not None
        return {index.id: WholeNumbers(max(site.shape(0)[1], self.wrap), not self.wrap)}

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return spans[0]

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x, index = inputs[0], inputs[1]
        assert x is not None and index is not None
        return (self._picked(x, index.astype(np.int64)),)

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        x, index = site.shape(0), site.shape(1)
        local = target.memory.local_bytes
        return first_no(
            need(len(x) == 3 and len(index) in (1, 3), f"a table {x} with indices {index}"),
            need(min((*x, *index)) > 0, f"an empty tensor: {x} by {index}"),
            need(x[1] <= MOST, f"{x[1]} rows; an index of {INDEX_BITS} bits tells {MOST} apart"),
            need(site.consts[1] is None, "constant indices"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            need(
                _loads(site) or 2 * SLOTS * x[1] <= local,
                f"a table of {x[1]} rows that is computed; local memory has {local} bytes",
            ),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        y = site.out_shape
        axes = tuple(Axis(name, size) for name, size in zip("aji", y, strict=True))
        plain = tuple(DimMap(name) for name in "aji")
        index = Operand("index", site.shape(1), plain if len(site.shape(1)) > 1 else plain[1:2])
        out = (Operand("y", y, plain),)
        if _loads(site):
            return IterationDomain(axes, (None, index), out, fetches=True)
        table = Operand("x", site.shape(0), (plain[0], DimMap(), plain[2]))
        return IterationDomain(axes, (table, index), out, ops=1)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        rows, y, index = site.shape(0)[1], tile.outputs[0], tile.input(1)
        numbers = {"entries": rows, "wrap": self.wrap or rows}
        if tile.inputs[0] is None:
            first, item = tile.ranges["i"][0], ELEMENTS[y.dtype].bytes
            em.emit(
                "LOADROWS",
                space="CONST",
                external=em.constant(0) + first * item,
                element=item,
                row=site.shape(0)[2] * item,
                **numbers,
                index=index.address,
                index_type=index.dtype,
                index_step=index.strides[0],
                y=y.address,
                dims=y.extent[1:],
                y_strides=y.strides[1:],
            )
            return
        x = tile.input(0)
        steps = index.strides if len(index.strides) > 1 else (0, *index.strides, 0)
        em.emit(
            "GATHER",
            x=x.address,
            x_type=ELEMENTS[x.dtype].numpy,
            x_strides=x.strides,
            index=index.address,
            index_type=index.dtype,
            index_strides=steps,
            y=y.address,
            y_type=ELEMENTS[y.dtype].numpy,
            y_strides=y.strides,
            dims=y.extent,
            **numbers,
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        def indices(*shape: int) -> Array:
            return np.asarray(rng.integers(-6, 6, shape), np.float32)

        yield OpSample(cls(), (draw(rng, 1, 6, 8), indices(5)), (0,))
        yield OpSample(cls(wrap=5), (draw(rng, 1, 6, 3), np.asarray([0, 9, -1, -7], np.float32)), (0,))
        yield OpSample(cls(), (draw(rng, 2, 6, 3), indices(4)))
        yield OpSample(cls(), (draw(rng, 2, 6, 3), indices(2, 5, 3)))


def _loads(site: OpContext) -> bool:
    """Whether rows of a constant are loaded: one index means one run of bytes."""
    return site.consts[0] is not None and site.shape(0)[0] == 1 and len(site.shape(1)) == 1
