"""The table that resizing commands share: two rows and two weights for every row of the result.
Another one has the same for its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from npuflow.hw.command import Command
from npuflow.hw.region import Region
from npuflow.kernels.opcode import Simulated
from npuflow.program import access


class ResamplingOpcode(Simulated):
    """RESIZE and FRESIZE: what they touch, and how many element operations they take."""

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("x_dims")
        height, width = c.number("out_height"), c.number("out_width")
        yield access.tensor(c, "x", dims)
        yield from access.flat(c, "rows", height * 4, 4)
        yield from access.flat(c, "columns", width * 4, 4)
        yield access.tensor(c, "y", (*dims[:2], height, width), True)

    def operations(self, c: Command) -> int:
        return 4 * prod(c.vector("x_dims")[:2]) * c.number("out_height") * c.number("out_width")
