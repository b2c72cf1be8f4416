"""Hazards by happens-before: what two commands may do to the same byte in an order that no wait fixes.

Shadow memories hold, per byte, the last writer and the last reader of every queue, as positions in the
execution order. A command must start after every earlier writer of what it touches and every earlier reader
of what it writes has retired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError, Where
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import opcodes
from npuflow.hw.region import CONST, DATA, LOCAL, Region
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.counts import READ
from npuflow.program.loop_steps import LoopSteps, said
from npuflow.program.order import Order
from npuflow.sim.bounds import check_bounds

Ints = npt.NDArray[Any]
MOST = 100          # hazards reported; one wrong wait can make thousands
HOST = 0            # "written before this segment"; commands are their position in the order + 1


@dataclass(frozen=True)
class Hazard:
    """`kind`: RAW, WAR, WAW, unwritten, overlap or count. `first` and `second` are (core,
    index); `first` None: nobody."""

    kind: str
    first: tuple[int, int] | None
    second: tuple[int, int]
    space: str
    address: int
    operand: str

    def text(self, program: Program) -> str:
        """What it is, and in which steps of loops its commands run."""
        known = LoopSteps(program)
        steps = [said(known.of(*place)) for place in (self.second, self.first) if place is not None]
        found = " beside ".join(dict.fromkeys(text for text in steps if text))
        return f"{self._text(program)}{f', in {found}' if found else ''}"

    def _text(self, program: Program) -> str:
        core, index = self.second
        name = program.decoded[core][index].opcode
        what = f"{name}.{self.operand} at {self.space} byte {self.address}"
        if self.kind == "unwritten":
            return f"command {index} of core {core}: {what} reads a byte that nothing has written"
        if self.kind == "overlap":
            return f"command {index} of core {core}: {what} overlaps an operand of the same command"
        if self.kind == "count":
            return f"command {index} of core {core}: {what} writes a number that a REPEAT reads"
        assert self.first is not None
        other = program.decoded[self.first[0]][self.first[1]].opcode
        return (
            f"command {index} of core {core}: {what} races with {other} {self.first[1]} of core "
            f"{self.first[0]} ({self.kind})"
        )


def hazards_of(program: Program, order: Order) -> tuple[Hazard, ...]:
    """Every hazard of a program, at most `MOST`; a byte outside its memory is a ModelError."""
    for core, index in order.sequence:
        check_bounds(program, core, index)
    found: list[Hazard] = []
    for hazard in _Judge(program, order).run():
        found.append(hazard)
        if len(found) >= MOST:
            break
    return tuple(found)


def require_safe(program: Program, hazards: tuple[Hazard, ...]) -> None:
    """A ModelError naming the first hazards' commands, if there are any."""
    if hazards:
        core, index = hazards[0].second
        raise ModelError(
            f"{'at least ' if len(hazards) >= MOST else ''}{len(hazards)} hazards: "
            + "; ".join(h.text(program) for h in hazards[:3]),
            where=Where(value=f"command {index} of core {core}"), code="NF-SIM-008",
        )


