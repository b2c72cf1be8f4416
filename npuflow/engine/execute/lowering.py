"""A node as commands on whole tensors: what `lower` emits for the one tile that is the whole operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.hw.command import NONE, Command, FieldValue
from npuflow.hw.elements import container
from npuflow.hw.encode import layout
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Buffer, TileView
from npuflow.ir.op import Site
from npuflow.ir.space import Space


class _Recorder:
    """An Emitter that keeps the commands."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.commands: list[Command] = []

    def emit(self, opcode: str, **values: object) -> None:
        fields = {f.name: _value(values.get(f.name), f.width, f.enum, f.optional) for f, _ in layout(opcode)}
        self.commands.append(Command(opcode, fields))


def _value(value: object, width: int, enum: Sequence[str], optional: bool) -> FieldValue:
    """A field as a decoded command has it."""
    if enum:
        return value if isinstance(value, str) else enum[0]
    if isinstance(value, Sequence | np.ndarray):
        return tuple(int(v) for v in value)
    if value is None:
        return (0,) * width if width > 1 else NONE if optional else 0
    return int(value)  # type: ignore[call-overload]


def sums_type(site: Site, numerics: Numerics) -> str:
    """The type of a node's sums."""
    return container(max(32, site.accumulator_bits(numerics)), signed=True)


def lowered(
    site: Site, space: Space, numerics: Numerics, inputs: Sequence[Buffer | None], outputs: Sequence[Buffer],
    params: Mapping[str, Buffer], acc: Buffer | None,
) -> list[Command]:
    """The commands of the whole operator on whole tensors."""
    recorder = _Recorder(numerics)
    sizes = {axis.name: axis.size for axis in space.axes}
    read = tuple(None if one is None else buffer for one, buffer in zip(space.inputs, inputs, strict=False))
    view = TileView(space.full, sizes, read, tuple(outputs), params, acc)
    site.op.lower(site, view, recorder)
    return recorder.commands
