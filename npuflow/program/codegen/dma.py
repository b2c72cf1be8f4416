"""LOAD and STORE fields from boxes and strides: as few dimensions as the bytes allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from npuflow.base.errors import InternalError
from npuflow.ir.space import Box, extent

DIMS = 6
STRIDES = ("external_strides", "local_strides")


def dense(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """C-order strides in bytes."""
    return tuple(prod(shape[i + 1 :]) * itemsize for i in range(len(shape)))


def dma(
    space: str,
    external: int,
    local: int,
    element: int,
    dims: Sequence[int],
    outer: Sequence[int],
    inner: Sequence[int],
) -> dict[str, object]:
    """Fields of a copy over `dims` with byte strides on the external and the local side;
    dimensions merge where dense."""
    sizes: list[int] = []
    far: list[int] = []
    near: list[int] = []
    for size, e, i in zip(dims, outer, inner, strict=True):
        if size == 1:
            continue
        if sizes and far[-1] == e * size and near[-1] == i * size:
            sizes[-1], far[-1], near[-1] = sizes[-1] * size, e, i
        else:
            sizes.append(size)
            far.append(e)
            near.append(i)
    if len(sizes) > DIMS:
        raise InternalError(
            f"a copy over {len(sizes)} dimensions, a command has {DIMS}", code="NF-INTERNAL-012",
        )
    pad = DIMS - len(sizes)
    return {
        "space": space,
        "external": external,
        "local": local,
        "element": element,
        "dims": (1,) * pad + tuple(sizes),
        "external_strides": (0,) * pad + tuple(far),
        "local_strides": (0,) * pad + tuple(near),
    }


def in_step(copies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Copies of the same elements in the same order, with dimensions that are the same for all of
    them: where one copy has merged two and another has not, they are two. None where that would
    be more than a command has."""
    if len({c["dims"] for c in copies}) == 1:
        return [dict(c) for c in copies]
    every = {prod(c["dims"][d:]) for c in copies for d in range(DIMS)}      # elements from a dimension on
    blocks = sorted({*every, 1}, reverse=True)
    if len(blocks) - 1 > DIMS:
        return None
    sizes = [a // b for a, b in pairwise(blocks)]
    pad, found = DIMS - len(sizes), []
    for copy in copies:
        strides = {name: (0,) * pad + _steps(copy["dims"], copy[name], blocks[1:]) for name in STRIDES}
        found.append({**copy, "dims": (1,) * pad + tuple(sizes), **strides})
    return found


def _steps(dims: Sequence[int], strides: Sequence[int], passed: Sequence[int]) -> tuple[int, ...]:
    """Strides of dimensions of which a step passes so many elements."""
    behind = [prod(dims[d + 1 :]) for d in range(len(dims))]
    found = []
    for n in passed:
        d = next(d for d in reversed(range(len(dims))) if behind[d] <= n < behind[d] * dims[d])
        found.append(strides[d] * (n // behind[d]))
    return tuple(found)


def box_copy(
    space: str,
    base: int,
    shape: Sequence[int],
    box: Box,
    local: int,
    itemsize: int,
    layout: Box | None = None,
) -> dict[str, object]:
    """A box of a dense tensor at `base`, to or from a local buffer that is dense over the
    box, or over one around it."""
    strides, near = dense(shape, itemsize), dense(extent(layout or box), itemsize)
    offset = sum(a * s for (a, _), s in zip(box, strides, strict=True))
    inner = sum((a - lo) * s for (a, _), (lo, _), s in zip(box, layout or box, near, strict=True))
    return dma(space, base + offset, local + inner, itemsize, extent(box), strides, near)
