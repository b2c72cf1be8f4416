"""Base of the operators that order elements along a dimension: the TOPK command, its place and its cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView, blocks3
from npuflow.ir.op import Imported, No, OnnxCall, Op, OpContext, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import INDEX_BITS, Array, Span, TensorType, WholeNumbers

MOST = 1 << INDEX_BITS  # elements along the dimension: their positions are whole numbers


@dataclass(frozen=True)
class RankingOp(Op):
    """Elements along `axis` in order, the `k` foremost of them; positions are whole numbers in float32. Of
    equal elements the first comes first, or with `select_last_index` the last."""

    axis: int = -1
    k: int = 1
    largest: int = 1
    select_last_index: int = 0
    domain: ClassVar[str] = "npuflow"
    values: ClassVar[bool] = False  # elements are a result beside their positions

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_ranking"]}

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        return No("made by rules only")

    @property
    def results(self) -> tuple[str, ...]:
        """Operands of the command that are results, in order."""
        return ("y", "at") if self.values else ("at",)

    @property
    def counted(self) -> int:
        """The result that is positions."""
        return int(self.values)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        shape = list(types[0].shape)
        shape[self.axis] = self.k
        return (TensorType(tuple(shape), types[0].dtype),) * (1 + self.values)

    def order(self, x: Array) -> npt.NDArray[np.int64]:
        """Positions of the foremost elements."""
        axis, key = self.axis % x.ndim, -x if self.largest else x
        if self.select_last_index:
            order = x.shape[axis] - 1 - np.argsort(np.flip(key, axis), axis, kind="stable")
        else:
            order = np.argsort(key, axis, kind="stable")
        return np.take(order, np.arange(self.k), axis)

    def whole_numbers(self, site: OpContext) -> Mapping[str, WholeNumbers]:
        size, made = site.shape(0)[self.axis], site.outputs[self.counted]
        return {made.id: WholeNumbers(size)}

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return (0, site.shape(0)[self.axis] - 1) if output == self.counted else spans[0]

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {}

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        x = site.shape(0)
        if not 0 < len(x) <= 4:
            return No(f"rank {len(x)}, not 1 to 4")
        size = x[self.axis]
        return first_no(
            need(site.consts[0] is None, "its input is a constant"),
            need(min(x) > 0, f"an empty tensor {x}"),
            need(1 <= self.k <= size, f"{self.k} of {size} elements"),
            need(size <= MOST, f"{size} elements; positions have {INDEX_BITS} bits"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        shape, out = site.shape(0), site.out_shape
        axis = self.axis % len(shape)
        axes = tuple(Axis(f"d{i}", d, "par") for i, d in enumerate(shape) if i != axis)
        maps = tuple(DimMap() if i == axis else DimMap(f"d{i}") for i in range(len(shape)))
        results = tuple(Operand(name, out, maps) for name in self.results)
        axes = axes or (Axis("d", 1, "whole"),)
        return IterationDomain(axes, (Operand("x", shape, maps),), results, ops=shape[axis])

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        self.emit(site, tile, em, "TOPK")

    def emit(self, site: OpContext, tile: TileView, em: Emitter, opcode: str) -> None:
        """One command for every part of the tile that is one view."""
        axis, x = self.axis % len(site.shape(0)), tile.input(0)
        flags = {"maximum": self.largest, "last": self.select_last_index}
        for part, *made in blocks3(axis, x, *tile.outputs):
            fields, dims = part.as3("x", axis, axis + 1)
            for name, buffer in zip(self.results, made, strict=True):
                fields.update(buffer.as3(name, axis, axis + 1)[0])
            em.emit(opcode, **fields, dims=dims, count=self.k, **flags)


def ranked(rng: np.random.Generator) -> Iterable[Array]:
    """Inputs of samples, with equal elements among them."""
    for shape in ((2, 5), (3, 7, 4), (1, 2, 9, 3), (6,)):
        yield np.asarray(rng.integers(-4, 5, shape), np.float32)
