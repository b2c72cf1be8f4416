"""The modelled memories as byte arrays, one row per sample, and typed views of a command's operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.region import dense
from npuflow.program.container import Program

Bytes = npt.NDArray[np.uint8]
MAX_BYTES = 1 << 34


class SimulatedMemory:
    """DATA [B, n] and one local memory [B, m] per core; CONST is shared by all samples."""

    def __init__(self, program: Program, batch: int) -> None:
        cores = len(program.commands)
        sizes = int(program.meta["data_bytes"]), int(program.meta["local_bytes"])
        if batch * (sizes[0] + cores * sizes[1]) > MAX_BYTES:
            raise ModelError(
                f"{batch} samples of {sizes[0]} bytes of DATA and {cores} x {sizes[1]} of local memory "
                f"exceed {MAX_BYTES} bytes",
                hint="simulate fewer samples at a time",
                code="NF-SIM-010",
            )
        self.batch = batch
        widths = [(size + 64) // 64 * 64 for size in sizes]      # rows start on any element's boundary
        self.data: Bytes = np.zeros((batch, widths[0]), np.uint8)
        self.local: list[Bytes] = [np.zeros((batch, widths[1]), np.uint8) for _ in range(cores)]
        self.const: Bytes = np.frombuffer(program.const, np.uint8).reshape(1, -1)

    def view(
        self, block: Bytes, address: int, dtype: str, dims: tuple[int, ...], strides: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        """[B, *dims] of one memory (B = 1 for CONST)."""
        return self._view(block, address, ELEMENTS[dtype].numpy, dims, strides)

    @staticmethod
    def _view(
        block: Bytes, address: int, numpy: str, dims: tuple[int, ...], strides: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        """The same of a numpy type: there are transfers of more bytes at once than any element type has."""
        shape, steps = (block.shape[0], *dims), (block.strides[0], *strides)
        kind = np.dtype(numpy).newbyteorder("<")
        return np.ndarray(shape, kind, buffer=block, offset=address, strides=steps)

    def operand(self, c: Command, name: str, dims: tuple[int, ...]) -> npt.NDArray[Any]:
        """A tensor operand of a command."""
        return self.view(
            self.local[c.core], c.number(name), c.text(f"{name}_type"), dims, c.vector(f"{name}_strides")
        )

    def flat(self, core: int, address: int, dtype: str, count: int) -> npt.NDArray[Any]:
        """A dense vector of parameters."""
        return self.view(self.local[core], address, dtype, (count,), (ELEMENTS[dtype].bytes,))

    def accumulator(self, c: Command, dims: tuple[int, ...]) -> npt.NDArray[Any]:
        dtype = c.text("acc_type")
        return self.view(self.local[c.core], c.number("acc"), dtype, dims, dense(dims, ELEMENTS[dtype].bytes))

    def dma(self, c: Command) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Source and destination of LOAD, STORE and COPY, as unsigned elements."""
        numpy, dims, local = f"uint{8 * c.number('element')}", c.vector("dims"), self.local[c.core]
        if c.opcode == "COPY":
            x = self._view(local, c.number("x"), numpy, dims, c.vector("x_strides"))
            return x, self._view(local, c.number("y"), numpy, dims, c.vector("y_strides"))
        at = c.number("external"), numpy, dims, c.vector("external_strides")
        outside = self._view(self._outside(c), *at)
        inside = self._view(local, c.number("local"), numpy, dims, c.vector("local_strides"))
        return (outside, inside) if c.opcode == "LOAD" else (inside, outside)

    def rows(self, c: Command) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The table and the rows picked of LOADROWS, as unsigned elements."""
        (count, width), size = c.vector("dims"), c.number("element")
        block, table = self._outside(c), (c.number("entries"), width)
        outside = self._view(block, c.number("external"), f"uint{8 * size}", table, (c.number("row"), size))
        y = c.number("y"), f"uint{8 * size}", (count, width), c.vector("y_strides")
        return outside, self._view(self.local[c.core], *y)

    def _outside(self, c: Command) -> Bytes:
        return self.const if c.text("space") == "CONST" else self.data
