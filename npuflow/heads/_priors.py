"""Boxes as offsets to prior boxes, shared by the detectors that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from npuflow.heads import HeadNet
from npuflow.heads import _cells as c
from npuflow.ir.types import Array

Growth = Literal["exp", "linear"]


def moved(
    net: HeadNet, table: str, priors: Array, variances: Sequence[float], swapped: bool, growth: Growth
) -> str:
    """Corners of boxes: centres moved by parts of the prior's size, sizes grown by an exponent or linearly.

    `priors` [boxes, 4] in pixels, and `variances`: of x, y, width, height; `swapped`: y and height come
    first in the head."""
    order = [1, 0, 3, 2] if swapped else [0, 1, 2, 3]
    priors, factors = priors[:, order], np.asarray(variances, np.float64)[order]
    size, near, far = priors[:, 2:], factors[:2], factors[2:]
    shift = net.op("Mul", c.columns(net, table, 0, 2), net.constant((near * size)[None]))
    centre = net.op("Add", shift, net.constant(priors[None, :, :2]))
    grown = c.columns(net, table, 2, 4)
    if growth == "exp":
        if np.any(far != 1):
            grown = net.op("Mul", grown, net.constant(far[None, None]))
        half = net.op("Mul", net.op("Exp", grown), net.constant(size[None] / 2))
    else:
        half = net.op("Mul", grown, net.constant((far * size)[None] / 2))
    low, high = net.op("Sub", centre, half), net.op("Add", centre, half)
    if not swapped:
        return net.op("Concat", low, high, axis=2)
    parts = [c.columns(net, corner, k, k + 1) for corner in (low, high) for k in (1, 0)]
    return net.op("Concat", *parts, axis=2)
