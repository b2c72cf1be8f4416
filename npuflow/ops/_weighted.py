"""Bases of the operators that multiply an activation with constant weights:
convolutions and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Buffer, Emitter, TileView
from npuflow.ir.op import No, Op, OpContext, Role, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, QuantType
from npuflow.ops._grouped import (
    group_params,
    group_sums,
    grouped,
    scale_operands,
    sum_axis,
    weight_fields,
)
from npuflow.ops._matrix import MatrixOp
from npuflow.ops._requant import (
    AT_ONCE,
    bias_shift,
    centred,
    channel_params,
    emit_requant,
    finish,
    product_ratio,
    prove,
    requant_params,
    weight_bounds,
    zero_points,
)
from npuflow.ops._windows import exact, out_hw, pair, spatial_names, window_measures, within

ROLES: tuple[Role, ...] = ("activation", "weight", "bias")


@dataclass(frozen=True)
class WeightedOp(Op):
    """y = activation times constant weight plus constant bias: one sum per output
    channel, requantised once."""

    fuses_clip: ClassVar[bool] = True
    what: ClassVar[str] = "a product"     # for messages

    def products(self, x: Array, weight: Array) -> Array:
        """The sums of products, in the dtype of the operands; channels are dimension 1."""
        raise NotImplementedError

    def role(self, index: int) -> Role:
        return ROLES[index]

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        if grouped(site):
            return group_params(site, numerics)
        params = {
            **requant_params(site, product_ratio(site, self.gain()), numerics),
            **zero_points(site.quant(1)),
        }
        weight, bias = site.consts[1], site.consts[2] if site.present(2) else None
        assert weight is not None
        if bias is not None:
            gain = self.gain() / self.bias_factor()
            unit = site.quant(0).scale[0] * np.asarray(site.quant(1).scale) * gain
            params["bias_shift"] = bias_shift(site.quant(2), unit)
        shift = int(params.get("bias_shift", 0))
        bounds = weight_bounds(weight, site.quant(1), self.rows, site.quant(0), bias, shift)
        terms = self.rows(weight).shape[1]
        prove(*bounds, site.accumulator_bits(numerics), f"{self.what} over {terms} terms")
        return params

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        if grouped(site):
            pair = centred(x, site.quant(0)), centred(w, site.quant(1))
            sums = group_sums(site, *pair, self.products, 1)
            return (finish(site, sums, 1, numerics, inputs[2] if site.present(2) else None),)
        axis = self.channel_axis(site, 1) if self.column_groups() == 1 else None
        ends = axis, 1, self.rows(w).shape[1]
        sums = whole_sums(centred(x, site.quant(0)), w, site.quant(1), self.products, ends)
        return (finish(site, sums, 1, numerics, inputs[2] if site.present(2) else None),)


def whole_sums(
    x: IntArray,
    weight: IntArray,
    quant: QuantType,
    products: Callable[[Array, Array], Array],
    ends: tuple[int | None, int, int],
) -> Array:
    """The exact sums of products with a weight's codes; of a large one for some output channels at a time.
    `ends`: the dimension of these channels in the weight (None: never in parts) and in the sums, and how many
    terms a sum has."""
    (axis, along, terms), zeros = ends, set(quant.zero_point)
    if axis is None or weight.size <= AT_ONCE or len(zeros) > 1:
        return products(*exact(x, centred(weight, quant), terms=terms))
    (zero,), count = zeros, weight.shape[axis]
    step, found = max(1, AT_ONCE * count // weight.size), []
    for at in range(0, count, step):
        some = weight[(*(slice(None),) * axis, slice(at, at + step))].astype(np.int64) - zero
        found.append(np.asarray(products(*exact(x, some, terms=terms))).astype(np.int64))
    return np.concatenate(found, axis=along)


def moved_bias(bias: Array | None, more: Array, shift: Array) -> Array | None:
    """A bias and what a shift of the input adds to it; None: there is neither."""
    if bias is None:
        return more if np.any(shift) else None
    return np.asarray(bias.astype(np.float64) + more)


def scaled_bias(bias: Array | None, scale: Array, shift: Array) -> Array | None:
    """scale * bias + shift; None: there is neither."""
    if bias is None:
        return shift if np.any(shift) else None
    return np.asarray(bias.astype(np.float64) * scale + shift)


def emit_products(op: MatrixOp, site: OpContext, tile: TileView, em: Emitter) -> None:
    """MATMUL, or SCALEDMATMUL with scales by groups, for each command of a product of matrices."""
    given = {"a_zero": site.quant(0).zero_point[0], **weight_fields(site, tile, "b")}
    for fields in op.commands(site, tile):
        em.emit("SCALEDMATMUL" if grouped(site) else "MATMUL", **fields, **given)


@dataclass(frozen=True)
class ConvOp(WeightedOp):
    """Convolutions and transposed ones over one or two dimensions: what is alike in
    placement, space and command."""

    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()            # all before, then all after
    group: int = 1

    what: ClassVar[str] = "a convolution"

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_conv"], "block": FORMS["block_conv"]}

    def column_groups(self) -> int:
        return self.group

    def origin(self, site: OpContext, tile: TileView) -> list[int]:
        """Where the window of the tile's first output begins, in the tile's rows of the input, by spatial
        dimension."""
        raise NotImplementedError

    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Strides, and by how much the command spreads the input."""
        return self.strides, (1,) * len(self.kernel_shape)

    def held(self, tile: TileView) -> Buffer:
        """The weight as the command reads it."""
        return tile.input(1)

    def stored(self, site: OpContext) -> dict[str, int | Array]:
        """The parameter that holds the weight as the command reads it, where that is not the input."""
        return {}

    def kernel(self, weight: Array) -> Array:
        """The weight as the command reads it: [out, in / group, *kernel]."""
        return weight

    def images(self, x: Array) -> list[Array]:
        """What each tap of `kernel` multiplies: [N, C, *out]."""
        raise NotImplementedError

    def measures(self, site: OpContext) -> Mapping[str, int]:
        return window_measures(
            self.kernel_shape, self.strides, self.dilations, self.pads, site.shape(0), self.group
        )

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        y = self.products(x.astype(np.float64), w.astype(np.float64))
        if len(inputs) > 2 and inputs[2] is not None:
            y = y + inputs[2].astype(np.float64).reshape(1, -1, *(1,) * (y.ndim - 2))
        return (y.astype(x.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
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

    def conv_space(
        self, site: OpContext, rows: Sequence[DimMap], kernel: Sequence[int], taps: int, packed: bool
    ) -> IterationDomain:
        """`rows`: input rows per spatial dimension; `kernel`: the weight's shape as the command reads it,
        [out, in / group, *taps]; `taps`: those that count per output; `packed`: the weight is the
        parameter "kernel", not the input."""
        x, y, names = site.shape(0), site.out_shape, spatial_names(len(self.kernel_shape))
        per_group, out_per_group = kernel[1], y[1] // self.group
        axes = [Axis("n", y[0]), Axis("co", y[1], multiple=1 if self.group == 1 else out_per_group)]
        axes += [Axis(n, size) for n, size in zip(names, y[2:], strict=True)]
        if self.group == 1:
            axes.append(sum_axis(site, "ci", x[1]))
            channels = weight_in = DimMap("ci")
        else:
            channels = DimMap("co", per_group, out_per_group, 0, -(-per_group // out_per_group) - 1)
            weight_in = DimMap()
        maps = (DimMap("co"), weight_in, *(DimMap(),) * len(names))
        weight = Operand("kernel" if packed else "weight", tuple(kernel), maps)
        y_map = (DimMap("n"), DimMap("co"), *(DimMap(n) for n in names))
        inputs = (
            Operand("x", x, (DimMap("n"), channels, *rows)),
            None if packed else weight,
            *((Operand("bias", site.shape(2), (DimMap("co"),)),) if site.present(2) else ()),
        )
        params = (*((weight,) if packed else ()), *channel_params(site, "co"))
        params += scale_operands(site, "ci", "co")
        return IterationDomain(
            tuple(axes),
            inputs,
            (Operand("y", y, y_map),),
            params,
            macs=taps if self.group == 1 else taps * per_group,
            ops=1,
            accumulator=Operand("acc", y, y_map),
        )

    def emit_conv(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        """CONV of the tile, and REQUANT behind its last input channel."""
        x, y, acc, w = tile.input(0), tile.outputs[0], tile.acc, self.held(tile)
        assert acc is not None
        (height, width), (stride, insert) = out_hw(y), self.steps()
        out_channels = y.extent[1]
        em.emit(
            "SCALEDCONV" if grouped(site) else "CONV",
            **x.image("x"),
            x_zero=site.quant(0).zero_point[0],
            w=w.address,
            w_type=w.dtype,
            **weight_fields(site, tile, "w"),
            acc=acc.address,
            acc_type=acc.dtype,
            batch=y.extent[0],
            out_channels=out_channels,
            out_height=height,
            out_width=width,
            groups=1 if self.group == 1 else out_channels * self.group // site.out_shape[1],
            kernel=pair(self.kernel_shape, 1),
            stride=pair(stride, 1),
            dilation=pair(self.dilations, 1),
            origin=pair(self.origin(site, tile), 0),
            insert=pair(insert, 1),
            accumulate=int(self.group == 1 and not tile.first("ci")),
        )
        if self.group > 1 or tile.last("ci"):
            emit_requant(site, tile, em, 1, bias=2)


def conv_rows(weight: Array) -> Array:
    """[out, in / group, *kernel] as one row per output channel."""
    return weight.reshape(weight.shape[0], prod(weight.shape[1:]))
