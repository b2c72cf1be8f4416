"""Strided copies between dense tensors: what an operator that only moves data consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True)
class Move:
    """A strided copy between logical tensors, in elements: out[dst_offset + i.dst] =
    input[src_offset + i.src], i < dims.

    `source` is the input's position, or None to write `value` (a float in real units, put through the
    output's quantisation). Strides may be 0 on the source side (repetition) and negative. At most 6 dims.
    """

    source: int | None
    dims: tuple[int, ...]
    src_strides: tuple[int, ...] = ()
    dst_strides: tuple[int, ...] = ()
    src_offset: int = 0
    dst_offset: int = 0
    output: int = 0
    value: float = 0.0


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def merged(move: Move) -> Move:
    """The same copy with as few dimensions as possible (at least one)."""
    dims: list[int] = []
    src: list[int] = []
    dst: list[int] = []
    sources = move.src_strides or (0,) * len(move.dims)
    for size, s, d in zip(move.dims, sources, move.dst_strides, strict=True):
        if size == 1:
            continue
        if dims and src[-1] == s * size and dst[-1] == d * size:
            dims[-1], src[-1], dst[-1] = dims[-1] * size, s, d
        else:
            dims.append(size)
            src.append(s)
            dst.append(d)
    if not dims:
        dims, src, dst = [1], [1], [1]
    return replace(move, dims=tuple(dims), src_strides=tuple(src), dst_strides=tuple(dst))


def reach(dims: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The lowest and the highest index that a copy meets, from its offset."""
    steps = [(size - 1) * stride for size, stride in zip(dims, strides, strict=True)]
    return sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)
