"""What the products share whose weights lie in groups with float16 scales: fields and bytes."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import Field as CommandField
from npuflow.hw.isa import Fields, element, numbers, pointer
from npuflow.hw.region import Region
from npuflow.kernels.grouped.grouped import OFFSETS, bytes_of, groups_of
from npuflow.program import access

CODES = ("int4", "uint4", "int8", "uint8")
FIELDS = (
    pointer("b"), element("b", "weight"), *numbers("zero! group"), CommandField("offset", enum=OFFSETS),
)


def problems(f: Fields) -> Iterator[str]:
    if f["b_type"] not in CODES:
        yield f"codes of groups are one of {', '.join(CODES)}, not {f['b_type']}"
    elif f["group"] < 1 or f["group"] * ELEMENTS[f["b_type"]].bits % 8:
        yield f"a group of {f['group']} codes does not fill whole bytes"
    else:
        low, high = ELEMENTS[f["b_type"]].range
        if not low <= f["zero"] <= high:
            yield f"the zero point {f['zero']} is no code of {f['b_type']}"
    if f["zero"] and f["offset"] != "none":
        yield "groups with an offset of their own have no common zero point"


def weights(c: Command) -> Iterator[Region]:
    """All groups, dense [n, ceil(k / group)]."""
    return access.flat(c, "b", c.number("n") * groups_of(c) * bytes_of(c), 1)
