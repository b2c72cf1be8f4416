"""CenterNet: peaks of a map for each class are the centres of boxes.

Source: X. Zhou, D. Wang, P. Krahenbuhl, "Objects as points", 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c


@HEADS.entry
@dataclass(frozen=True)
class CenternetHead(Head):
    """Three outputs of the same rows and columns: a map for each class [1, classes, rows, columns], width and
    height [1, 2, rows, columns], offset of the centre in its cell [1, 2, rows, columns]."""

    sigmoid: bool = True
    """The maps do not come through a sigmoid yet."""
    in_cells: bool = True
    """Width and height are in cells, not in pixels."""

    suppresses = False
    every_class = True

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        if len(shapes) != 3 or any(len(shape) != 4 for shape in shapes):
            return "three outputs are needed: maps of the classes, sizes, offsets"
        maps, sizes, offsets = shapes
        if sizes[1] != 2 or offsets[1] != 2 or len({shape[2:] for shape in shapes}) > 1:
            return f"{list(maps)}, {list(sizes)} and {list(offsets)} are no maps, sizes and offsets"
        if size[0] % maps[2] or size[1] % maps[3] or size[0] // maps[2] != size[1] // maps[3]:
            return f"{list(maps[2:])} cells are no whole strides of an input of {size}"
        return f"{maps[1]} maps for {classes} classes" if classes not in (0, maps[1]) else ""

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        maps, sizes, offsets = task.heads
        _, classes, high, wide = net.shape(maps)
        stride = task.size[0] / high
        heat = net.op("Sigmoid", maps) if self.sigmoid else maps
        most = net.op("MaxPool", heat, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
        zero = net.constant(np.asarray(0.0))
        peaks = net.on_host("Where", net.on_host("Equal", heat, most), heat, zero)
        scores = net.on_host("Reshape", peaks, [1, classes, high * wide])
        place = net.op("Add", c.rows(net, offsets, 2), net.constant(c.grid(high, wide)[None]))
        centre = net.op("Mul", place, net.constant(np.asarray(stride)))
        unit = stride if self.in_cells else 1.0
        half = net.op("Mul", c.rows(net, sizes, 2), net.constant(np.asarray(unit / 2)))
        return Decoded(c.corners(net, centre, half), scores)
