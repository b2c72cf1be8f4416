"""Transposed convolution over one or two dimensions: a convolution over its input with zeros between the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.target import Numerics, Target
from npuflow.ir.draw import draw
from npuflow.ir.graph import Site
from npuflow.ir.op import OPS, Emitter, Imported, No, OnnxCall, Op, Role, Sample, TileView, Yes, first_no, need
from npuflow.ir.requant import (
    bias_shift,
    centred,
    channel_params,
    emit_requant,
    finish,
    product_ratio,
    prove,
    requant_params,
    sum_bounds,
    zero_points,
)
from npuflow.ir.space import Axis, DimMap, Operand, Space
from npuflow.ir.types import Array, IntArray, TensorType
from npuflow.ir.windows import exact, image, out_hw, pair, spatial_names, within

ROLES: tuple[Role, ...] = ("activation", "weight", "bias")


@OPS.entry
@dataclass(frozen=True)
class ConvTranspose(Op):
    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()            # cut off the full result: all before, then all after
    output_padding: tuple[int, ...] = ()
    group: int = 1

    onnx: ClassVar[str] = "ConvTranspose"
    fuses_clip: ClassVar[bool] = True

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
            sizes = tuple(wanted)[-rank:] if wanted else tuple(d * s for d, s in zip(spatial, strides, strict=True))
            before, after, more = [], [], []
            for d, k, s, dil, e, out in zip(spatial, kernel, strides, dilations, extra, sizes, strict=True):
                total = s * (d - 1) + e + (k - 1) * dil + 1 - out
                more.append(e - min(total, 0))           # a larger output than the full result: zeros at its end
                half = max(total, 0) // 2
                before.append(half if auto == "SAME_UPPER" else max(total, 0) - half)
                after.append(max(total, 0) - before[-1])
            pads, extra = (*before, *after), tuple(more)
        present = tuple(i for i, t in enumerate(call.types) if t is not None or i < 2)
        return Imported(cls(kernel, strides, dilations, pads, extra, int(a.get("group", 1))), present)

    def sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        rank = len(self.kernel_shape)
        settings = zip(spatial, self.kernel_shape, self.strides, self.dilations, self.output_padding, range(rank), strict=True)
        return tuple(
            -1 if d < 0 else s * (d - 1) + e + (k - 1) * dil + 1 - self.pads[i] - self.pads[i + rank]
            for d, k, s, dil, e, i in settings
        )

    def scattered(self, x: Array, weight: Array) -> Array:
        """Every input element adds its kernel to the output; what lies in the pads is cut off."""
        n, channels, rank, g = x.shape[0], x.shape[1], len(self.kernel_shape), self.group
        out, spatial = self.sizes(x.shape[2:]), x.shape[2:]
        before, per_group = self.pads[:rank], weight.shape[1]
        full = [
            max(s * (d - 1) + (k - 1) * dil + 1, b + o)
            for d, k, s, dil, b, o in zip(spatial, self.kernel_shape, self.strides, self.dilations, before, out, strict=True)
        ]
        y = np.zeros((n, g * per_group, *full), np.result_type(x, weight))
        rows = x.reshape(n, g, channels // g, -1)
        for tap in product(*(range(k) for k in self.kernel_shape)):
            at: tuple[Any, ...] = tap
            kernel = weight[(slice(None), slice(None), *at)].reshape(g, channels // g, per_group).swapaxes(1, 2)
            part = np.matmul(np.ascontiguousarray(kernel), rows).reshape(n, g * per_group, *spatial)
            places = zip(tap, self.dilations, self.strides, spatial, strict=True)
            cut: tuple[Any, ...] = tuple(slice(t * dil, t * dil + (d - 1) * s + 1, s) for t, dil, s, d in places)
            y[(slice(None), slice(None), *cut)] += part
        keep: tuple[Any, ...] = tuple(slice(b, b + o) for b, o in zip(before, out, strict=True))
        return y[(slice(None), slice(None), *keep)]

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        assert x is not None and w is not None
        return (TensorType((x.shape[0], w.shape[1] * self.group, *self.sizes(x.shape[2:])), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        y = self.scattered(x.astype(np.float64), w.astype(np.float64))
        if len(inputs) > 2 and inputs[2] is not None:
            y = y + inputs[2].astype(np.float64).reshape(1, -1, *(1,) * (y.ndim - 2))
        return (y.astype(x.dtype),)

    # --- integers
    def role(self, index: int) -> Role:
        return ROLES[index]

    def channel_axis(self, site: Site, index: int) -> int | None:
        # With groups, dimension 1 holds only the channels of one group: one scale for all.
        return 0 if index == 2 else 1 if self.group == 1 else None

    def flipped(self, weight: Array) -> Array:
        """The weight as the CONV command reads it: [out, in / group, *kernel], kernel reversed."""
        g, per_group = self.group, weight.shape[1]
        kernel = weight.reshape(g, -1, per_group, *weight.shape[2:]).swapaxes(1, 2)
        kernel = kernel.reshape(g * per_group, -1, *weight.shape[2:])
        return np.ascontiguousarray(np.flip(kernel, tuple(range(2, kernel.ndim))))

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        params = {**requant_params(site, product_ratio(site), numerics), **zero_points(site.quant(1))}
        weight, bias = site.consts[1], site.consts[2] if site.present(2) else None
        assert weight is not None
        if bias is not None:
            params["bias_shift"] = bias_shift(site.quant(2), site.quant(0).scale[0] * np.asarray(site.quant(1).scale))
        rows = self.flipped(centred(weight, site.quant(1)))
        bounds = sum_bounds(rows.reshape(rows.shape[0], -1), site.quant(0), bias, int(params.get("bias_shift", 0)))
        prove(*bounds, numerics, f"a convolution over {prod(rows.shape[1:])} terms")
        params["kernel"] = self.flipped(weight)
        return params

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[IntArray, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        xc, wc = exact(centred(x, site.quant(0)), centred(w, site.quant(1)), terms=w.size)
        return (finish(site, self.scattered(xc, wc), 1, numerics, inputs[2] if site.present(2) else None),)

    # --- target
    def accepts(self, site: Site, target: Target) -> Yes | No:
        limits, rank = target.limits, len(self.kernel_shape)
        return first_no(
            need(rank <= 2, f"a {rank}-dimensional kernel"),
            need(site.consts[1] is not None, "the weight is not a constant"),
            need(not site.present(2) or site.consts[2] is not None, "the bias is not a constant"),
            need(site.consts[0] is None, "the input is a constant"),
            need(min(site.out_shape) > 0 and min(site.shape(0)) > 0, f"an empty tensor {site.out_shape}"),
            within("kernel", self.kernel_shape, limits.kernel),
            within("stride", self.strides, limits.stride),
            within("dilation", self.dilations, limits.dilation),
            within("channels", (site.shape(0)[1], site.out_shape[1]), limits.channels),
        )

    def space(self, site: Site, numerics: Numerics) -> Space:
        x, y, rank = site.shape(0), site.out_shape, len(self.kernel_shape)
        kernel = tuple(site.array("kernel").shape)
        names, per_group, out_per_group = spatial_names(rank), kernel[1], y[1] // self.group
        axes = [Axis("n", y[0]), Axis("co", y[1], multiple=1 if self.group == 1 else out_per_group)]
        axes += [Axis(name, size) for name, size in zip(names, y[2:], strict=True)]
        if self.group == 1:
            axes.append(Axis("ci", x[1], "sum"))
            channels = weight_in = DimMap("ci")
        else:
            channels = DimMap("co", per_group, out_per_group, 0, -(-per_group // out_per_group) - 1)
            weight_in = DimMap()
        rows = [
            DimMap(name, 1, s, (b - (k - 1) * dil) // s, -(-b // s))
            for name, k, s, dil, b in zip(names, self.kernel_shape, self.strides, self.dilations, self.pads[:rank], strict=True)
        ]
        y_map = (DimMap("n"), DimMap("co"), *(DimMap(name) for name in names))
        inputs = (
            Operand("x", x, (DimMap("n"), channels, *rows)),
            None,                        # read in the command's own layout, as a parameter
            *((Operand("bias", site.shape(2), (DimMap("co"),)),) if site.present(2) else ()),
        )
        weight = Operand("kernel", kernel, (DimMap("co"), weight_in, *(DimMap(),) * rank))
        # Of the kernel's taps only those that meet no inserted zero count; on average one in prod(strides).
        macs = -(-prod(self.kernel_shape) // prod(self.strides))
        return Space(
            tuple(axes), inputs, (Operand("y", y, y_map),), (weight, *channel_params(site, "co")),
            macs=macs if self.group == 1 else macs * per_group, ops=1, accumulator=Operand("acc", y, y_map),
        )  # fmt: skip

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        x, w, y, acc = tile.input(0), tile.params["kernel"], tile.outputs[0], tile.acc
        assert acc is not None
        rank = len(self.kernel_shape)
        names = spatial_names(rank)
        starts = [tile.ranges[name][0] - x.box[2 + i][0] * self.strides[i] for i, name in enumerate(names)]
        reach = [(k - 1) * dil for k, dil in zip(self.kernel_shape, self.dilations, strict=True)]
        origin = [a + b - r for a, b, r in zip(starts, self.pads[:rank], reach, strict=True)]
        zeros = {"w_zeros": tile.params["w_zeros"].address} if "w_zeros" in site.params else {"w_zero": site.param("w_zero")}
        height, width = out_hw(y)
        out_channels = y.extent[1]
        em.emit(
            "CONV", **image(x, "x"), x_zero=site.quant(0).zero_point[0], w=w.address, w_type=w.dtype, **zeros,
            acc=acc.address, acc_type=acc.dtype, batch=y.extent[0], out_channels=out_channels, out_height=height, out_width=width,
            groups=1 if self.group == 1 else out_channels * self.group // site.out_shape[1],
            kernel=pair(self.kernel_shape, 1), stride=(1, 1), dilation=pair(self.dilations, 1), origin=pair(origin, 0),
            insert=pair(self.strides, 1), accumulate=int(self.group == 1 and not tile.first("ci")),
        )  # fmt: skip
        if self.group > 1 or tile.last("ci"):
            emit_requant(site, tile, em, 1, bias=2)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        cases = (
            # x, out channels per group, group, kernel, strides, dilations, pads, output_padding, clip
            ((1, 3, 4, 5), 5, 1, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0), None),
            ((2, 4, 5, 4), 2, 2, (3, 3), (2, 1), (1, 2), (1, 0, 1, 1), (1, 0), (0.0, 6.0)),
            ((1, 6, 4, 4), 1, 6, (4, 4), (2, 2), (1, 1), (1, 1, 1, 1), (0, 0), None),
            ((1, 3, 7), 4, 1, (3,), (3,), (1,), (1, 0), (2,), None),
        )
        for shape, out, group, kernel, strides, dilations, pads, extra, clip in cases:
            weight, bias = draw(rng, shape[1], out, *kernel), draw(rng, out * group)
            op = cls(kernel, strides, dilations, pads, extra, group, clip=clip)
            yield Sample(op, (draw(rng, *shape), weight, bias), (1, 2))
