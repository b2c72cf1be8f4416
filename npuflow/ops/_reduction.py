"""Reductions over any set of dimensions: mean, sum, maximum; global pooling is one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.hw.numerics import multiplier_shift
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Buffer, Emitter, TileView
from npuflow.ir.op import Imported, No, OnnxCall, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, Span, TensorType
from npuflow.ops._requant import centred, emit_requant, finish, prove, requant_params

Group = tuple[int, int]               # extent and byte stride of dimensions that count as one


def grouped(dims: Sequence[int], buffer: Buffer) -> list[Group]:
    """The named dimensions of a buffer with neighbours merged wherever their strides allow."""
    groups: list[Group] = []
    for d in dims:
        extent, stride = buffer.extent[d], buffer.strides[d]
        if extent == 1:
            continue
        if groups and groups[-1][1] == extent * stride:
            groups[-1] = (groups[-1][0] * extent, stride)
        else:
            groups.append((extent, stride))
    return groups or [(1, 0)]


def offsets(groups: Sequence[Group]) -> Iterator[tuple[int, int]]:
    """Every index of the groups: (its position in dense order, its byte offset)."""
    for position, index in enumerate(product(*(range(size) for size, _ in groups))):
        yield position, sum(i * stride for i, (_, stride) in zip(index, groups, strict=True))


def emit_reduce(
    em: Emitter, x: Buffer, acc: Buffer, reduced: Sequence[int], zero: int, maximum: bool, fresh: bool
) -> None:
    """REDUCE commands of one tile: the innermost groups in one command, the others looped over."""
    kept = grouped([d for d in range(len(x.box)) if d not in reduced], x)
    away = grouped(reduced, x)
    outer, last = kept[:-2], [(1, 0)] * (2 - len(kept)) + kept[-2:]
    (a, a_stride), (i, i_stride), (r, r_stride) = last[0], last[1], away[-1]
    bytes_each = np.dtype(acc.dtype).itemsize
    for position, start in offsets(outer):
        for step, skip in offsets(away[:-1]):
            em.emit(
                "REDUCE",
                x=x.address + start + skip,
                x_type=x.dtype,
                x_strides=(a_stride, r_stride, i_stride),
                x_zero=zero,
                dims=(a, r, i),
                maximum=int(maximum),
                acc=acc.address + position * a * i * bytes_each,
                acc_type=acc.dtype,
                accumulate=int(step > 0 or not fresh),
            )


@dataclass(frozen=True)
class Reduction(Op):
    """Base: a subclass states its kind and which axes it reduces."""

    kind: ClassVar[Literal["mean", "sum", "max"]] = "mean"
    fuses_clip: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_reduction"]}

    def reduced(self, rank: int) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def keeps(self) -> bool:
        """Whether reduced dimensions stay, with size 1."""
        return True

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = types[0]
        assert x is not None
        gone = self.reduced(len(x.shape))
        shape = [1 if i in gone else d for i, d in enumerate(x.shape) if self.keeps or i not in gone]
        return (TensorType(tuple(shape), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide, axes = x.astype(np.float64) if x.dtype.kind == "f" else x, self.reduced(x.ndim)
        if self.kind == "mean":
            result = np.mean(wide, axis=axes, keepdims=self.keeps)
        elif self.kind == "sum":
            result = np.sum(wide, axis=axes, keepdims=self.keeps)
        else:
            result = np.max(wide, axis=axes, keepdims=self.keeps)
        return (np.asarray(result).astype(x.dtype),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        if spans[0] is None or self.kind == "mean":
            return None
        terms = self.terms(site.shape(0)) if self.kind == "sum" else 1
        return terms * spans[0][0], terms * spans[0][1]

    # --- integers
    def terms(self, shape: Sequence[int]) -> int:
        return prod(shape[i] for i in self.reduced(len(shape)))

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        x, count = site.quant(0), self.terms(site.shape(0))
        if self.kind == "max":
            exact = requant_params(site, 1.0, numerics)
            return {**exact, "multiplier": 1, "shift": 0}
        low, high = min(x.lo - x.zero_point[0], 0), max(x.hi - x.zero_point[0], 0)
        prove(low * count, high * count, site.accumulator_bits(numerics), f"{count} elements")
        ratio = x.scale[0] / site.out_quant.scale[0]
        if self.kind == "mean":
            return requant_params(site, ratio / count, numerics.of_means)
        return requant_params(site, ratio, numerics)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x = inputs[0]
        assert x is not None
        function = np.max if self.kind == "max" else np.sum
        acc = function(centred(x, site.quant(0)), axis=self.reduced(x.ndim), keepdims=self.keeps)
        return (finish(site, np.asarray(acc), 0, numerics),)

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        shape = site.shape(0)
        checks = first_no(
            need(len(shape) <= 4, f"rank {len(shape)} > 4"),
            need(site.consts[0] is None, "its input is a constant"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            need(min(shape, default=0) > 0, f"an empty tensor {shape}"),
        )
        if isinstance(checks, Yes) and self.kind == "mean" and target.numerics.power_of_two:
            try:
                multiplier_shift(1.0 / self.terms(shape), target.numerics.of_means)
            except TargetError as error:
                return No(f"a mean of {self.terms(shape)} elements: {error.message}")
        return checks

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        x, y = site.shape(0), site.out_shape
        gone = self.reduced(len(x))
        axes = [Axis(f"d{i}", size) for i, size in enumerate(x) if i not in gone]
        axes += [Axis(f"d{i}", x[i], "whole" if k else "sum") for k, i in enumerate(gone)]
        maps = [
            DimMap() if i in gone else DimMap(f"d{i}") for i in range(len(x)) if self.keeps or i not in gone
        ]
        result = Operand("y", y, tuple(maps))
        x_maps = tuple(DimMap(f"d{i}") for i in range(len(x)))
        return IterationDomain(
            tuple(axes),
            (Operand("x", x, x_maps),),
            (result,),
            ops=self.terms(x),
            accumulator=Operand("acc", y, tuple(maps)),
        )

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, acc = tile.input(0), tile.acc
        assert acc is not None
        gone = self.reduced(len(site.shape(0)))
        split = f"d{gone[0]}" if gone else None
        fresh = split is None or tile.first(split)
        emit_reduce(em, x, acc, gone, site.quant(0).zero_point[0], self.kind == "max", fresh)
        if split is None or tile.last(split):
            emit_requant(site, tile, em, 0)


@dataclass(frozen=True)
class AxesReduction(Reduction):
    """Base of the Reduce* operators: explicit axes (an attribute before opset 13 or 18, then an input)."""

    axes: tuple[int, ...] = ()            # non-negative, sorted
    keepdims: int = 1

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, axes = call.types[0], call.attributes.get("axes")
        if axes is None and len(call.types) > 1 and call.types[1] is not None:
            if call.consts[1] is None:
                return No("the axes are not a constant")
            axes = np.asarray(call.consts[1]).reshape(-1).tolist()
        if x is None:
            return No("the input's rank is unknown")
        if not axes and call.attributes.get("noop_with_empty_axes"):
            return No("no axes: it reduces nothing")
        rank = len(x.shape)
        chosen = sorted({int(a) % rank for a in axes}) if axes else list(range(rank))
        return Imported(cls(tuple(chosen), int(call.attributes.get("keepdims", 1))), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall(self.onnx, {"keepdims": self.keepdims}, inputs=(0, np.array(self.axes, np.int64)))

    def reduced(self, rank: int) -> tuple[int, ...]:
        return self.axes

    @property
    def keeps(self) -> bool:
        return bool(self.keepdims)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        cases: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...] = (
            ((2, 3, 4, 5), (2, 3), 1),
            ((2, 6, 7), (1,), 0),
            ((2, 3, 4, 5), (0, 2), 0),
            ((3, 9), (0, 1), 1),
            ((1, 4, 6, 3), (3,), 1),
        )
        for shape, axes, keepdims in cases:
            yield OpSample(cls(axes, keepdims), (rng.normal(0.3, 1.0, shape).astype(np.float32),))


@dataclass(frozen=True)
class GlobalReduction(Reduction):
    """Base of the global pools: everything behind batch and channels."""

    def reduced(self, rank: int) -> tuple[int, ...]:
        return tuple(range(2, rank))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (rng.normal(0.5, 1.0, (1, 6, 7, 7)).astype(np.float32),))
        yield OpSample(cls(clip=(0.0, 6.0)), (rng.normal(0.5, 1.0, (2, 3, 5)).astype(np.float32),))
