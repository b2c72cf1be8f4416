"""Sums of a convolution of floats."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import FLOAT_SUM, OPCODES, Fields, Terms, element, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.isa.conv import ConvOpcode
from npuflow.kernels import cycles, exact
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FConv(Simulated):
    """acc[n,o,y,x] (dense, float32) = start + sum over K of X[n, g*Cg+c, Y, X] * w[o,c,i,j], with the
    fields of CONV. start is the old acc when accumulate, else the float32 at bias[o], or +0. Each `taps`
    consecutive channels of x are one channel of the layer, gathered tap by tap (1: x is the image itself). K
    goes through blocks of `block` such channels, in a block through taps (those gathered, then i, then j), at
    a tap through channels. Each `chunk` consecutive terms (the last may be fewer) are summed exactly and
    rounded once to float32; these are added to start one after the other in float32. Coordinates outside
    the tile contribute +0.
    """

    code = 30
    name = "FCONV"
    queue = "TENSOR"
    fields = (
        *tensor("x", role="float"),
        *numbers("x_dims:4"),
        pointer("w"),
        element("w", "float"),
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch out_channels out_height out_width groups"),
        *numbers("kernel:2 stride:2 dilation:2 origin:2! insert:2 accumulate block chunk taps"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from ConvOpcode().problems(f)
        yield from floats.chunk_problems(f)
        if f["taps"] < 1 or (f["groups"] >= 1 and f["x_dims"][1] // f["groups"] % f["taps"]):
            yield f"{f['taps']} taps do not divide {f['x_dims'][1]} channels in {f['groups']} groups"

    def accesses(self, c: Command) -> Iterator[Region]:
        terms = c.vector("x_dims")[1] // c.number("groups") * prod(c.vector("kernel"))
        return access.convolved(c, c.number("out_channels") * terms, ELEMENTS[c.text("w_type")].bytes)

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *ConvOpcode().passes(c, target.compute), cycles.widths(c, "x", "w"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return ConvOpcode().passes(c, Compute())[2], cycles.widths(c, "x", "w")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, kind = c.vector("x_dims"), c.text("x_type")
        groups, out, (kh, kw) = c.number("groups"), c.number("out_channels"), c.vector("kernel")
        per, places = dims[1] // groups, c.number("out_height") * c.number("out_width")
        order = floats.order(per, kh * kw, c.number("block"), c.number("taps"))
        columns = exact.windows(floats.tensor(memory, c, "x", dims), c)  # [B, n, C, kh, kw, oh, ow]
        batch = columns.shape[:2]
        columns = columns.reshape(*batch, groups, per * kh * kw, places)[:, :, :, order]
        raw = memory.flat(c.core, c.number("w"), c.text("w_type"), out * per * kh * kw)
        weight = floats.real(raw, kind).reshape(-1, 1, groups, out // groups, per * kh * kw)[..., order]
        acc = memory.accumulator(c, (dims[0], out, c.number("out_height"), c.number("out_width")))
        shape = (*batch, groups, out // groups, places)
        start = floats.start(memory, c, acc, out, 2).reshape(-1, acc.shape[1], groups, out // groups, places)
        total = floats.dot(weight, columns, c.number("chunk"), np.broadcast_to(start, shape))
        acc[...] = total.reshape(acc.shape)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_floats import convolution  # its kernels are slow to load

        return convolution(bench, i, c)
