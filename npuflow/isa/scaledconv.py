"""Sums of a convolution, scaled group by group of input channels."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Fields
from npuflow.hw.region import Region
from npuflow.hw.target import Compute
from npuflow.isa import _scaled
from npuflow.isa.conv import ConvOpcode
from npuflow.kernels import exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import Bench


@OPCODES.entry
class ScaledConvOpcode(ConvOpcode):
    """CONV with groups = 1 whose products are summed in groups of `group` consecutive input channels, each
    sum times a number of its own: acc[n,o,y,x] (+)= sum over g of scales[g,o] * (the sum of CONV over input
    channels g*group to (g+1)*group - 1). `scales` is dense [ceil(C / group), out_channels], and so is
    `w_zeros` when it is not NONE: each group has zero points of its own.
    """

    code = 21
    name = "SCALEDCONV"
    any_strides = False
    fields = (*ConvOpcode.fields, *_scaled.FIELDS)

    def problems(self, f: Fields) -> Iterator[str]:
        yield from super().problems(f)
        if f["groups"] != 1:
            yield f"{f['groups']} groups of channels that do not meet; sums are scaled of a single one"

    def accesses(self, c: Command) -> Iterator[Region]:
        groups = len(_scaled.pieces(c, c.vector("x_dims")[1]))
        yield from _scaled.accesses(c, groups, c.number("out_channels"))
        yield from super().accesses(c)

    def zero_count(self, c: Command) -> int:
        groups = len(_scaled.pieces(c, c.vector("x_dims")[1]))
        return prod(_scaled.zeros_shape(groups, c.number("out_channels")))

    def passes(self, c: Command, compute: Compute) -> tuple[int, int, int]:
        work, passes, macs = super().passes(c, compute)
        if compute.dataflow == "weight_stationary":
            parts = _scaled.pieces(c, c.vector("x_dims")[1])
            blocks = sum(ceil((b - a) / compute.array_rows) for a, b in parts)
            passes = prod(c.vector("kernel")) * blocks * ceil(c.number("out_channels") / compute.array_cols)
            pixels = c.number("batch") * c.number("out_height") * c.number("out_width")
            work = passes * ceil(pixels / compute.array_pixels)
        return work, passes, macs

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, out = c.vector("x_dims"), c.number("out_channels")
        height, width, kernel = c.number("out_height"), c.number("out_width"), c.vector("kernel")
        columns = exact.windows(exact.signed(memory, c, "x", dims), c)  # [B, n, C, kh, kw, oh, ow]
        weight = self._weights(memory, c, out * dims[1] * prod(kernel)).reshape(
            -1, out, dims[1], prod(kernel)
        )
        parts = _scaled.pieces(c, dims[1])
        zeros = _scaled.zeros(memory, c, "w", len(parts), out)
        scales = _scaled.scales(memory, c, len(parts), out)
        total: exact.Wide | None = None
        for g, (a, b) in enumerate(parts):
            terms = (b - a) * prod(kernel)
            x = columns[:, :, a:b].reshape(*columns.shape[:2], terms, height * width)
            own = weight[:, :, a:b] - zeros[:, g][..., None, None]
            sums = exact.matmul(own.reshape(-1, 1, out, terms), x)
            scaled = exact.times(sums, scales[:, g][:, None, :, None])
            total = scaled if total is None else exact.plus(total, scaled)
        assert total is not None
        shape = (dims[0], out, height, width)
        exact.accumulate(memory, c, shape, total.reshape(*columns.shape[:2], *shape[1:]))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.products.fast_scaled import conv  # its kernels are slow to load

        parts = _scaled.pieces(c, c.vector("x_dims")[1])
        return conv(bench, i, c, parts, _scaled.zeros_shape(len(parts), c.number("out_channels")))
