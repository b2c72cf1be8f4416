"""Sampling at computed places: weights of all rows and columns of an image, and products with them."""

from __future__ import annotations

import numpy as np

from npuflow.rules._parts import Parts

MOST = 1 << 22  # elements of the sampling matrices of a node
MAKES = ("add", "sub", "mul", "abs", "sign", "clip", "reshape", "slice", "matmul", "transpose", "concat")


def tents(parts: Parts, places: str, size: int) -> str:
    """Bilinear weights: places [..., 1, count] as [..., size, count], 1 - |place - row|, 0 farther away. A
    place between two rows has two weights; beyond -1 or `size` it has none."""
    near = parts.clip(places, -1.0, float(size), "near")
    away = parts.sub(near, parts.const(np.arange(size)[:, None], "rows"), "away")
    return parts.clip(parts.sub(1.0, parts.op("abs", (away,)), "tent"), 0.0, what="tent")


def nearest(parts: Parts, places: str, size: int) -> str:
    """Weights of 1 at the nearest row, and 0 elsewhere. Which side of the boundary between two rows a place
    lies on is a sign, and on the boundary itself the even row's: a table of the rounded place would need a
    step for each row."""
    near = parts.clip(places, -1.0, float(size), "near")
    bounds = parts.const(np.arange(-0.5, size)[:, None], "bounds")
    side = parts.op("sign", (parts.sub(near, bounds, "away"),))
    odd = parts.const(np.arange(size + 1)[:, None] % 2 == 0, "odd")  # the row below the boundary is odd
    behind = parts.clip(parts.add(parts.mul(side, 2.0), odd), 0.0, 1.0, "behind")
    axis = len(parts.shape(behind)) - 2
    return parts.sub(parts.slice(behind, axis, 0, size), parts.slice(behind, axis, 1, size + 1), "nearest")


def sampled(parts: Parts, image: str, rows: str, columns: str) -> str:
    """[n, channels, height * width] at places with weights [n, height, count] and [n, width, count]."""
    (n, height, places), width = parts.shape(rows), parts.shape(columns)[1]
    both = parts.mul(
        parts.reshape(rows, (n, height, 1, places)), parts.reshape(columns, (n, 1, width, places)), "weights"
    )
    return parts.matmul(image, parts.reshape(both, (n, height * width, places)), "sampled")
