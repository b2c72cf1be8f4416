"""A machine with a program in it: memories for B samples, and the decoded commands run over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy.typing as npt

from npuflow.base.errors import ModelError, Where
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.region import dense
from npuflow.kernels.dataflow import facts_of
from npuflow.kernels.fast import usable
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step, simulated
from npuflow.kernels.operands import Bench
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.order import Order, order_of
from npuflow.program.taps import Tap
from npuflow.sim.bounds import check_bounds
from npuflow.sim.shadow import Shadow

Array = npt.NDArray[Any]


class SimulatedMachine:
    """Runs the NPU segments of a program over B samples at a time.

    `write` puts an integer tensor [B, *shape] into DATA, `read` takes one out, `run` executes one
    segment. With `watch`, the named values are kept as they are when their last STORE retires (memory may
    be reused later): see `seen`; and of those that the program's taps show in local memory, every box as
    its command leaves it: see `shadows`.
    """

    def __init__(
        self,
        program: Program,
        batch: int = 1,
        *,
        watch: Iterable[str] = (),
        order: Order | None = None,
        exact_only: bool = False,
    ) -> None:
        self.program = program
        self.order = order if order is not None else order_of(program)
        self.memory = SimulatedMemory(program, batch)
        self.seen: dict[str, Array] = {}
        names = tuple(watch)
        self._watched = tuple(n for n in names if n in program.meta["values"])
        self._shadowed = tuple(n for n in program.taps.values if n in names) if names else ()
        self.shadows = self._dark()
        self._after = self._looks()
        for core, index in self.order.sequence:
            check_bounds(program, core, index)
        self.steps = self._exact() if exact_only or not usable() else self._fast()

    def write(self, value: str, array: Array) -> None:
        """Put [B, *shape] (or one sample, for all) into DATA."""
        view = self._value(value)
        if array.dtype != view.dtype or array.shape not in (view.shape, view.shape[1:]):
            raise ModelError(
                f"value {value!r} takes {view.dtype} {view.shape}, not {array.dtype} {array.shape}",
                code="NF-SIM-009",
            )
        view[...] = array
        values = self.program.meta["values"]
        # values that share these bytes may have waited for them alone
        for other in self._watched:
            if owner(values, other) == owner(values, value):
                self.seen[other] = self.read(other)

    def read(self, value: str) -> Array:
        """[B, *shape], a copy of what DATA holds now."""
        return self._value(value).copy()

    def run(self, segment: int) -> None:
        """Execute one segment; a fault of data (an index outside a table) is a
        ModelError naming the command."""
        first, last = self.order.segments[segment]
        for i in range(first, last):
            try:
                self.steps[i]()
            except ModelError as error:
                core, index = self.order.sequence[i]
                raise error.at(Where(value=f"command {index} of core {core}")) from None
            for look in self._after.get(i, ()):
                look()

    def forget(self) -> None:
        """Begin with nothing seen. What `shadows` showed before stays as it is with whoever holds it."""
        self.seen = {}
        self.shadows = self._dark()

    def _dark(self) -> dict[str, Shadow]:
        return {n: Shadow(self.program.taps.values[n], self.memory.batch) for n in self._shadowed}

    def _looks(self) -> Mapping[int, list[Step]]:
        """Position in the order -> what is read out of memory after it."""
        found: dict[int, list[Step]] = {}
        for i, values in _last_stores(self.program, self.order, self._watched).items():
            found[i] = [partial(self._see, value) for value in values]
        if self._shadowed:
            position = {place: i for i, place in enumerate(self.order.sequence)}
            for core, taps in enumerate(self.program.taps.cores):
                for tap in taps:
                    if tap.value in self._shadowed:
                        look = partial(self._shadow, core, tap)
                        found.setdefault(position[core, tap.command], []).append(look)
        return found

    def _shadow(self, core: int, tap: Tap) -> None:
        self.shadows[tap.value].take(self.memory, core, tap)

    def _see(self, value: str) -> None:
        self.seen[value] = self.read(value)

    def _exact(self) -> list[Step]:
        return [partial(simulated(c.opcode).execute, self.memory, c) for c in self._commands()]

    def _commands(self) -> list[Command]:
        return [self.program.decoded[core][index] for core, index in self.order.sequence]

    def _fast(self) -> list[Step]:
        """Compiled steps. A command that only plain numpy can do needs its constants and sums
        in memory: then bind again."""
        facts, commands = facts_of(self.program, self.order), self._commands()
        while True:
            bench = Bench(self.memory, facts)
            steps = [simulated(command.opcode).bind(bench, i, command) for i, command in enumerate(commands)]
            if not facts.materialise([i for i, step in enumerate(steps) if step is None]):
                slow = self._exact()
                return [step if step is not None else slow[i] for i, step in enumerate(steps)]

    def _value(self, value: str) -> Array:
        entry = self.program.meta["values"][value]
        shape = tuple(entry["shape"])
        strides = dense(shape, ELEMENTS[entry["dtype"]].bytes)
        return self.memory.view(self.memory.data, entry["address"], entry["dtype"], shape, strides)


def owner(values: Mapping[str, Mapping[str, Any]], value: str) -> str:
    """The value whose bytes these are: itself, unless it is a view of another."""
    found: str = values[value].get("owner", value)
    return found


def _last_stores(program: Program, order: Order, watch: tuple[str, ...]) -> Mapping[int, list[str]]:
    """Position in the order -> values complete after it: the last STORE into the value's bytes, by any node
    that writes into its owner (a later tenant of the same addresses has another owner and other nodes)."""
    last: dict[str, int] = {}
    wanted = {}
    values = program.meta["values"]
    nodes: dict[str, set[int]] = {}
    for value, entry in values.items():
        if entry.get("node") is not None:
            nodes.setdefault(owner(values, value), set()).add(entry["node"])
    for value in watch:
        entry = values[value]
        size = prod(entry["shape"]) * ELEMENTS[entry["dtype"]].bytes
        wanted[value] = (entry["address"], entry["address"] + size, nodes.get(owner(values, value), set()))
    for i, (core, index) in enumerate(order.sequence):
        command = program.decoded[core][index]
        if command.opcode != "STORE":
            continue
        lo, hi = regions(command)[1].span
        for value, (a, b, writers) in wanted.items():
            if lo < b and a < hi and command.node in writers:
                last[value] = i
    found: dict[int, list[str]] = {}
    for value, i in last.items():
        found.setdefault(i, []).append(value)
    return found


