"""Convolutions, requantised as they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.whole.export_c import convolution
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements
from npuflow.whole.export_c.layer import ConvLayer, finish_of
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class ConvKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c, held = run[0], w.array_of(run[0]["w"])
        if w.fused(run) != "convolution" or held is None:
            raise ModelError(
                "CONV: constant weights and a REQUANT behind it are needed",
                code="NF-PROGRAM-045",
            )
        end, channels, out = run[1], c["x_dims"][1], c["out_channels"]
        zero: Any = c["w_zero"]
        if "w_zeros" in c.fields:
            zeros = w.array_of(c["w_zeros"])
            assert zeros is not None
            zero = zeros.astype(np.int64)[:, None, None, None]
        weight = held.astype(np.int64).reshape(out, channels // c["groups"], *c["kernel"]) - zero
        dims = (c["batch"], out, c["out_height"], c["out_width"])
        y_strides = elements(end, "y")
        if tuple(end["dims"]) != dims:  # an image of one row: [1, n, c, w]
            y_strides = (y_strides[1], y_strides[2], 0, y_strides[3])
        convolution.write(
            w,
            ConvLayer(
                x=c["x"],
                x_type=c["x_type"],
                x_zero=c["x_zero"],
                x_dims=tuple(c["x_dims"]),
                x_strides=elements(c, "x"),
                y=end["y"],
                y_type=end["y_type"],
                y_dims=dims,
                y_strides=y_strides,
                weight=weight,
                groups=c["groups"],
                stride=tuple(c["stride"]),
                dilation=tuple(c["dilation"]),
                origin=tuple(c["origin"]),
                insert=tuple(c["insert"]),
                finish=finish_of(w, end, out),
            ),
        )
        return 2
