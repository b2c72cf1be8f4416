"""Convolutions and pooling on batches in PyTorch, with the paddings and divisors of the graph's operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
import torch.nn.functional as functions

from npuflow.ir.op import Site
from npuflow.ir.windows import Window


def merged(x: Any) -> Any:
    """Samples and the graph's own batch as one dimension."""
    return x.flatten(0, 1)


def apart(y: Any, site: Site) -> Any:
    """They as two again."""
    return y.unflatten(0, (-1, site.out_shape[0]))


def padded(x: Any, spec: Sequence[Window], value: float = 0.0) -> Any:
    """As far as the last window reaches."""
    pads: list[int] = []
    for window in reversed(spec):
        reach = (window.out - 1) * window.stride + window.span
        pads += [window.before, reach - window.size - window.before]
    return functions.pad(x, pads, value=value) if any(pads) else x


def per_dimension(spec: Sequence[Window], name: str) -> tuple[int, ...]:
    return tuple(getattr(window, name) for window in spec)


def weights(inputs: Sequence[Any]) -> tuple[Any, Any]:
    """Weight and bias without the dimension of samples, which constants have once."""
    bias = inputs[2][0] if len(inputs) > 2 and inputs[2] is not None else None
    return inputs[1][0], bias


def conv(site: Site, inputs: Sequence[Any]) -> tuple[Any, ...]:
    op: Any = site.op
    spec = op.windows(site.shape(0)[2:])
    run = (functions.conv1d, functions.conv2d, functions.conv3d)[len(spec) - 1]
    weight, bias = weights(inputs)
    x, even = merged(inputs[0]), all(window.before == window.after for window in spec)
    x = x if even else padded(x, spec)
    pads = per_dimension(spec, "before") if even else (0,) * len(spec)
    strides, dilations = per_dimension(spec, "stride"), per_dimension(spec, "dilation")
    return (apart(run(x, weight, bias, strides, pads, dilations, op.group), site),)


def deconv(site: Site, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The full result, then what the pads cut off."""
    op: Any = site.op
    rank = len(op.kernel_shape)
    run = (functions.conv_transpose1d, functions.conv_transpose2d, functions.conv_transpose3d)[rank - 1]
    weight, bias = weights(inputs)
    more = op.output_padding or (0,) * rank
    y = run(merged(inputs[0]), weight, None, op.strides, 0, 0, op.group, op.dilations)
    sides: list[int] = []
    for before, after, extra in reversed(list(zip(op.pads[:rank], op.pads[rank:], more, strict=True))):
        sides += [-before, extra - after]
    y = functions.pad(y, sides) if any(sides) else y
    if bias is not None:
        y = y + bias.reshape(1, -1, *(1,) * rank)
    return (apart(y, site),)


def max_pool(site: Site, inputs: Sequence[Any]) -> tuple[Any, ...]:
    op: Any = site.op
    spec = op.windows(site.shape(0)[2:])
    run = (functions.max_pool1d, functions.max_pool2d, functions.max_pool3d)[len(spec) - 1]
    x = padded(merged(inputs[0]), spec, -inf)
    kernel, strides, dilations = (per_dimension(spec, n) for n in ("kernel", "stride", "dilation"))
    return (apart(run(x, kernel, strides, 0, dilations), site),)


def average_pool(site: Site, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Sums over windows, each divided by what the operator counts in it."""
    op: Any = site.op
    spec = op.windows(site.shape(0)[2:])
    run = (functions.conv1d, functions.conv2d, functions.conv3d)[len(spec) - 1]
    x = padded(merged(inputs[0]), spec)
    ones = torch.ones(x.shape[1], 1, *per_dimension(spec, "kernel"))
    strides, dilations = per_dimension(spec, "stride"), per_dimension(spec, "dilation")
    sums = run(x, ones, None, strides, 0, dilations, x.shape[1])
    counts = torch.from_numpy(op.counts(spec)).clamp(min=1).to(x.dtype)
    return (apart(sums / counts, site),)
