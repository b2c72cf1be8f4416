"""Convolution over one or two dimensions, with groups, dilation and any padding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics, Target
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext, OpSample, Weights, Yes, first_no
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ir.windows import Taps, Window, tap_places, windows
from npuflow.ops._weighted import ConvOp, conv_rows, moved_bias, scaled_bias
from npuflow.ops._windows import (
    convolve,
    framed,
    spatial_names,
    taps,
    window_columns,
    window_measures,
    within,
)


@OPS.entry
@dataclass(frozen=True)
class Conv(ConvOp):
    auto_pad: str = "NOTSET"              # SAME_* only while the input's size is unknown

    onnx: ClassVar[str] = "Conv"
    algebra: ClassVar[Algebra] = "convolution"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        a, w = call.attributes, call.types[1]
        kernel = tuple(a.get("kernel_shape") or (w.shape[2:] if w is not None else ()))
        if not kernel or -1 in kernel:
            return No("the kernel's shape is unknown")
        rank = len(kernel)
        op = cls(
            kernel, tuple(a.get("strides") or (1,) * rank), tuple(a.get("dilations") or (1,) * rank),
            tuple(a.get("pads") or (0,) * (2 * rank)), int(a.get("group", 1)), a.get("auto_pad", "NOTSET"),
        )
        x = call.types[0]
        if op.auto_pad != "NOTSET" and (op.auto_pad == "VALID" or (x is not None and -1 not in x.shape[2:])):
            spec = windows(
                x.shape[2:] if x is not None else (-1,) * rank,
                kernel,
                op.strides,
                op.dilations,
                (),
                op.auto_pad,
            )
            op = op.with_(pads=(*(s.before for s in spec), *(s.after for s in spec)), auto_pad="NOTSET")
        present = tuple(i for i, t in enumerate(call.types) if t is not None or i < 2)
        return Imported(op, present)

    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]:
        return windows(spatial, self.kernel_shape, self.strides, self.dilations, self.pads, self.auto_pad)

    def group_axis(self, site: OpContext, index: int) -> int | None:
        return 1 if self.group == 1 and index < 2 else None

    def block_axis(self, site: OpContext, index: int, size: int) -> int | None:
        """Groups of fewer channels than a block would fill it with zeros."""
        filled = self.group == 1 or site.shape(1)[1] >= size
        return 1 if filled and index < 2 else None

    def of_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        shape = (self.group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
        grouped = weight.astype(np.float64).reshape(self.group, -1, *weight.shape[1:])
        more = (grouped * shift.reshape(shape)).sum(axis=tuple(range(2, grouped.ndim))).reshape(-1)
        return (grouped * scale.reshape(shape)).reshape(weight.shape), moved_bias(bias, more, shift)

    def then_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        rows = weight.astype(np.float64) * scale.reshape(-1, *(1,) * (weight.ndim - 1))
        return rows, scaled_bias(bias, scale, shift)

    def border(self, site: OpContext) -> tuple[tuple[int, ...], float] | No:
        if self.auto_pad not in ("NOTSET", "VALID"):
            return No(f"auto_pad {self.auto_pad}")
        half = len(self.pads) // 2
        return (0, 0, *self.pads[:half], 0, 0, *self.pads[half:]), 0.0

    def with_border(self, widths: Sequence[int], value: float = 0.0) -> Self:
        assert value == 0.0, "a convolution pads with zeros"
        half = len(widths) // 2
        return self.with_(pads=(*widths[2:half], *widths[half + 2 :]), auto_pad="NOTSET")

    def framed(self, axis: int, before: int, behind: int) -> Self | None:
        pads = framed(self.pads, axis, before, behind) if self.auto_pad == "NOTSET" else None
        return None if pads is None else self.with_(pads=pads)

    def measures(self, site: OpContext) -> Mapping[str, int]:
        spec = self.windows(site.shape(0)[2:])
        pads = (*(w.before for w in spec), *(w.after for w in spec))
        return window_measures(
            self.kernel_shape, self.strides, self.dilations, pads, site.shape(0), self.group
        )

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        assert x is not None and w is not None
        return (TensorType((x.shape[0], w.shape[0], *(s.out for s in self.windows(x.shape[2:]))), x.dtype),)

    def products(self, x: Array, weight: Array) -> Array:
        return convolve(x, weight, self.windows(x.shape[2:]), self.group)

    # --- integers
    def channel_axis(self, site: OpContext, index: int) -> int | None:
        return 0

    def rows(self, weight: Array) -> Array:
        return conv_rows(weight)

    def places(self, site: OpContext) -> int:
        return site.out_shape[0] * prod(site.out_shape[2:])

    def columns(self, shape: tuple[int, ...], at: npt.NDArray[np.int64]) -> Taps:
        index, plane = window_columns(shape, self.windows(shape[2:]), at)
        return Taps(index, plane, shape[1] // self.group)

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        return first_no(super().accepts(site, target), within("pad", self.pads, target.limits.pad))

    def tap_places(self, site: OpContext, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        return tap_places(self.windows(site.shape(0)[2:]), places)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        spec, kernel = self.windows(site.shape(0)[2:]), site.shape(1)
        rows = [s.dim_map(n) for n, s in zip(spatial_names(len(spec)), spec, strict=True)]
        return self.conv_space(site, rows, kernel, prod(kernel[2:]), packed=False)

    def images(self, x: Array) -> list[Array]:
        return [view for _, view in taps(x, self.windows(x.shape[2:]))]

    def origin(self, site: OpContext, tile: TileView) -> list[int]:
        spec, names = self.windows(site.shape(0)[2:]), spatial_names(len(self.kernel_shape))
        begin = next((at for place, at, _, _ in self.inner if place == 0), (0,) * len(site.shape(0)))
        rows = [low - at for (low, _), at in zip(tile.input(0).box[2:], begin[2:], strict=True)]
        return [
            tile.ranges[n][0] * s.stride - s.before - row for n, s, row in zip(names, spec, rows, strict=True)
        ]

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        self.emit_conv(site, tile, em)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        cases = (
            # x, out channels, group, kernel, strides, dilations, pads, bias, clip
            ((1, 3, 8, 9), 5, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), True, (0.0, 6.0)),
            ((2, 4, 7, 6), 4, 4, (3, 2), (2, 1), (1, 1), (1, 0, 0, 1), True, (0.0, 1.5)),
            ((1, 6, 9, 8), 4, 2, (2, 3), (1, 2), (2, 1), (0, 2, 1, 0), False, None),
            ((1, 4, 5, 5), 8, 4, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), True, None),
            ((2, 5, 11), 3, 1, (3,), (2,), (2,), (2, 1), True, None),
            ((1, 16, 1, 1), 7, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), False, (0.0, float("inf"))),
            ((1, 3, 6, 5), 4, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), True, (0.0, (0.5, 1.0, 2.0, 4.0))),
            (
                (1, 3, 6, 5),
                3,
                3,
                (3, 3),
                (1, 1),
                (1, 1),
                (1, 1, 1, 1),
                True,
                ((-0.5, -3.0, 0.0), (0.5, 1.0, 2.0)),
            ),
        )
        for shape, out, group, kernel, strides, dilations, pads, bias, clip in cases:
            weight = rng.normal(size=(out, shape[1] // group, *kernel)).astype(np.float32)
            b = rng.normal(size=out).astype(np.float32) if bias else None
            x = rng.normal(size=shape).astype(np.float32)
            op = cls(kernel, strides, dilations, pads, group, clip=clip)
            yield OpSample(op, (x, weight, b), (1, 2)) if bias else OpSample(op, (x, weight), (1,))
