"""Views of a tile in local memory as outer, reduced and inner dimensions: every
element once, at its own bytes."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuflow.ir.lowering import Buffer

# what a tile has, what more is held
DIMS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=4)


@given(dims=DIMS, data=st.data())
def test_loops_and_views_cover_a_part_of_what_is_held(
    dims: list[tuple[int, int]], data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(dims) - 1))
    dims = [(e, more if i < axis else 0) for i, (e, more) in enumerate(dims)]
    held = [e + more for e, more in dims]
    strides = tuple(prod(held[i + 1 :]) for i in range(len(held)))
    buffer = Buffer(7, "int8", tuple((0, e) for e, _ in dims), strides)
    found = []
    for at in np.ndindex(buffer.extent[: buffer.loops(axis)]):
        fields, extents = buffer.as3("x", axis, axis + 1, at)
        for index in np.ndindex(extents):
            found.append(fields["x"] + sum(i * s for i, s in zip(index, fields["x_strides"], strict=True)))  # type: ignore[operator,call-overload]
    wanted = [
        7 + sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(buffer.extent)
    ]
    assert found == wanted
