"""Convolutions and matrix products in floats and blocks, summed in float32 by the chunk rule.
Results are rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import ClassVar, Protocol, cast

import numpy as np

from npuflow.hw.floats import products
from npuflow.hw.target import Numerics
from npuflow.ir.forms import block_type
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Site
from npuflow.ir.space import Space
from npuflow.ir.types import Array
from npuflow.ops._float_blocks import block_params, chunk_of, converted, in_blocks
from npuflow.ops._float_form import RoundedFloats, emit_round, finished, real
from npuflow.ops._weighted import ConvOp, WeightedOp
from npuflow.ops._windows import out_hw, pair

COLUMNS = 1 << 22  # numbers that are laid out at a time


class _Gemm(Protocol):
    transA: int  # noqa: N815
    transB: int  # noqa: N815


class _MatMul(Protocol):
    def commands(self, site: Site, tile: TileView) -> Iterator[dict[str, object]]: ...


def chunked(space: Space, axis: str, chunk: int) -> Space:
    """The space with splits of a summed axis between chunks alone: every tiling gives the same bits."""
    axes = tuple(replace(a, multiple=chunk) if a.name == axis and a.kind == "sum" else a for a in space.axes)
    return replace(space, axes=axes)


@dataclass(frozen=True)
class ProductFloats(RoundedFloats):
    """Sums of products are split between chunks alone."""

    float_axis: ClassVar[str] = "k"
    """The axis that is summed."""

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        return {**super().float_prepare(site, numerics), **block_params(site)}

    def float_space(self, site: Site, numerics: Numerics) -> Space | None:
        space = self.space(site, numerics)
        if space is None:
            return None
        return in_blocks(site, chunked(space, self.float_axis, chunk_of(site, numerics)))


@dataclass(frozen=True)
class ConvFloats(ProductFloats, ConvOp):
    """K is ordered by blocks of `float_chunk` channels, then by taps, then by channels in the block. All
    taps of a depthwise convolution are one chunk."""

    float_axis: ClassVar[str] = "ci"

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op = site.op
        assert isinstance(op, ConvOp)
        x, w = converted(site, real(site, inputs, 0), 1, op.kernel(real(site, inputs, 1)), 1, op.group)
        groups, per, count, block = op.group, w.shape[1], prod(w.shape[2:]), chunk_of(site, numerics)
        order = np.concatenate(
            [
                (np.arange(count)[:, None] * per + np.arange(b, min(b + block, per))).reshape(-1)
                for b in range(0, per, block)
            ]
        )
        rows = np.moveaxis(w.reshape(groups, -1, per, count), 2, 3).reshape(groups, w.shape[0] // groups, -1)
        rows, bias = rows[..., order], inputs[2] if site.present(2) else None
        start = np.zeros(w.shape[0], np.float32) if bias is None else np.asarray(bias, np.float32)
        start, chunk = start.reshape(groups, -1, 1), _chunk(site, op, per, numerics)
        images = np.stack(op.images(x), 1).reshape(x.shape[0], count, groups, per, -1)
        out = np.empty((x.shape[0], groups, rows.shape[1], images.shape[-1]), np.float32)
        step = max(1, COLUMNS // (count * per * images.shape[-1]))  # groups at a time
        for n, first in product(range(x.shape[0]), range(0, groups, step)):
            some = slice(first, first + step)
            columns = np.moveaxis(images[n, :, some], 0, 1).reshape(-1, count * per, images.shape[-1])
            out[n, some] = products(rows[some], columns[:, order], chunk, start[some])
        return finished(site, out.reshape(site.out_shape))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        op, weight, blocks = site.op, site.inputs[1], block_type(site)
        assert isinstance(op, ConvOp) and weight is not None
        y, acc = tile.outputs[0], tile.acc
        assert acc is not None
        (height, width), (strides, insert) = out_hw(y), op.steps()
        first = op.group > 1 or tile.first("ci")
        bias = {"bias": tile.input(2).address} if site.present(2) and first else {}
        chunk = _chunk(site, op, site.shape(0)[1] // op.group, em.numerics)
        terms = {} if blocks else {"block": em.numerics.float_chunk, "chunk": chunk, "taps": 1}
        em.emit(
            "BCONV" if blocks else "FCONV",
            **tile.input(0).image("x"),
            w=(tile.params["blocks"] if blocks else op.held(tile)).address,
            w_type=weight.number,
            **bias,
            **terms,
            acc=acc.address,
            acc_type=acc.dtype,
            batch=y.extent[0],
            out_channels=y.extent[1],
            out_height=height,
            out_width=width,
            groups=1 if op.group == 1 else y.extent[1] * op.group // site.out_shape[1],
            kernel=pair(op.kernel_shape, 1),
            stride=pair(strides, 1),
            dilation=pair(op.dilations, 1),
            origin=pair(op.origin(site, tile), 0),
            insert=pair(insert, 1),
            accumulate=int(not first),
        )
        if op.group > 1 or tile.last("ci"):
            emit_round(site, tile, em, 1)


def _chunk(site: Site, op: ConvOp, per_group: int, numerics: Numerics) -> int:
    """Terms that are summed exactly."""
    return prod(op.kernel_shape) if op.group > 1 and per_group == 1 else chunk_of(site, numerics)


@dataclass(frozen=True)
class GemmFloats(ProductFloats, WeightedOp):
    """The factors alpha and beta are in weight and bias."""

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op = cast(_Gemm, site.op)
        a, b = real(site, inputs, 0), real(site, inputs, 1)
        left, right = converted(site, a.T if op.transA else a, 1, b.T if op.transB else b, 0)
        bias = inputs[2] if site.present(2) else None
        start = np.zeros((), np.float32) if bias is None else np.asarray(bias, np.float32)
        return finished(site, products(left, right, chunk_of(site, numerics), start))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        op, blocks = cast(_Gemm, site.op), block_type(site)
        a, acc = tile.input(0), tile.acc
        assert acc is not None
        first, (k0, k1) = tile.first("k"), tile.ranges["k"]
        bias = {"bias": tile.input(2).address} if site.present(2) and first else {}
        m, n = tile.outputs[0].extent
        right: dict[str, object] = {}
        if blocks:
            right = {"b": tile.params["blocks"].address, "b_type": blocks, "columns": int(bool(op.transB))}
        else:
            b = tile.input(1)
            strides = (0, *(b.strides[::-1] if op.transB else b.strides))
            right = {"b": b.address, "b_type": b.dtype, "b_strides": strides}
            right["chunk"] = em.numerics.float_chunk
        em.emit(
            "BMATMUL" if blocks else "FMATMUL",
            a=a.address,
            a_type=a.dtype,
            a_strides=(0, *(a.strides[::-1] if op.transA else a.strides)),
            **right,
            **bias,
            acc=acc.address,
            acc_type=acc.dtype,
            batch=1,
            m=m,
            k=k1 - k0,
            n=n,
            accumulate=int(not first),
        )
        if tile.last("k"):
            emit_round(site, tile, em, 1)


@dataclass(frozen=True)
class MatMulFloats(ProductFloats):
    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        left, right = converted(site, real(site, inputs, 0), -1, real(site, inputs, 1), -2)
        return finished(site, products(left, right, chunk_of(site, numerics)))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        blocks = block_type(site)
        for fields in cast(_MatMul, site.op).commands(site, tile):
            if site.op.pair_type():
                em.emit("BPAIRS", **fields, held_type=blocks)
            elif blocks:
                del fields["b_strides"]
                em.emit("BMATMUL", **{**fields, "b_type": blocks}, columns=0)
            else:
                em.emit("FMATMUL", **fields, chunk=em.numerics.float_chunk)
        if tile.last("k"):
            emit_round(site, tile, em, len(tile.outputs[0].box) - 1)
