"""Sums of a convolution."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

import numpy as np

from npuflow.hw.check import MAX_ELEMENTS
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, SUM, Fields, Terms, element, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.kernels import cycles, exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class ConvOpcode(Simulated):
    """acc[n,o,y,x] (dense, (+)= when accumulate) = sum over c,i,j of (X[n, g*Cg+c, Y, X] - x_zero) *
    (w[o,c,i,j] - wz[o]). x is [n, C, H, W] with x_dims extents and x_strides; Cg = C / groups; g = o /
    (out_channels / groups); w is dense [out_channels, Cg, kernel]. Y = y*stride + i*dilation + origin
    (origin = -pad in the tile's own rows). With insert = s > 1 the input has s-1 virtual zeros between
    rows (transposed convolution): Y must be a multiple of s and row Y/s is read. Coordinates outside
    the tile or not a multiple contribute 0. wz[o] = w_zero, or int32 at `w_zeros` when that is not NONE.
    """

    code = 4
    name = "CONV"
    queue = "TENSOR"
    layout = "channels"
    any_strides = True
    fields = (
        *tensor("x"), *numbers("x_dims:4 x_zero!"), pointer("w"), element("w", "weight"), *numbers("w_zero!"),
        pointer("w_zeros", optional=True), *SUM,
        *numbers("batch out_channels out_height out_width groups"),
        *numbers("kernel:2 stride:2 dilation:2 origin:2! insert:2 accumulate"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["groups"] < 1 or f["out_channels"] % f["groups"] or f["x_dims"][1] % f["groups"]:
            yield f"{f['groups']} groups do not divide {f['out_channels']} and {f['x_dims'][1]} channels"
        if f["x_dims"][0] != f["batch"]:
            yield f"batch {f['batch']} is not the tile's {f['x_dims'][0]}"
        if f["batch"] * f["out_channels"] * f["out_height"] * f["out_width"] > MAX_ELEMENTS:
            yield "the result spans more than 2^31 elements"

    def accesses(self, c: Command) -> Iterator[Region]:
        yield from access.window(c)
        out, weight = c.number("out_channels"), ELEMENTS[c.text("w_type")]
        count = out * (c.vector("x_dims")[1] // c.number("groups")) * prod(c.vector("kernel"))
        if weight.packed:
            yield access.packed(c, "w", 0, count - 1)
        else:
            yield from access.flat(c, "w", count, weight.bytes)
        yield from access.flat(c, "w_zeros", self.zero_count(c), 4)
        made = (c.number("batch"), out, c.number("out_height"), c.number("out_width"))
        yield from access.sums(c, made, bool(c.number("accumulate")))

    def zero_count(self, c: Command) -> int:
        """How many zero points lie at `w_zeros`."""
        return c.number("out_channels")

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *self.passes(c, target.compute), cycles.widths(c, "x", "w"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return self.passes(c, Compute())[2], cycles.widths(c, "x", "w")

    def passes(self, c: Command, compute: Compute) -> tuple[int, int, int]:
        """(array cycles, passes, multiply-accumulates)."""
        groups, out = c.number("groups"), c.number("out_channels")
        per_in, per_out = c.vector("x_dims")[1] // groups, out // groups
        area = prod(c.vector("kernel"))
        pixels = c.number("batch") * c.number("out_height") * c.number("out_width")
        macs = area * out * pixels * per_in
        if per_in == 1 and groups > 1:
            return ceil(macs / compute.depthwise_macs), 0, macs
        if compute.dataflow == "weight_stationary":
            passes = area * ceil(per_in / compute.array_rows) * ceil(per_out / compute.array_cols) * groups
            return passes * ceil(pixels / compute.array_pixels), passes, macs
        passes = groups * ceil(pixels / compute.array_rows) * ceil(per_out / compute.array_cols)
        return passes * area * per_in, passes, macs

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("x_dims")
        groups, out = c.number("groups"), c.number("out_channels")
        height, width, (kh, kw) = c.number("out_height"), c.number("out_width"), c.vector("kernel")
        per = dims[1] // groups
        columns = exact.windows(exact.signed(memory, c, "x", dims), c)        # [B, n, C, kh, kw, oh, ow]
        batch = columns.shape[:2]
        columns = columns.reshape(*batch, groups, per * kh * kw, height * width)
        count = out * per * kh * kw
        weight = self._weights(memory, c, count).reshape(-1, out, per * kh * kw)
        weight = weight - exact.zeros(memory, c, "w", out)[..., None]
        weight = weight.reshape(-1, 1, groups, out // groups, per * kh * kw)
        acc = exact.matmul(weight, columns).reshape(*batch, out, height, width)
        exact.accumulate(memory, c, (dims[0], out, height, width), acc)

    def _weights(self, memory: SimulatedMemory, c: Command, count: int) -> exact.Wide:
        """The dense weights as int64."""
        if ELEMENTS[c.text("w_type")].packed:
            return exact.packed(memory, c, "w", np.arange(count))
        return memory.flat(c.core, c.number("w"), c.text("w_type"), count).astype(np.int64)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.products.fast_convolutions import conv  # its kernels are slow to load

        return conv(bench, i, c)