class _Shadow:
    """Last writer of every byte of one memory, -1: none; and last reader by queue, 0: none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.writer = np.full(size, -1, np.int32)
        self.readers: dict[int, Ints] = {}

    def reader(self, queue: int) -> Ints:
        if queue not in self.readers:
            # zeros come from the system as pages that only what is read makes real
            self.readers[queue] = np.zeros(self.size, np.int32)
        return self.readers[queue]

    def settle(self) -> None:
        """The host has waited for everything."""
        np.minimum(self.writer, HOST, out=self.writer)
        self.readers.clear()


def _bytes(shadow: Ints, region: Region) -> Ints:
    """The shadow of a squeezed region, [*dims, run]."""
    return np.ndarray(
        (*region.dims, region.size), np.int32, buffer=shadow, offset=4 * region.address,
        strides=(*(4 * s for s in region.strides), 4),
    )


class _Judge:
    def __init__(self, program: Program, order: Order) -> None:
        self.program, self.order = program, order
        self.data = _Shadow(int(program.meta["data_bytes"]))
        self.local = [_Shadow(int(program.meta["local_bytes"])) for _ in program.commands]
        self.counts = [int(one["address"]) for key in READ for one in program.meta.get(key, ())]
        self.queue = order.queue
        self.position = order.position

    def run(self) -> Iterator[Hazard]:
        segment = 0
        self._host_writes([entry["name"] for entry in self.program.meta["inputs"]])
        self._host_writes(self.program.meta.get("cleared", []))
        for step in self.program.meta["steps"]:
            if step["kind"] == "npu":
                first, last = self.order.segments[segment]
                segment += 1
                for i in range(first, last):
                    yield from self._command(i)
                for shadow in (self.data, *self.local):
                    shadow.settle()
            elif step["kind"] in ("quantize", "host"):
                self._host_writes([step["out"]] if step["kind"] == "quantize" else step["outputs"])

    def _host_writes(self, values: list[str]) -> None:
        for name in values:
            entry = self.program.meta["values"].get(name)
            if entry is not None:
                a = entry["address"]
                self.data.writer[a : a + prod(entry["shape"]) * ELEMENTS[entry["dtype"]].bytes] = HOST

    def _command(self, i: int) -> Iterator[Hazard]:
        core, index = self.order.sequence[i]
        command = self.program.decoded[core][index]
        found = [r for r in regions(command) if r.space != CONST]
        yield from overlaps(command.opcode, found, (core, index))
        for region in found:
            shadow = self.data if region.space == DATA else self.local[core]
            flat = region.squeezed()
            yield from self._judge(i, flat, shadow)
            low, high = region.span
            if region.write and region.space == DATA and any(low < a + 4 and a < high for a in self.counts):
                yield Hazard("count", None, (core, index), DATA, low, region.name)
        for region in found:
            shadow = self.data if region.space == DATA else self.local[core]
            flat = region.squeezed()
            if region.write:
                _bytes(shadow.writer, flat)[...] = i + 1
            else:
                _bytes(shadow.reader(int(self.queue[i])), flat)[...] = i + 1

    def _judge(self, i: int, region: Region, shadow: _Shadow) -> Iterator[Hazard]:
        me = self.order.sequence[i]
        writers = _bytes(shadow.writer, region)
        if not region.write and writers.size and writers.min() < 0:
            yield Hazard("unwritten", None, me, region.space, _where(region, writers < 0), region.name)
        yield from self._unordered(i, region, writers, "WAW" if region.write else "RAW")
        if region.write:
            for queue, readers in list(shadow.readers.items()):
                if queue != int(self.queue[i]):
                    yield from self._unordered(i, region, _bytes(readers, region), "WAR")

    def _unordered(self, i: int, region: Region, others: Ints, kind: str) -> Iterator[Hazard]:
        """A hazard if one of the commands `others` of bytes may not have retired before
        command i of the order starts."""
        last = int(others.max(initial=HOST))
        if last <= HOST:
            return
        # most regions were touched by few commands close to each other: only those between the
        # first and the last are asked
        first = int(others.min())
        first = first if first > HOST else int(others[others > HOST].min())
        window = slice(first - 1, last)
        late = np.flatnonzero(self.position[window] >= self.order.start[i][self.queue[window]]) + first
        if not late.size or not ((others >= late[0]) & (others <= late[-1])).any():
            return
        table = np.zeros(int(late[-1]) + 2, np.bool_)
        table[late] = True
        unsafe = table.take(others, mode="clip")          # below: HOST or nobody; above: none is late
        if unsafe.any():
            worst = int(others[unsafe].max())
            at = _where(region, others == worst)
            yield Hazard(
                kind, self.order.sequence[worst - 1], self.order.sequence[i], region.space, at, region.name
            )


def _where(region: Region, mask: npt.NDArray[np.bool_]) -> int:
    """Address of the first marked byte of a squeezed region."""
    at = np.unravel_index(int(np.argmax(mask)), mask.shape)
    return region.address + sum(int(k) * s for k, s in zip(at, (*region.strides, 1), strict=True))


def overlaps(opcode: str, found: list[Region], me: tuple[int, int]) -> Iterator[Hazard]:
    """An output may share bytes with an input only where element-wise work makes the order irrelevant."""
    for out in found:
        if not out.write or out.space != LOCAL:
            continue
        lo, hi = out.span
        for other in found:
            if other.write or other.space != LOCAL or other.name == out.name == "acc":
                continue
            a, b = other.span
            same = _walk(other) == _walk(out)
            if a < hi and lo < b and not (same and opcodes()[opcode].in_place) and share(other, out):
                yield Hazard("overlap", me, me, LOCAL, max(a, lo), out.name)


def _walk(region: Region) -> tuple[object, ...]:
    """Which bytes, in which order. The stride of a dimension of one element says nothing."""
    strides = tuple(s if d > 1 else 0 for d, s in zip(region.dims, region.strides, strict=True))
    return region.address, region.size, region.dims, strides


def share(a: Region, b: Region) -> bool:
    """Whether two regions have a byte in common."""
    lo = min(a.span[0], b.span[0])
    mark = np.zeros(max(a.span[1], b.span[1]) - lo, np.int32)
    for region, value in ((a.squeezed(), 1), (b.squeezed(), 2)):
        moved = Region("", LOCAL, False, region.address - lo, region.size, region.dims, region.strides)
        if value == 1:
            _bytes(mark, moved)[...] = 1
        else:
            return bool(_bytes(mark, moved).any())
    return False
