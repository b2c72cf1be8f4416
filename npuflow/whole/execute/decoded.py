"""Commands of a lowered operator as the simulator's kernels take them: with every field, as if decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from npuflow.hw.command import NONE, Command, FieldValue
from npuflow.hw.encode import layout
from npuflow.hw.isa import Field
from npuflow.whole.lowering import Emitted


def decoded(emitted: Iterable[Emitted]) -> list[Command]:
    """Fields left out are 0, optional pointers NONE, enums their first name."""
    return [
        Command(opcode, {f.name: _value(f, values.get(f.name)) for f, _ in layout(opcode)})
        for opcode, values in emitted
    ]


def _value(field: Field, value: object) -> FieldValue:
    if field.enum:
        return value if isinstance(value, str) else field.enum[0]
    if isinstance(value, Sequence | np.ndarray):
        return tuple(int(v) for v in value)
    if value is None:
        return (0,) * field.width if field.width > 1 else NONE if field.optional else 0
    return int(value)  # type: ignore[call-overload]
