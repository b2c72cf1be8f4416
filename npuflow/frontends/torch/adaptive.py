"""Adaptive pooling: as pooling where all windows are of one size and stride, else axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from npuflow.frontends.torch.network import TorchNetwork, TorchValue


def adaptive(
    kind: str, rank: int, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    image = net.shape(args[0])[-rank:]
    given = list(args[1]) if isinstance(args[1], list | tuple) else [args[1]]
    wanted = given * rank if len(given) == 1 else given
    sizes = [size if one is None else int(one) for size, one in zip(image, wanted, strict=True)]
    rows = [windows(i, s) for i, s in zip(image, sizes, strict=True)]
    plain = [even(row) for row in rows]
    if sizes == [1] * rank:
        made = net.apply("GlobalAveragePool" if kind == "AveragePool" else "GlobalMaxPool", args[0])
    elif list(image) == sizes:
        made = args[0]
    elif all(plain):
        kernel, strides = ([int(one[i]) for one in plain if one] for i in (0, 1))
        made = net.apply(kind, args[0], kernel_shape=kernel, strides=strides)
    else:
        made = args[0]
        for axis, row in enumerate(rows, len(net.shape(made)) - rank):
            made = _axis(kind, net, made, axis, row)
    return [made, None] if kind == "MaxPool" else made


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """First place of every window, and the place behind its last."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def even(row: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Size and stride that all windows have."""
    kernels = {end - begin for begin, end in row}
    strides = {b[0] - a[0] for a, b in pairwise(row)} or {1}
    return (kernels.pop(), strides.pop()) if len(kernels) == len(strides) == 1 and strides != {0} else None


def _axis(kind: str, net: TorchNetwork, x: TorchValue, axis: int, row: list[tuple[int, int]]) -> TorchValue:
    """One axis: means are a product with a matrix of shares, largest values those of slices."""
    size, rank = net.shape(x)[axis], len(net.shape(x))
    if row == [(i, i + 1) for i in range(size)]:
        return x
    if kind == "AveragePool":
        shares = np.zeros((size, len(row)), np.float32)
        for i, (begin, end) in enumerate(row):
            shares[begin:end, i] = 1 / (end - begin)
        turn = [*(a for a in range(rank) if a != axis), axis]
        last = axis == rank - 1
        turned = x if last else net.apply("Transpose", x, perm=turn)
        made = net.apply("MatMul", turned, net.constant(shares, f"{net.origin}:shares"))
        back = [turn.index(a) for a in range(rank)]
        return made if last else net.apply("Transpose", made, perm=back)
    parts = []
    for begin, end in row:
        cut = net.apply("Slice", x, net.ints([begin]), net.ints([end]), net.ints([axis]))
        whole = end - begin == 1
        parts.append(cut if whole else net.apply("ReduceMax", cut, net.ints([axis]), keepdims=1))
    return net.apply("Concat", *parts, axis=axis)
