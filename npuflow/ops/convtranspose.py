"""Transposed convolution over one or two dimensions: a convolution over its input
with zeros between the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Buffer, Emitter, TileView
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample, Weights
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ops._draw import draw
from npuflow.ops._weighted import ConvOp, conv_rows, scaled_bias
from npuflow.ops._windows import spatial_names


@OPS.entry
@dataclass(frozen=True)
class ConvTranspose(ConvOp):
    """`pads` are cut off the full result."""

    output_padding: tuple[int, ...] = ()

    onnx: ClassVar[str] = "ConvTranspose"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        a, x, w = call.attributes, call.types[0], call.types[1]
        kernel = tuple(a.get("kernel_shape") or (w.shape[2:] if w is not None else ()))
        if not kernel or -1 in kernel:
            return No("the kernel's shape is unknown")
        rank = len(kernel)
        strides, dilations = tuple(a.get("strides") or (1,) * rank), tuple(a.get("dilations") or (1,) * rank)
        extra, pads = tuple(a.get("output_padding") or (0,) * rank), tuple(a.get("pads") or (0,) * (2 * rank))
        auto, wanted = a.get("auto_pad", "NOTSET"), a.get("output_shape")
        if auto == "VALID" and not wanted:
            pads = (0,) * (2 * rank)
        elif auto != "NOTSET" or wanted:
            if x is None or -1 in x.shape[2:]:
                return No(f"auto_pad {auto} with an input of unknown size")
            spatial = x.shape[2:]
            sizes = (
                tuple(wanted)[-rank:]
                if wanted
                else tuple(d * s for d, s in zip(spatial, strides, strict=True))
            )
            before, after, more = [], [], []
            for d, k, s, dil, e, out in zip(spatial, kernel, strides, dilations, extra, sizes, strict=True):
                total = s * (d - 1) + e + (k - 1) * dil + 1 - out
                # a larger output than the full result: zeros at its end
                more.append(e - min(total, 0))
                half = max(total, 0) // 2
                before.append(half if auto == "SAME_UPPER" else max(total, 0) - half)
                after.append(max(total, 0) - before[-1])
            pads, extra = (*before, *after), tuple(more)
        present = tuple(i for i, t in enumerate(call.types) if t is not None or i < 2)
        return Imported(cls(kernel, strides, dilations, pads, int(a.get("group", 1)), extra), present)

    def then_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        scales = scale.reshape(self.group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
        grouped = weight.astype(np.float64).reshape(self.group, -1, *weight.shape[1:])
        return (grouped * scales).reshape(weight.shape), scaled_bias(bias, scale, shift)

    def sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        rank = len(self.kernel_shape)
        settings = zip(
            spatial,
            self.kernel_shape,
            self.strides,
            self.dilations,
            self.output_padding,
            range(rank),
            strict=True,
        )
        return tuple(
            -1 if d < 0 else s * (d - 1) + e + (k - 1) * dil + 1 - self.pads[i] - self.pads[i + rank]
            for d, k, s, dil, e, i in settings
        )

    def products(self, x: Array, weight: Array) -> Array:
        """Every input element adds its kernel to the output; what lies in the pads is cut off."""
        n, channels, rank, g = x.shape[0], x.shape[1], len(self.kernel_shape), self.group
        out, spatial = self.sizes(x.shape[2:]), x.shape[2:]
        before, per_group = self.pads[:rank], weight.shape[1]
        full = [
            max(s * (d - 1) + (k - 1) * dil + 1, b + o)
            for d, k, s, dil, b, o in zip(
                spatial, self.kernel_shape, self.strides, self.dilations, before, out, strict=True
            )
        ]
        y = np.zeros((n, g * per_group, *full), np.result_type(x, weight))
        rows = x.reshape(n, g, channels // g, -1)
        for tap in product(*(range(k) for k in self.kernel_shape)):
            at: tuple[Any, ...] = tap
            kernel = (
                weight[(slice(None), slice(None), *at)].reshape(g, channels // g, per_group).swapaxes(1, 2)
            )
            part = np.matmul(np.ascontiguousarray(kernel), rows).reshape(n, g * per_group, *spatial)
            places = zip(tap, self.dilations, self.strides, spatial, strict=True)
            cut: tuple[Any, ...] = tuple(
                slice(t * dil, t * dil + (d - 1) * s + 1, s) for t, dil, s, d in places
            )
            y[(slice(None), slice(None), *cut)] += part
        keep: tuple[Any, ...] = tuple(slice(b, b + o) for b, o in zip(before, out, strict=True))
        return y[(slice(None), slice(None), *keep)]

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        assert x is not None and w is not None
        return (TensorType((x.shape[0], w.shape[1] * self.group, *self.sizes(x.shape[2:])), x.dtype),)

    # --- integers
    def channel_axis(self, site: OpContext, index: int) -> int | None:
        # With groups, dimension 1 holds only the channels of one group: one scale for all.
        return 0 if index == 2 else 1 if self.group == 1 else None

    def kernel(self, weight: Array) -> Array:
        """The weight as the CONV command reads it: [out, in / group, *kernel], kernel reversed."""
        g, per_group = self.group, weight.shape[1]
        kernel = weight.reshape(g, -1, per_group, *weight.shape[2:]).swapaxes(1, 2)
        kernel = kernel.reshape(g * per_group, -1, *weight.shape[2:])
        return np.ascontiguousarray(np.flip(kernel, tuple(range(2, kernel.ndim))))

    def rows(self, weight: Array) -> Array:
        return conv_rows(self.kernel(weight))

    def stored(self, site: OpContext) -> dict[str, int | Array]:
        weight = site.consts[1]
        assert weight is not None
        return {"kernel": self.kernel(weight)}

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {**super().prepare(site, numerics), **self.stored(site)}

    def images(self, x: Array) -> list[Array]:
        """Of the input with zeros between its rows, for the kernel reversed."""
        rank, out = len(self.kernel_shape), self.sizes(x.shape[2:])
        settings = zip(self.kernel_shape, self.dilations, self.strides, self.pads[:rank], strict=True)
        axes = []
        for size, d, (k, dil, s, before) in zip(out, x.shape[2:], settings, strict=True):
            at = np.arange(k)[:, None] * dil + np.arange(size) + before - (k - 1) * dil
            axes.append((at // s, (at % s == 0) & (at >= 0) & (at // s < d)))
        found = []
        for tap in product(*(range(k) for k in self.kernel_shape)):
            image = x
            for axis, (t, (index, inside)) in enumerate(zip(tap, axes, strict=True), 2):
                there = inside[t].reshape([-1 if d == axis else 1 for d in range(x.ndim)])
                image = np.where(there, np.take(image, np.where(inside[t], index[t], 0), axis), 0.0)
            found.append(image)
        return found

    # --- target
    def tap_places(self, site: OpContext, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        spatial, rank = site.shape(0)[2:], len(self.kernel_shape)
        settings = zip(
            spatial, places, self.kernel_shape, self.strides, self.dilations, self.pads[:rank], strict=True
        )
        return tuple(
            tuple(
                sum((o + before - t * d) % s == 0 and 0 <= o + before - t * d < size * s for o in own)
                for t in range(k)
            )
            for size, own, k, s, d, before in settings
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        rank = len(self.kernel_shape)
        settings = zip(
            spatial_names(rank),
            self.kernel_shape,
            self.strides,
            self.dilations,
            self.pads[:rank],
            strict=True,
        )
        rows = [DimMap(name, 1, s, (b - (k - 1) * dil) // s, -(-b // s)) for name, k, s, dil, b in settings]
        # Of the kernel's taps only those that meet no inserted zero count; on average one in prod(strides).
        taps = -(-prod(self.kernel_shape) // prod(self.strides))
        return self.conv_space(site, rows, tuple(site.array("kernel").shape), taps, packed=True)

    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (1,) * len(self.kernel_shape), self.strides

    def held(self, tile: TileView) -> Buffer:
        return tile.params["kernel"]

    def origin(self, site: OpContext, tile: TileView) -> list[int]:
        rank, box = len(self.kernel_shape), tile.input(0).box
        starts = [
            tile.ranges[name][0] - box[2 + i][0] * self.strides[i]
            for i, name in enumerate(spatial_names(rank))
        ]
        reach = [(k - 1) * dil for k, dil in zip(self.kernel_shape, self.dilations, strict=True)]
        return [a + b - r for a, b, r in zip(starts, self.pads[:rank], reach, strict=True)]

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        self.emit_conv(site, tile, em)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        cases = (
            # x, out channels per group, group, kernel, strides, dilations, pads, output_padding, clip
            ((1, 3, 4, 5), 5, 1, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0), None),
            ((2, 4, 5, 4), 2, 2, (3, 3), (2, 1), (1, 2), (1, 0, 1, 1), (1, 0), (0.0, 6.0)),
            ((1, 6, 4, 4), 1, 6, (4, 4), (2, 2), (1, 1), (1, 1, 1, 1), (0, 0), None),
            ((1, 3, 7), 4, 1, (3,), (3,), (1,), (1, 0), (2,), None),
        )
        for shape, out, group, kernel, strides, dilations, pads, extra, clip in cases:
            weight, bias = draw(rng, shape[1], out, *kernel), draw(rng, out * group)
            op = cls(kernel, strides, dilations, pads, group, extra, clip=clip)
            yield OpSample(op, (draw(rng, *shape), weight, bias), (1, 2))
