"""Borders around a tensor: a constant, its own edge, or its mirror image; negative pads crop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.types import Array, IntArray, Span, TensorType
from npuflow.ops._movement import DataLayoutOp, Piece, fill_code, pieces_to_moves
from npuflow.ops._reshaping import static_input


@OPS.entry
@dataclass(frozen=True)
class Pad(DataLayoutOp):
    """`pads`: begins of every dimension, then ends, as in ONNX. A constant that the
    scale cannot reach saturates."""

    pads: tuple[int, ...] = ()
    mode: str = "constant"
    value: float = 0.0
    onnx: ClassVar[str] = "Pad"
    algebra: ClassVar[Algebra] = "border"

    def border(self, site: OpContext) -> tuple[tuple[int, ...], float] | No:
        return (self.pads, self.value) if self.mode == "constant" else No(f"mode {self.mode}")

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        border = int(self.value) if float(self.value).is_integer() else None
        return super().whole_result(site, (*spans, None if border is None else (border, border)), output)

    def with_border(self, widths: Sequence[int], value: float = 0.0) -> Self:
        return self.with_(pads=tuple(widths), mode="constant", value=value)

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = static_input(call)
        if isinstance(x, No):
            return x
        extra = call.consts[1:] + (None,) * 3
        present = [i < len(call.types) and call.types[i] is not None for i in range(1, 4)]
        pads, value = (
            call.attributes.get("pads", call.attributes.get("paddings")),
            call.attributes.get("value", 0.0),
        )
        if pads is None:
            if extra[0] is None:
                return No("the pads are not a constant")
            pads = np.asarray(extra[0]).reshape(-1).tolist()
        if present[1]:
            if extra[1] is None:
                return No("the value is not a constant")
            value = np.asarray(extra[1]).reshape(-1)[0] if np.asarray(extra[1]).size else 0.0
        rank = len(x.shape)
        if present[2]:
            if extra[2] is None:
                return No("the axes are not a constant")
            full = [0] * (2 * rank)
            axes = [int(a) % rank for a in np.asarray(extra[2]).reshape(-1)]
            for i, a in enumerate(axes):
                full[a], full[rank + a] = int(pads[i]), int(pads[len(axes) + i])
            pads = full
        mode = call.attributes.get("mode", "constant")
        if mode not in ("constant", "edge", "reflect"):
            return No(f"mode {mode}")
        if mode == "reflect" and any(p > d - 1 for p, d in zip(pads, x.shape * 2, strict=True)):
            return No("a reflection wider than the tensor")
        return Imported(cls(tuple(int(p) for p in pads), mode, float(value)), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        value = np.array(self.value, site.outputs[0].type.dtype) if self.mode == "constant" else None
        return OnnxCall("Pad", {"mode": self.mode}, inputs=(0, np.array(self.pads, np.int64), value))

    def _both(self, rank: int) -> list[tuple[int, int]]:
        return list(zip(self.pads[:rank], self.pads[rank:], strict=True))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = types[0]
        assert x is not None
        return (
            TensorType(
                tuple(d + a + b for d, (a, b) in zip(x.shape, self._both(len(x.shape)), strict=True)), x.dtype
            ),
        )

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (self._padded(inputs[0], self.value),)

    def _padded(self, x: Array, value: float) -> Array:
        both = self._both(x.ndim)
        x = x[tuple(slice(max(0, -a), d - max(0, -b)) for d, (a, b) in zip(x.shape, both, strict=True))]
        wide = [(max(a, 0), max(b, 0)) for a, b in both]
        if self.mode == "constant":
            return np.pad(x, wide, constant_values=x.dtype.type(value))
        return np.pad(x, wide, mode="edge" if self.mode == "edge" else "reflect")

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {"fill": fill_code(site, self.value)}

    def integer(self, site: OpContext, inputs: object, numerics: Numerics) -> tuple[IntArray, ...]:
        x = inputs[0]  # type: ignore[index]
        return (self._padded(x, site.param("fill")),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        shape, out = site.shape(0), site.out_shape
        pieces: list[list[Piece]] = []
        for d, (a, b) in zip(shape, self._both(len(shape)), strict=True):
            inner: list[Piece] = [(d + min(a, 0) + min(b, 0), max(0, -a), 1, max(0, a))]
            if self.mode == "edge":
                inner += [(a, 0, 0, 0), (b, d - 1, 0, max(a, 0) + inner[0][0])]
            elif self.mode == "reflect":
                inner += [(a, a, -1, 0), (b, d - 2, -1, max(a, 0) + inner[0][0])]
            pieces.append(inner)
        moves = pieces_to_moves(pieces, shape, out)
        if self.mode == "constant":
            strides = dense(out)
            for axis, (a, b) in enumerate(self._both(len(shape))):
                for count, at in ((a, 0), (b, out[axis] - b)):
                    if count > 0:   # slabs that do not overlap: inside on earlier axes, whole on later ones
                        core = [(p[0][0], p[0][3]) for p in pieces[:axis]]
                        dims = (*(c for c, _ in core), count, *out[axis + 1 :])
                        offset = (
                            sum(o * s for (_, o), s in zip(core, strides, strict=False)) + at * strides[axis]
                        )
                        if all(dims):
                            moves.append(merged(Move(None, dims, (), strides, 0, offset, 0, self.value)))
        return tuple(moves)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        x = rng.normal(size=(1, 2, 5, 4)).astype(np.float32)
        yield OpSample(cls((0, 0, 1, 2, 0, 0, 0, 3)), (x,))
        yield OpSample(cls((0, 1, 2, 2, 0, 0, 1, 1), "edge"), (x,))
        yield OpSample(cls((0, 0, 2, 1, 0, 0, 3, 2), "reflect"), (x,))
        yield OpSample(cls((0, 0, -1, 1, 0, 0, 1, -2)), (x,))
