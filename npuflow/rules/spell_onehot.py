"""OneHot as a look-up of the rows of an identity matrix."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._numbers import INTEGERS, number
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 20                           # elements of the matrix


@RULES.entry
class SpellOneHot(Decomposition):
    """Behind the rule that makes a look-up of its product with a matrix. The last row of the table is that of
    an index out of range, which is no error."""

    order = 5
    triggers = ("host:onehot",)
    makes = ("lookup", "host", "reshape", "transpose")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        index, depth, values = parts.input(0), parts.number(1), parts.number(2)
        if parts.type(index).dtype not in INTEGERS:
            return f"indices of {parts.type(index).dtype}"
        if depth is None or values is None:
            return "the depth or the values are not a constant"
        size = int(depth.reshape(-1)[0])
        if not 0 < size * (size + 1) <= _MOST:
            return f"a depth of {size}"
        off, on = values.reshape(-1).astype(np.float32)
        table = np.where(np.eye(size + 1, size, dtype=bool), on, off)[None]
        picks = parts.shape(index)
        flat = parts.reshape(number(parts, index), (parts.type(index).size,))
        rows = parts.op("lookup", (parts.const(table, "table"), flat), wrap=size)
        axis, rank = parts.integer("axis", -1) % (len(picks) + 1), len(picks)
        order = (*range(axis), rank, *range(axis, rank))
        return (parts.transpose(parts.reshape(rows, (*picks, size)), order),)
