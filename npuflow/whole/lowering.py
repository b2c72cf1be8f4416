"""An operator lowered at once: its commands for the one tile that is the whole iteration domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.lowering import Buffer, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain

Emitted = tuple[str, Mapping[str, object]]     # an opcode, and its fields as `lower` gives them


class _Recorder:
    """An Emitter that keeps the commands."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.commands: list[Emitted] = []

    def emit(self, opcode: str, **values: object) -> None:
        self.commands.append((opcode, values))

    def constant(self, index: int) -> int:
        raise NotImplementedError("whole tensors have no external memory")


def lowered(
    site: OpContext, space: IterationDomain, numerics: Numerics, inputs: Sequence[Buffer | None],
    outputs: Sequence[Buffer],
    params: Mapping[str, Buffer], acc: Buffer | None,
) -> list[Emitted]:
    """The commands of the whole operator on whole tensors."""
    recorder = _Recorder(numerics)
    sizes = {axis.name: axis.size for axis in space.axes}
    kept = [space.fetches or operand is not None for operand in space.inputs]       # a whole table lies there
    read = tuple(buffer if keep else None for keep, buffer in zip(kept, inputs, strict=False))
    forms.lower(site, TileView(space.full, sizes, read, tuple(outputs), params, acc), recorder)
    return recorder.commands
