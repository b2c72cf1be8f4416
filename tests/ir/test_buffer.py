"""Views of a tile in local memory as outer, reduced and inner dimensions: every
element once, at its own bytes."""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuflow.ir.lowering import Buffer, blocks3

# what a tile has, what more is held
DIMS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=4)


@given(dims=DIMS, data=st.data())
def test_blocks_cover_parts_of_what_is_held(dims: list[tuple[int, int]], data: st.DataObject) -> None:
    """Two tiles of one shape but for the axis, one of them alone in memory, the other a part of a tensor: the
    blocks pair the same places of both, and have the whole axis."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    held = [e + more for e, more in dims]
    shorter = [1 if i == axis else e for i, (e, _) in enumerate(dims)]
    part, alone = _tile(7, [e for e, _ in dims], held), _tile(5, shorter, shorter)
    found: dict[int, list[int]] = {}
    for one, other in blocks3(axis, part, alone):
        (fields, (a, r, i)), (at, count) = one.as3("x", axis, axis + 1), other.as3("x", axis, axis + 1)
        assert (a, 1, i) == count and r == dims[axis][0]
        for outer, inner in np.ndindex(a, i):
            first = _address(at, (outer, 0, inner))
            found[first] = [_address(fields, (outer, k, inner)) for k in range(r)]
    wanted = {}
    for index in np.ndindex(*shorter):
        whole = [(*index[:axis], k, *index[axis + 1 :]) for k in range(dims[axis][0])]
        addresses = [part.address + sum(i * s for i, s in zip(w, part.strides, strict=True)) for w in whole]
        wanted[alone.address + sum(i * s for i, s in zip(index, alone.strides, strict=True))] = addresses
    assert found == wanted


def _tile(address: int, extents: list[int], held: list[int]) -> Buffer:
    strides = tuple(prod(held[i + 1 :]) for i in range(len(held)))
    return Buffer(address, "int8", tuple((3, 3 + e) for e in extents), strides)


def _address(fields: dict[str, object], at: tuple[int, int, int]) -> int:
    strides = cast(tuple[int, ...], fields["x_strides"])
    return cast(int, fields["x"]) + sum(i * s for i, s in zip(at, strides, strict=True))
