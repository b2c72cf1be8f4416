"""LRN in simpler operators: the windowed sum of squares over channels as a 1x1
convolution with a banded kernel."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellLrn(Decomposition):
    """alpha / size is the kernel's value, the offset its bias, so that the base of
    the power is rounded once."""

    triggers = ("host:lrn",)
    makes = ("mul", "conv", "pow", "div", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, size, offset, beta = (
            parts.input(0),
            parts.integer("size", 1),
            parts.real("bias", 1.0),
            parts.real("beta", 0.75),
        )
        shape = parts.shape(x)
        channels, spatial = shape[1], len(shape) - 2
        if not 1 <= spatial <= 2:
            return f"rank {len(shape)}"
        distance = np.arange(channels)[None, :] - np.arange(channels)[:, None]
        band = (distance >= -((size - 1) // 2)) & (distance <= size // 2)
        kernel = np.where(band, parts.real("alpha", 1e-4) / size, 0.0).reshape(
            channels, channels, *(1,) * spatial
        )
        ones = (1,) * spatial
        weights = parts.const(kernel, "window"), parts.const(np.full(channels, offset), "offset")
        base = parts.op(
            "conv",
            (parts.mul(x, x, "square"), *weights),
            "base",
            kernel_shape=ones,
            strides=ones,
            dilations=ones,
            pads=(0,) * (2 * spatial),
            group=1,
        )
        if offset > 0:
            return (parts.mul(x, parts.op("pow", (base,), exponent=-beta)),)
        return (parts.div(x, parts.op("pow", (base,), exponent=beta)),)
