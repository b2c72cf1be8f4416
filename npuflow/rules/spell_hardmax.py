"""Hardmax in simpler operators: where x reaches its maximum, and no earlier element does."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellHardmax(Decomposition):
    """Elements before each one are counted by a product with a triangular matrix of ones."""

    triggers = ("host:hardmax",)
    makes = ("reducemax", "sub", "sign", "add", "transpose", "matmul", "mul", "clip", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        x = parts.input(0)
        rank = len(parts.shape(x))
        axis = parts.integer("axis", -1) % rank
        order = [d for d in range(rank) if d != axis] + [axis]
        rows = parts.transpose(x, order)
        shape, size = parts.shape(rows), parts.shape(rows)[-1]
        rows = parts.reshape(rows, (-(-parts.type(x).size // size), size))
        below = parts.sub(rows, parts.reduce("max", rows, (1,), what="largest"), "below")
        reached = parts.add(parts.op("sign", (below,)), 1.0, "reached")
        triangle = parts.const(np.triu(np.ones((size, size), np.float32), 1), "triangle")
        first = parts.clip(parts.sub(1.0, parts.matmul(reached, triangle, "earlier")), 0.0, 1.0, "first")
        y = parts.reshape(parts.mul(reached, first), shape)
        return (parts.transpose(y, np.argsort(order).tolist()),)
