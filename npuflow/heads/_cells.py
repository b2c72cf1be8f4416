"""What detection heads share: outputs as rows of one anchor each, centres of cells, corners of boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.heads import HeadNet, Shapes
from npuflow.ir.types import Array

Anchors = tuple[tuple[float, ...], ...]   # of every head: width, height, width, height, ... in pixels


def per_cell(anchors: Anchors) -> list[int]:
    """How many anchors a cell of each head has."""
    return [len(one) // 2 for one in anchors]


def anchor_fault(anchors: Anchors) -> str:
    """What is wrong with anchors; "" if nothing is."""
    for row in anchors:
        if len(row) < 2 or len(row) % 2:
            return f"{list(row)} are no pairs of width and height"
        if min(row) <= 0:
            return f"{list(row)} holds a width or height that is not positive"
    return ""


def cells(shape: Sequence[int], width: int) -> tuple[int, int] | None:
    """Rows and columns of a head [1, width, rows, columns], [1, rows, columns, width], or
    [1, anchors, rows, columns, values] with anchors * values = width; None if it is neither."""
    if len(shape) == 4 and shape[1] == width:
        return shape[2], shape[3]
    if len(shape) == 4 and shape[3] == width:
        return shape[1], shape[2]
    if len(shape) == 5 and shape[1] * shape[4] == width:
        return shape[2], shape[3]
    return None


def rows(net: HeadNet, head: str, values: int, anchors: int = 1) -> str:
    """A head as [1, cells * anchors, values]: cells row by row, the anchors of a cell one after the other."""
    shape = net.shape(head)
    if len(shape) == 3:
        return head
    high, wide = cells(shape, values * anchors) or (0, 0)
    count = high * wide
    if len(shape) == 5:
        flat = net.op("Reshape", head, [anchors, count, values])
        return net.op("Reshape", net.op("Transpose", flat, perm=[1, 0, 2]), [1, count * anchors, values])
    if shape[1] == values * anchors:
        head = net.op("Transpose", head, perm=[0, 2, 3, 1])
    return net.op("Reshape", head, [1, count * anchors, values])


def joined(net: HeadNet, parts: Sequence[str], axis: int = 1) -> str:
    return parts[0] if len(parts) == 1 else net.op("Concat", *parts, axis=axis)


def columns(net: HeadNet, table: str, begin: int, end: int) -> str:
    """Columns of [1, boxes, columns]."""
    if (begin, end) == (0, net.shape(table)[2]):
        return table
    return net.op("Slice", table, [begin], [end], [2])


def grid(high: int, wide: int, anchors: int = 1) -> Array:
    """[cells * anchors, 2]: column and row of the cell of each anchor."""
    y, x = np.meshgrid(np.arange(high), np.arange(wide), indexing="ij")
    return np.repeat(np.stack([x, y], -1).reshape(-1, 2), anchors, 0).astype(np.float64)


def grids(sizes: Sequence[tuple[int, int]], anchors: Sequence[int]) -> Array:
    """The cells of all heads, one head after the other."""
    return np.concatenate([grid(*size, count) for size, count in zip(sizes, anchors, strict=True)])


def per_anchor(values: Sequence[Array], sizes: Sequence[tuple[int, int]]) -> Array:
    """[cells * anchors, n] of numbers [anchors, n] for every head."""
    tables = zip(values, sizes, strict=True)
    return np.concatenate([np.tile(own, (high * wide, 1)) for own, (high, wide) in tables])


def anchor_sizes(anchors: Anchors) -> list[Array]:
    """[anchors, 2]: width and height of the anchors of every head."""
    return [np.asarray(one, np.float64).reshape(-1, 2) for one in anchors]


def steps(strides: Sequence[float], anchors: Sequence[int]) -> list[Array]:
    """[anchors, 1]: the stride of every head."""
    return [np.full((count, 1), float(stride)) for stride, count in zip(strides, anchors, strict=True)]


def corners(net: HeadNet, centre: str, half: str) -> str:
    """[1, boxes, 4] of centres and half sizes [1, boxes, 2]."""
    return net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)


def by_class(net: HeadNet, scores: str) -> str:
    """[1, classes, boxes] of [1, boxes, classes]."""
    return net.op("Transpose", scores, perm=[0, 2, 1])


def strided(size: tuple[int, int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Rows and columns of the cells at every stride."""
    return [(-(-size[0] // stride), -(-size[1] // stride)) for stride in strides]


def counts(sizes: Sequence[tuple[int, int]], anchors: Sequence[int]) -> int:
    return sum(high * wide * count for (high, wide), count in zip(sizes, anchors, strict=True))


def head_sizes(shapes: Shapes, widths: Sequence[int]) -> list[tuple[int, int]] | None:
    """`cells` of every head; None if one has another width."""
    found = [cells(shape, width) for shape, width in zip(shapes, widths, strict=True)]
    return None if None in found else [one for one in found if one is not None]


def activated(net: HeadNet, kind: str, table: str, begin: int, end: int) -> str:
    """Columns through a function; "none": as they are."""
    part = columns(net, table, begin, end)
    return part if kind == "none" else net.op("Sigmoid", part)


def confidences(net: HeadNet, table: str, sigmoid: bool) -> str:
    """[1, classes, boxes] of rows x, y, w, h, objectness, classes...: each class times the objectness. A row
    without classes has one."""
    width, how = net.shape(table)[2], "sigmoid" if sigmoid else "none"
    found = activated(net, how, table, 4, 5)
    if width > 5:
        found = net.op("Mul", activated(net, how, table, 5, width), found)
    return by_class(net, found)
