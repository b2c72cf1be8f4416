"""What the kernels of the opcodes need, with whole tensors in the place of a machine's memories."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from npuflow.base.errors import InternalError
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.kernels.dataflow import CommandFacts
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.whole.execute.layout import BatchTensor

FIRST = 1 << 40                  # addresses lie beyond all those that a word of a program can name
ALIGN = 64


class TensorBench(Bench):
    """Operands by address. Sums have an array that the next node uses again: none outlives its node."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.facts = CommandFacts()
        self.peaks = {}
        self._scratch, self._codes = {}, {}
        self._next = FIRST
        self._starts: list[int] = []
        self._known: list[BatchTensor] = []
        self._sum: BatchTensor | None = None

    def address(self, tensor_bytes: int) -> int:
        """A new address with so many bytes behind it."""
        found, self._next = self._next, self._next + -(-max(tensor_bytes, 1) // ALIGN) * ALIGN + ALIGN
        return found

    def know(self, tensor: BatchTensor) -> BatchTensor:
        """Commands may name this tensor from now on."""
        at = bisect_right(self._starts, tensor.address)
        self._starts.insert(at, tensor.address)
        self._known.insert(at, tensor)
        return tensor

    def at(self, address: int) -> BatchTensor:
        """The tensor that an address falls into."""
        found = self._known[max(bisect_right(self._starts, address) - 1, 0)]
        inside = address - found.address
        if not 0 <= inside <= found.layout.size * ELEMENTS[found.dtype].bytes:
            raise InternalError(f"no tensor at {address:#x}", code="NF-INTERNAL-049")
        return found

    def begin(self, acc: BatchTensor | None) -> None:
        """The sums of the next commands; what is known of others is over."""
        self._sum, self.peaks = acc, {}

    def operand(
        self, i: int, c: Command, name: str, dtype: str = "", strides: tuple[int, ...] | None = None
    ) -> FlatOperand:
        kind = ELEMENTS[dtype or c.text(f"{name}_type")]
        tensor, address = self.at(c.number(name)), c.number(name)
        whole = c.vector(f"{name}_strides") if strides is None else strides
        steps = tuple(step // kind.bytes for step in whole)
        scale = ELEMENTS[tensor.dtype].bytes // kind.bytes
        start = (address - tensor.address) // kind.bytes
        return FlatOperand(tensor.flat.view(kind.numpy), start, tensor.sample * scale, steps)

    def constant(self, i: int, c: Command, name: str, dtype: str, count: int) -> Array | None:
        tensor = self.at(c.number(name))
        if not tensor.constant:
            return None
        start = c.number(name) - tensor.address
        return np.ndarray((count,), np.dtype(dtype), buffer=tensor.flat.view(np.uint8), offset=start)

    def knows(self, i: int, name: str) -> bool:
        return False

    def sum(self, i: int, c: Command, count: int) -> tuple[Array, Array]:
        acc = self._sum
        assert acc is not None, f"{c.opcode} without sums"
        start = (c.number("acc") - acc.address) // ELEMENTS[acc.dtype].bytes
        return acc.flat, start + np.arange(self.batch) * acc.layout.size

    def peak(self, i: int, c: Command) -> int:
        limit = 1 << (31 if c.text("acc_type") == "int32" else 63)
        return min(limit, max(self.peaks.values(), default=limit))

    def grow(self, i: int, peak: int, keep: bool) -> None:
        self.peaks[len(self.peaks)] = peak + (sum(self.peaks.values()) if keep else 0)
