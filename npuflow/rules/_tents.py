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


def nearest(
    parts: Parts, places: str, size: int, unit: tuple[float, float] = (0.0, 1.0), beyond: bool = False
) -> str:
    """Weights of 1 at the nearest row, and 0 elsewhere. Which side of the boundary between two rows a place
    lies on is a sign, and on the boundary itself the even row's: a table of the rounded place would need a
    step for each row. `unit`: (m, h) where the row is m + h * place. The boundaries are put into that unit
    rather than the places into rows: rounding these would move some of them across. `beyond`: the first and
    the last row reach on without end."""
    middle, step = unit
    lines = np.arange(1, size) if beyond else np.arange(size + 1)
    bounds = parts.const((lines[:, None] - 0.5 - middle) / step, "bounds")
    side = parts.op("sign", (parts.sub(places, bounds, "away"),))
    odd = parts.const(lines[:, None] % 2 == 0, "odd")  # the row below the boundary is odd
    behind = parts.clip(parts.add(parts.mul(side, 2.0), odd), 0.0, 1.0, "behind")
    shape = parts.shape(behind)
    axis = len(shape) - 2
    if beyond:
        edge = (*shape[:axis], 1, shape[-1])
        first, last = (parts.const(np.full(edge, value), "edge") for value in (1.0, 0.0))
        behind = parts.concat((first, behind, last), axis)
    return parts.sub(parts.slice(behind, axis, 0, size), parts.slice(behind, axis, 1, size + 1), "nearest")


def cubics(parts: Parts, places: str, rows: range) -> str:
    """Cubic weights (Keys 1981, a = -3/4) of `rows`: places [..., 1, count] as [..., rows, count].

    With p = max(0, 1 - |distance|) and s = min(1, max(0, |distance| - 1)) the weight is
    p (3/4 + p (3/2 - 5/4 p)) - 3/4 s (1 - s)^2: both parts end in 0 where the other begins."""
    at = parts.const(np.array(rows)[:, None], "rows")
    away = parts.op("abs", (parts.sub(places, at, "away"),))
    inner = parts.clip(parts.sub(1.0, away), 0.0, 1.0, "inner")
    left = parts.clip(parts.sub(2.0, away), 0.0, 1.0, "left")  # 1 - s
    hill = parts.mul(inner, parts.sub(1.5, parts.mul(inner, 1.25), "slope"), "hill")
    hill = parts.mul(inner, parts.add(hill, 0.75), "hill")
    dip = parts.mul(parts.mul(left, left), parts.sub(0.75, parts.mul(left, 0.75)), "dip")
    return parts.sub(hill, dip, "cubic")


def sampled(parts: Parts, image: str, *weights: str) -> str:
    """[n, channels, product of sizes] at places with weights [n, size, count] for each dimension."""
    n, together, places = parts.shape(weights[0])
    both = weights[0]
    for one in weights[1:]:
        size = parts.shape(one)[1]
        pair = parts.reshape(both, (n, together, 1, places)), parts.reshape(one, (n, 1, size, places))
        together *= size
        both = parts.reshape(parts.mul(*pair, "weights"), (n, together, places))
    return parts.matmul(image, both, "sampled")
