"""What the borders of loops share: a loop's name and number of steps, and values that pass unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.hw.target import Target
from npuflow.ir.borders import DOMAIN, LoopBorderOp
from npuflow.ir.moves import Move
from npuflow.ir.op import No, OnnxCall, OpContext, Yes, need
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp


@dataclass(frozen=True)
class BorderOp(LoopBorderOp, DataLayoutOp):
    """Base of the operators at a loop's border."""

    # a rule that moves an operator over it would forget the way back from step to step
    moves_data: ClassVar[bool] = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError(f'a border of the loop "{self.loop}" means nothing without its loop')

    def to_onnx(self, site: OpContext) -> OnnxCall:
        """A node that `onnx/loops.py` takes into a Scan."""
        attributes = {"loop": self.loop, "steps": self.steps, "index": self.index, "reverse": self.reverse}
        return OnnxCall(self.border_of_loop, attributes, DOMAIN)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        return need(
            all(o.type.dtype == "float32" for o in site.outputs), f"dtype {site.outputs[0].type.dtype}"
        )

    def moves(self, site: OpContext) -> tuple[Move, ...] | None:
        return None


def part_of(
    kind: TensorType | None, steps: int, axis: int = 0, beside: tuple[int, int] = (0, 0)
) -> TensorType:
    """One of so many equal parts along a dimension. `beside`: by how much the last one is shorter, and what
    each has around it."""
    assert kind is not None
    size, (lacking, more) = kind.shape[axis], beside
    if (size + lacking) % steps:
        raise ValueError(f"{steps} steps do not divide {size + lacking}")
    shape = list(kind.shape)
    shape[axis] = (size + lacking) // steps + more
    return TensorType(tuple(shape), kind.dtype)

