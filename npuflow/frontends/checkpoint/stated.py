"""Stored codes of a matrix as the type that a build keeps, where there is such a type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.checkpoints import Grouped
from npuflow.hw.grouped import WeightGroups
from npuflow.ir.types import Array, GroupedType

WIDTHS = (4, 8)                           # of codes that targets have in groups


def stated_type(held: Grouped, floats: Array) -> GroupedType | None:
    """The type by which these floats [outputs, inputs] have these codes again; None where the columns of a
    group are no neighbours, or the floats do not give the codes back."""
    bits = next((width for width in WIDTHS if width >= held.bits), 0)
    if held.order is not None or not bits or not np.isfinite(held.scales).all():
        return None
    codes, zeros, half = held.codes, held.zeros, 1 << (held.bits - 1)
    plain = WeightGroups(bits, False, held.group, held.scales.astype(np.float32))
    if held.minima is not None:
        groups = replace(plain, minima=held.minima.astype(np.float32))
    elif zeros is None or (zeros == zeros.flat[0]).all():
        middle = zeros is not None and int(zeros.flat[0]) == half
        codes = codes.astype(np.int16) - half if middle else codes
        alone = 0 if middle or zeros is None else int(zeros.flat[0])
        groups = replace(plain, signed=middle, zero=alone)
    else:
        groups = replace(plain, zeros=zeros.astype(np.uint8))
    told = np.repeat(held.scales != 0, held.group, 1)         # the codes of other groups say nothing
    return GroupedType.of(groups, 0) if ((groups.nearest(floats) == codes) | ~told).all() else None
