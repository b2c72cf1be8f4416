"""Sums of a convolution with weights in blocks that share an exponent."""

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
from npuflow.kernels.blocks import blocks
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class BConv(Simulated):
    """acc[n,o,y,x] (dense, float32) = start + sum over K of X[n, g*Cg+c, Y, X] * w[o,c,i,j], with the fields
    of FCONV. w is dense [out_channels, ceil(Cg / size), kernel] of blocks: a block of w_type has the weights
    of `size` channels of a group at one tap, zeros behind the last one. Where the elements of w_type are
    integers, x is converted to blocks of w_type along its channels first, else it is taken as it is. K goes
    through blocks, at a block through taps (i, then j). The sum of every block at a tap is exact and rounded
    once to float32; these are added to start one after the other in float32. start is the old acc when
    accumulate, else the float32 at bias[o], or +0. Coordinates outside the tile contribute +0.
    """

    code = 36
    name = "BCONV"
    queue = "TENSOR"
    fields = (
        *tensor("x", role="float"),
        *numbers("x_dims:4"),
        pointer("w"),
        element("w", "block"),
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch out_channels out_height out_width groups"),
        *numbers("kernel:2 stride:2 dilation:2 origin:2! insert:2 accumulate"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from ConvOpcode().problems(f)
        yield from blocks.problems(f["x_type"])

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.convolved(c, prod(weight_shape(c)) * ELEMENTS[c.text("w_type")].block_bytes, 1)

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *ConvOpcode().passes(c, target.compute), cycles.widths(c, "x", "w"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return ConvOpcode().passes(c, Compute())[2], cycles.widths(c, "x", "w")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, kind, groups = c.vector("x_dims"), c.text("w_type"), c.number("groups")
        out, count, taps = weight_shape(c)
        places, size = c.number("out_height") * c.number("out_width"), blocks.size_of(kind)
        x = memory.operand(c, "x", dims)                                  # [B, n, C, H, W]
        x = x.reshape(*x.shape[:2], groups, -1, *x.shape[3:])
        value = floats.real(np.moveaxis(blocks.taken(np.moveaxis(x, 3, -1), kind), -1, 3), "bfloat16")
        columns = exact.windows(value, c)
        terms = blocks.terms(columns.reshape(*columns.shape[:4], taps, places), size)
        bytes_ = ELEMENTS[kind].block_bytes
        raw = memory.flat(c.core, c.number("w"), "uint8", out * count * taps * bytes_)
        weight = blocks.numbers(raw.reshape(-1, 1, groups, out // groups, count * taps, bytes_), kind)
        weight = weight.reshape(*weight.shape[:4], -1)
        acc = memory.accumulator(c, (dims[0], out, c.number("out_height"), c.number("out_width")))
        shape = (*terms.shape[:3], out // groups, places)
        start = floats.start(memory, c, acc, out, 2).reshape(-1, acc.shape[1], groups, out // groups, places)
        total = floats.dot(weight, terms, size, np.broadcast_to(start, shape))
        acc[...] = total.reshape(acc.shape)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.blocks.fast_blocks import convolution  # its kernels are slow to load

        return convolution(bench, i, c)


def weight_shape(c: Command) -> tuple[int, int, int]:
    """Output channels, blocks of input channels, taps."""
    per = c.vector("x_dims")[1] // c.number("groups")
    return c.number("out_channels"), -(-per // blocks.size_of(c.text("w_type"))), prod(c.vector("kernel"))
