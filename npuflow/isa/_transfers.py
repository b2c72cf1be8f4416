"""What LOAD, STORE and COPY share: bytes moved as they are, between strided boxes of up to six dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.isa import Fields, Terms
from npuflow.hw.target import Target
from npuflow.kernels import cycles
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench

Array = npt.NDArray[Any]


class TransferOpcode(Simulated):
    """The base of opcodes that move bytes as they are, `element` of them at a time."""

    copies = True

    def problems(self, f: Fields) -> Iterator[str]:
        if f["element"] not in (1, 2, 4, 8):
            yield f"element of {f['element']} bytes"

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        source, sink = memory.dma(c)
        sink[...] = source

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        if i in bench.facts.idle:
            return _nothing
        source, sink = bench.memory.dma(c)
        return partial(np.copyto, *_merged(sink, source))


class BusTransferOpcode(TransferOpcode):
    """One between external and local memory."""

    def external_rows(self, c: Command) -> tuple[int, int]:
        return cycles.rows_of(c)

    def latency(self, c: Command, target: Target) -> Terms:
        rows, _ = self.external_rows(c)
        wait = target.dma.row_cycles * (rows - 1)
        return Terms(target.compute.command_cycles, target.dma.setup_cycles, wait)


def _merged(sink: Array, source: Array) -> tuple[Array, Array]:
    """The same copy with dimensions merged where both sides allow it."""
    shape = sink.shape
    source = np.broadcast_to(source, shape)
    axes: list[list[int]] = []
    for extent, a, b in zip(shape, sink.strides, source.strides, strict=True):
        if extent == 1:
            continue
        if axes and axes[-1][1] == a * extent and axes[-1][2] == b * extent:
            axes[-1] = [axes[-1][0] * extent, a, b]
        else:
            axes.append([extent, a, b])
    dims = tuple(x[0] for x in axes) or (1,)
    a_steps, b_steps = tuple(x[1] for x in axes) or (0,), tuple(x[2] for x in axes) or (0,)
    view = np.lib.stride_tricks.as_strided
    return view(sink, dims, a_steps), view(source, dims, b_steps, writeable=False)


def _nothing() -> None:
    return
