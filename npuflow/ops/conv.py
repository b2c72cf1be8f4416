"""Convolution over one or two dimensions, with groups, dilation and any padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Site
from npuflow.ir.op import (
    OPS,
    Emitter,
    Imported,
    No,
    OnnxCall,
    Op,
    Role,
    Sample,
    TileView,
    Yes,
    first_no,
    need,
)
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
from npuflow.ir.windows import Window, convolve, exact, image, out_hw, pair, spatial_names, windows, within

ROLES: tuple[Role, ...] = ("activation", "weight", "bias")


@OPS.entry
@dataclass(frozen=True)
class Conv(Op):
    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()            # all before, then all after
    group: int = 1
    auto_pad: str = "NOTSET"              # SAME_* only while the input's size is unknown

    onnx: ClassVar[str] = "Conv"
    fuses_clip: ClassVar[bool] = True

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
            spec = windows(x.shape[2:] if x is not None else (-1,) * rank, kernel, op.strides, op.dilations, (), op.auto_pad)
            op = op.with_(pads=(*(s.before for s in spec), *(s.after for s in spec)), auto_pad="NOTSET")
        present = tuple(i for i, t in enumerate(call.types) if t is not None or i < 2)
        return Imported(op, present)

    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]:
        return windows(spatial, self.kernel_shape, self.strides, self.dilations, self.pads, self.auto_pad)

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        assert x is not None and w is not None
        return (TensorType((x.shape[0], w.shape[0], *(s.out for s in self.windows(x.shape[2:]))), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        y = convolve(x.astype(np.float64), w.astype(np.float64), self.windows(x.shape[2:]), self.group)
        if len(inputs) > 2 and inputs[2] is not None:
            y = y + inputs[2].astype(np.float64).reshape(1, -1, *(1,) * (y.ndim - 2))
        return (y.astype(x.dtype),)

    # --- integers
    def role(self, index: int) -> Role:
        return ROLES[index]

    def channel_axis(self, site: Site, index: int) -> int | None:
        return 0

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        params = {**requant_params(site, product_ratio(site), numerics), **zero_points(site.quant(1))}
        weight, bias = site.consts[1], site.consts[2] if site.present(2) else None
        assert weight is not None
        if bias is not None:
            params["bias_shift"] = bias_shift(site.quant(2), site.quant(0).scale[0] * np.asarray(site.quant(1).scale))
        rows = centred(weight, site.quant(1)).reshape(weight.shape[0], -1)
        shift = int(params.get("bias_shift", 0))
        prove(*sum_bounds(rows, site.quant(0), bias, shift), numerics, f"a convolution over {rows.shape[1]} terms")
        return params

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[IntArray, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        xc, wc = exact(centred(x, site.quant(0)), centred(w, site.quant(1)), terms=prod(w.shape[1:]))
        acc = convolve(xc, wc, self.windows(x.shape[2:]), self.group)
        return (finish(site, acc, 1, numerics, inputs[2] if site.present(2) else None),)

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
            within("pad", self.pads, limits.pad),
            within("channels", (site.shape(0)[1], site.out_shape[1]), limits.channels),
        )

    def space(self, site: Site, numerics: Numerics) -> Space:
        x, w, y = site.shape(0), site.shape(1), site.out_shape
        names, spec = spatial_names(len(self.kernel_shape)), self.windows(x[2:])
        area, per_group, out_per_group = prod(w[2:]), w[1], w[0] // self.group
        axes = [Axis("n", y[0]), Axis("co", y[1], multiple=1 if self.group == 1 else out_per_group)]
        axes += [Axis(n, s.out) for n, s in zip(names, spec, strict=True)]
        if self.group == 1:
            axes.append(Axis("ci", x[1], "sum"))
            channels = weight_in = DimMap("ci")
        else:
            channels = DimMap("co", per_group, out_per_group, 0, -(-per_group // out_per_group) - 1)
            weight_in = DimMap()
        kernel = (DimMap(),) * len(spec)
        x_map = (DimMap("n"), channels, *(s.dim_map(n) for n, s in zip(names, spec, strict=True)))
        y_map = (DimMap("n"), DimMap("co"), *(DimMap(n) for n in names))
        inputs = (
            Operand("x", x, x_map),
            Operand("weight", w, (DimMap("co"), weight_in, *kernel)),
            *((Operand("bias", site.shape(2), (DimMap("co"),)),) if site.present(2) else ()),
        )
        return Space(
            tuple(axes), inputs, (Operand("y", y, y_map),), channel_params(site, "co"),
            macs=area if self.group == 1 else area * per_group, ops=1, accumulator=Operand("acc", y, y_map),
        )

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        x, w, y, acc = tile.input(0), tile.input(1), tile.outputs[0], tile.acc
        assert acc is not None
        spec, names = self.windows(site.shape(0)[2:]), spatial_names(len(self.kernel_shape))
        rows = [interval[0] for interval in x.box[2:]]
        origin = [tile.ranges[n][0] * s.stride - s.before - row for n, s, row in zip(names, spec, rows, strict=True)]
        zeros = {"w_zeros": tile.params["w_zeros"].address} if "w_zeros" in site.params else {"w_zero": site.param("w_zero")}
        height, width = out_hw(y)
        out_channels = y.extent[1]
        em.emit(
            "CONV", **image(x, "x"), x_zero=site.quant(0).zero_point[0], w=w.address, w_type=w.dtype, **zeros,
            acc=acc.address, acc_type=acc.dtype, batch=y.extent[0], out_channels=out_channels, out_height=height, out_width=width,
            groups=1 if self.group == 1 else out_channels * self.group // site.out_shape[1],
            kernel=pair(self.kernel_shape, 1), stride=pair(self.strides, 1), dilation=pair(self.dilations, 1),
            origin=pair(origin, 0), insert=(1, 1), accumulate=int(self.group == 1 and not tile.first("ci")),
        )
        if self.group > 1 or tile.last("ci"):
            emit_requant(site, tile, em, 1, bias=2)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        cases = (
            # x, out channels, group, kernel, strides, dilations, pads, bias, clip
            ((1, 3, 8, 9), 5, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), True, (0.0, 6.0)),
            ((2, 4, 7, 6), 4, 4, (3, 2), (2, 1), (1, 1), (1, 0, 0, 1), True, (0.0, 1.5)),
            ((1, 6, 9, 8), 4, 2, (2, 3), (1, 2), (2, 1), (0, 2, 1, 0), False, None),
            ((1, 4, 5, 5), 8, 4, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), True, None),
            ((2, 5, 11), 3, 1, (3,), (2,), (2,), (2, 1), True, None),
            ((1, 16, 1, 1), 7, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), False, (0.0, float("inf"))),
        )
        for shape, out, group, kernel, strides, dilations, pads, bias, clip in cases:
            weight = rng.normal(size=(out, shape[1] // group, *kernel)).astype(np.float32)
            b = rng.normal(size=out).astype(np.float32) if bias else None
            x = rng.normal(size=shape).astype(np.float32)
            op = cls(kernel, strides, dilations, pads, group, clip=clip)
            yield Sample(op, (x, weight, b), (1, 2)) if bias else Sample(op, (x, weight), (1,))
