"""Convolutions and matrix products in floats and blocks: sums in float32 by the chunk rule, rounded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import ClassVar, cast

import numpy as np

from npuflow.forms._rounded import Real, RoundedForm, emit_round, finished, real
from npuflow.hw.floats import products
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.ops._matrix import MatrixOp
from npuflow.ops._weighted import ConvOp
from npuflow.ops._windows import out_hw, pair

COLUMNS = 1 << 22  # numbers that are laid out at a time


class ProductForm(RoundedForm):
    """Sums of products are split between chunks alone: every tiling gives the same bits."""

    axis: ClassVar[str] = "k"
    """The axis that is summed."""

    def chunk(self, site: OpContext, numerics: Numerics) -> int:
        """Terms of a product that are summed exactly."""
        return numerics.float_chunk

    def sides(
        self, site: OpContext, x: Real, x_axis: int, weight: Real, w_axis: int, groups: int = 1
    ) -> tuple[Real, Real]:
        """Both sides of a product as the array multiplies them; each of `groups` is summed by itself."""
        return x, weight

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        space, chunk = site.op.space(site, numerics), self.chunk(site, numerics)
        if space is None:
            return None
        axes = (
            replace(a, multiple=chunk) if a.name == self.axis and a.kind == "sum" else a for a in space.axes
        )
        return replace(space, axes=tuple(axes))


class Convolution(ProductForm):
    """K is ordered by chunks of channels, then by taps, then by channels in the chunk. All taps of a
    depthwise convolution are one chunk."""

    axis: ClassVar[str] = "ci"

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {**super().prepare(site, numerics), **cast("ConvOp", site.op).stored(site)}

    def whole(self, site: OpContext, numerics: Numerics) -> int:
        """Terms that are summed exactly."""
        op = cast("ConvOp", site.op)
        depthwise = op.group > 1 and site.shape(0)[1] == op.group
        return prod(op.kernel_shape) if depthwise else self.chunk(site, numerics)

    def command(
        self, site: OpContext, tile: TileView, numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        """The opcode, and the fields that only this arithmetic has."""
        raise NotImplementedError

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, chunk = cast("ConvOp", site.op), self.whole(site, numerics)
        x, w = self.sides(site, real(site, inputs, 0), 1, op.kernel(real(site, inputs, 1)), 1, op.group)
        groups, per, count, block = op.group, w.shape[1], prod(w.shape[2:]), self.chunk(site, numerics)
        order = np.concatenate(
            [
                (np.arange(count)[:, None] * per + np.arange(b, min(b + block, per))).reshape(-1)
                for b in range(0, per, block)
            ]
        )
        rows = np.moveaxis(w.reshape(groups, -1, per, count), 2, 3).reshape(groups, w.shape[0] // groups, -1)
        rows, bias = rows[..., order], inputs[2] if site.present(2) else None
        start = np.zeros(w.shape[0], np.float32) if bias is None else np.asarray(bias, np.float32)
        start = start.reshape(groups, -1, 1)
        images = np.stack(op.images(x), 1).reshape(x.shape[0], count, groups, per, -1)
        out = np.empty((x.shape[0], groups, rows.shape[1], images.shape[-1]), np.float32)
        step = max(1, COLUMNS // (count * per * images.shape[-1]))  # groups at a time
        for n, first in product(range(x.shape[0]), range(0, groups, step)):
            some = slice(first, first + step)
            columns = np.moveaxis(images[n, :, some], 0, 1).reshape(-1, count * per, images.shape[-1])
            out[n, some] = products(rows[some], columns[:, order], chunk, start[some])
        return finished(site, out.reshape(site.out_shape))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        op, weight, y, acc = cast("ConvOp", site.op), site.inputs[1], tile.outputs[0], tile.acc
        assert weight is not None and acc is not None
        (height, width), (strides, insert) = out_hw(y), op.steps()
        first = op.group > 1 or tile.first("ci")
        opcode, own = self.command(site, tile, em.numerics)
        em.emit(
            opcode,
            **tile.input(0).image("x"),
            w_type=weight.number,
            **({"bias": tile.input(2).address} if site.present(2) and first else {}),
            **own,
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


class MatrixProduct(ProductForm):
    """Factors of a Gemm are in its weight and bias."""

    def command(
        self, site: OpContext, fields: Mapping[str, object], numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        """The opcode, and its fields from those that products of matrices share."""
        raise NotImplementedError

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        a, b = cast("MatrixOp", site.op).matrices(real(site, inputs, 0), real(site, inputs, 1))
        left, right = self.sides(site, a, -1, b, -2)
        bias = inputs[2] if site.present(2) else None
        start = np.zeros((), np.float32) if bias is None else np.asarray(bias, np.float32)
        return finished(site, products(left, right, self.chunk(site, numerics), start))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        bias = {"bias": tile.input(2).address} if site.present(2) and tile.first("k") else {}
        for fields in cast("MatrixOp", site.op).commands(site, tile):
            opcode, own = self.command(site, fields, em.numerics)
            em.emit(opcode, **own, **bias)
        if tile.last("k"):
            emit_round(site, tile, em, len(tile.outputs[0].box) - 1)
