"""y[..., m, n] = the sum over k of a[..., m, k] * b[..., k, n].
b may be a constant weight or computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics, Target
from npuflow.ir.lowering import Buffer, Emitter, TileView
from npuflow.ir.op import OPS, Algebra, No, OpContext, OpSample, Role, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, TensorType
from npuflow.ir.windows import Taps
from npuflow.ops._broadcast import broadcast_shape
from npuflow.ops._draw import draw
from npuflow.ops._grouped import (
    group_params,
    group_sums,
    grouped,
    scale_operands,
    sum_axis,
)
from npuflow.ops._matrix import MatrixOp
from npuflow.ops._requant import (
    centred,
    channel_params,
    emit_requant,
    finish,
    product_bounds,
    product_ratio,
    prove,
    requant_params,
    weight_bounds,
    zero_points,
)
from npuflow.ops._weighted import emit_products, whole_sums
from npuflow.ops._windows import within


@OPS.entry
@dataclass(frozen=True)
class MatMul(MatrixOp):
    # a type that the array converts two activations to
    pairs: str = field(default="", kw_only=True)
    # of a plan: b is a cache of "keys" [..., n, k], or of "values" [..., k, n], whose rows no tile divides
    cache: str = field(default="", kw_only=True)

    onnx: ClassVar[str] = "MatMul"
    algebra: ClassVar[Algebra] = "matrices"
    fuses_clip: ClassVar[bool] = True

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        a, b = types[0], types[1]
        assert a is not None and b is not None
        left = a.shape if len(a.shape) > 1 else (1, *a.shape)
        right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
        shape = (
            *broadcast_shape(left[:-2], right[:-2]),
            *left[-2:-1][: len(a.shape) > 1],
            *right[-1:][: len(b.shape) > 1],
        )
        return (TensorType(shape, a.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        wide = np.float64 if a.dtype.kind == "f" else a.dtype
        return (np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(a.dtype),)

    # --- integers
    def role(self, index: int) -> Role:
        return "weight" if index == 1 else "activation"

    def channel_axis(self, site: OpContext, index: int) -> int | None:
        return len(site.shape(1)) - 1

    def group_axis(self, site: OpContext, index: int) -> int | None:
        constant = site.consts[1] is not None and len(site.shape(1)) == 2
        return (len(site.shape(0)) - 1, 0)[index] if constant and index < 2 else None

    def block_axis(self, site: OpContext, index: int, size: int) -> int | None:
        return self.group_axis(site, index)

    def in_pairs(self, element: str) -> Self:
        return replace(self, pairs=element)

    def pair_type(self) -> str:
        return self.pairs

    def reading_cache(self, place: int, exchanged: bool) -> Self | None:
        return None if place != 1 or self.pairs else replace(self, cache="keys" if exchanged else "values")

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        if grouped(site):
            return group_params(site, numerics)
        depth, weight = site.shape(1)[-2], site.consts[1]
        if weight is None:
            bounds: tuple[object, object] = product_bounds(site.quant(0), site.quant(1), depth)
        else:
            def columns(codes: IntArray) -> IntArray:
                return np.moveaxis(codes, -2, -1).reshape(-1, depth)

            bounds = weight_bounds(weight, site.quant(1), columns, site.quant(0))
        what = f"a product over {depth} terms"
        prove(*bounds, site.accumulator_bits(numerics), what)  # type: ignore[arg-type]
        return {**requant_params(site, product_ratio(site), numerics), **zero_points(site.quant(1))}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        if grouped(site):
            pair = centred(a, site.quant(0)), centred(b, site.quant(1))
            return (finish(site, group_sums(site, *pair, np.matmul, -1), -1, numerics),)
        ends = b.ndim - 1 if site.consts[1] is not None and b.ndim > 1 else None, -1, a.shape[-1]
        sums = whole_sums(centred(a, site.quant(0)), b, site.quant(1), np.matmul, ends)
        return (finish(site, sums, -1, numerics),)

    def places(self, site: OpContext) -> int:
        return prod(site.out_shape[:-1]) if len(site.shape(1)) == 2 and site.consts[1] is not None else 0

    def columns(self, shape: tuple[int, ...], at: npt.NDArray[np.int64]) -> Taps:
        return Taps(at[:, None] * shape[-1], 1, shape[-1])

    def rows(self, weight: Array) -> Array:
        return weight.T

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        a, b = site.shape(0), site.shape(1)
        return first_no(
            need(len(a) >= 2 and len(b) >= 2, f"a vector operand: {a} by {b}"),
            need(len(site.out_shape) <= 4, f"rank {len(site.out_shape)} > 4"),
            need(site.consts[0] is None or site.consts[1] is None, "both operands are constants"),
            need(min((*site.out_shape, *a)) > 0, f"an empty tensor: {a} by {b}"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            within("K", a[-1:], target.limits.matmul_k),
        )

    def measures(self, site: OpContext) -> Mapping[str, int]:
        if min(len(site.shape(0)), len(site.shape(1))) < 2:
            return {}
        return {"m": site.out_shape[-2], "k": site.shape(0)[-1], "n": site.out_shape[-1]}

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        y, depth = site.out_shape, site.shape(0)[-1]
        batch = [Axis(f"b{i}", size) for i, size in enumerate(y[:-2])]
        axes = (*batch, Axis("m", y[-2]), Axis("n", y[-1]), sum_axis(site, "k", depth))
        rows = {"keys": "n", "values": "k"}.get(self.cache)
        axes = tuple(replace(a, multiple=a.size) if a.name == rows else a for a in axes)
        result = Operand("y", y, (*(DimMap(a.name) for a in batch), DimMap("m"), DimMap("n")))
        inputs = tuple(
            Operand(name, shape, (*self._batch_maps(shape, y), *(DimMap(last) for last in lasts)))
            for name, shape, lasts in (
                ("a", site.shape(0), "mk"), ("b", site.shape(1), "nk" if self.cache == "keys" else "kn")
            )
        )
        return IterationDomain(
            axes,
            inputs,
            (result,),
            (*channel_params(site, "n"), *scale_operands(site, "k", "n")),
            macs=1,
            ops=1,
            accumulator=Operand("acc", y, result.maps),
        )

    @staticmethod
    def _batch_maps(shape: tuple[int, ...], out: tuple[int, ...]) -> tuple[DimMap, ...]:
        offset = len(out) - len(shape)
        return tuple(
            DimMap(f"b{offset + i}") if size == out[offset + i] else DimMap()
            for i, size in enumerate(shape[:-2])
        )

    @staticmethod
    def _batch_strides(buffer: Buffer, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """Byte strides of the output's batch dimensions in an operand: 0 where it repeats."""
        own = tuple(
            0 if size == 1 else stride for size, stride in zip(shape[:-2], buffer.strides, strict=False)
        )
        return (0,) * (rank - len(shape)) + own

    def commands(self, site: OpContext, tile: TileView) -> Iterator[dict[str, object]]:
        """One command for each index of the outer batch."""
        a, y, acc = tile.input(0), tile.outputs[0], tile.acc
        b = tile.params["blocks"] if "blocks" in site.params else tile.input(1)
        assert acc is not None
        rank = len(y.box)
        batch, (m, n) = y.extent[:-2], y.extent[-2:]
        steps = [self._batch_strides(t, site.shape(i), rank) for i, t in enumerate((a, b))]
        inner = batch[-1] if batch else 1
        lasts = [s[-1] if s else 0 for s in steps]
        size, (k0, k1) = np.dtype(acc.dtype).itemsize, tile.ranges["k"]
        for position, index in enumerate(product(*(range(d) for d in batch[:-1]))):
            starts = [sum(i * s for i, s in zip(index, stride, strict=False)) for stride in steps]
            yield {
                "a": a.address + starts[0],
                "a_type": a.dtype,
                "a_strides": (lasts[0], *a.strides[-2:]),
                "b": b.address + starts[1],
                "b_type": b.dtype,
                "b_strides": (lasts[1], *(b.strides[:-3:-1] if self.cache == "keys" else b.strides[-2:])),
                "acc": acc.address + position * inner * m * n * size,
                "acc_type": acc.dtype,
                "batch": inner,
                "m": m,
                "k": k1 - k0,
                "n": n,
                "accumulate": int(not tile.first("k")),
            }

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        emit_products(self, site, tile, em)
        if tile.last("k"):
            emit_requant(site, tile, em, len(tile.outputs[0].box) - 1)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        shapes: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
            ((5, 8), (8, 6), (1,)),
            ((2, 5, 8), (8, 6), (1,)),
            ((1, 3, 4, 7), (1, 3, 7, 5), ()),
            ((2, 1, 4, 7), (3, 7, 5), (1,)),
            ((4, 6), (3, 6, 2), (0,)),
        )
        for a, b, constants in shapes:
            yield OpSample(
                cls(clip=(0.0, 3.0) if prod(a) == 40 else None), (draw(rng, *a), draw(rng, *b)), constants
            )
