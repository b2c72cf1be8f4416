"""Several inferences of a program as one program: copies of its command streams, each with DATA of its own.

`instances` run at the same time, each on cores of its own; `rounds` follow each other on the same cores
without the host in between: the first loads of a round begin while the last commands of the one before it
still run. Within a core, a command of a later round waits for those of the one before it that touch the same
bytes of local memory; nothing else ties two inferences, but loads of constants that all instances make
together where the target has multicast loads. Values and ports carry the number of their inference: "x@3".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.encode import Words, layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS
from npuflow.hw.region import LOCAL
from npuflow.hw.target import Target
from npuflow.program.access import regions
from npuflow.program.container import Program, fingerprint, target_meta
from npuflow.program.order import HALF, Order, order_of

Ints = npt.NDArray[np.int64]
KEPT = ("name", "nodes", "const_bytes", "local_bytes", "host")


@dataclass(frozen=True)
class Copies:
    """Inferences of a program, numbered round by round: `instances` at a time, `rounds` in all."""

    program: Program
    instances: int = 1
    rounds: int = 1

    @property
    def number(self) -> int:
        return self.instances * self.rounds

    @property
    def stride(self) -> int:
        """Bytes of DATA of one inference, in whole bursts."""
        return -(-max(1, int(self.program.meta["data_bytes"])) // self.burst) * self.burst

    @property
    def burst(self) -> int:
        return max(64, self.program.target.memory.burst)

    @property
    def external_bytes(self) -> int:
        """What all inferences take of external memory, constants stored once."""
        return self.number * self.stride + len(self.program.const)

    @property
    def target(self) -> Target:
        own = self.program.target
        return replace(own, compute=replace(own.compute, cores=own.compute.cores * self.instances))

    @cached_property
    def order(self) -> Order:
        return order_of(self.program)

    def obstacle(self) -> str:
        """Why these inferences cannot be one program; nothing if they can."""
        meta, external = self.program.meta, self.program.target.memory.external_bytes
        if self.external_bytes > external:
            return f"{self.number} inferences take {self.external_bytes} of {external} external bytes"
        if self.rounds == 1:
            return ""
        if meta.get("state"):
            return "the program keeps state from run to run"
        if sum(step["kind"] == "npu" for step in meta["steps"]) != 1:
            return "the host works between parts of the program"
        most = max(np.bincount(self.order.queue, minlength=1)) * self.rounds
        return f"{most} commands in one queue" if most >= HALF else ""

    def merged(self) -> Program:
        """All inferences as one program."""
        streams = [
            np.concatenate([self._stream(core, instance, turn) for turn in range(self.rounds)])
            for instance in range(self.instances)
            for core in range(len(self.program.commands))
        ]
        made, own = fingerprint(self.target), self.program
        return Program(made, self._meta(streams), tuple(streams), own.const, own.hosts)

    def round_of(self, merged: Order) -> Ints:
        """The round of every command of the merged program's order."""
        sizes = [len(words) for words in self.program.commands] * self.instances
        return np.array([index // sizes[core] for core, index in merged.sequence], np.int64)

    def _stream(self, core: int, instance: int, turn: int) -> Words:
        """The commands of one core for one inference, with its own addresses, masks and waits."""
        words, cores = self.program.commands[core].copy(), len(self.program.commands)
        decoded, first = self.program.decoded[core], instance * cores
        words[:, 0] = (words[:, 0] & np.uint32(0xFF00FFFF)) | np.uint32((first + core) << 16)
        barriers = 1 + max((c.number("id") for c in decoded if c.opcode == "BARRIER"), default=0)
        shift = (turn * self.instances + instance) * self.stride
        for i, command in enumerate(decoded):
            at = _places(command.opcode)
            if command.opcode == "BARRIER":
                words[i, at["id"]] += turn * barriers
                words[i, at["mask"]] = command.number("mask") << first
            if "space" not in at:
                continue
            if command.text("space") == "DATA":
                words[i, at["external"]] += shift
            if "mask" in at:
                words[i, at["mask"]] = self._mask(command.text("space"), command.number("mask"), first)
        if self.rounds > 1:
            self._set_waits(words, core, turn)
        return words

    def _mask(self, space: str, mask: int, first: int) -> int:
        """Cores that make a load together: those of one inference, or where the target has multicast
        loads and an inference has one core, all of them for what they share, the constants."""
        alone = len(self.program.commands) == 1
        if space == "CONST" and alone and self.instances > 1 and self.program.target.dma.multicast:
            return (1 << self.instances) - 1
        return mask << first

    def _set_waits(self, words: Words, core: int, turn: int) -> None:
        counts, totals, needs = self._counts[core], self._totals[core], self._needs[core]
        waits = np.where(counts > 0, counts + turn * totals, 0)
        if turn:
            waits = np.maximum(waits, np.where(needs > 0, needs + (turn - 1) * totals, 0))
        slots = np.zeros((len(words), WAIT_SLOTS), "<u2")
        slots[:, : waits.shape[1]] = waits & 0xFFFF
        words[:, 2:HEADER_WORDS] = slots.view("<u4")

    @cached_property
    def _totals(self) -> Ints:
        """Commands of every queue, by core."""
        size, cores = len(self.order.queues), len(self.program.commands)
        return np.bincount(self.order.queue, minlength=size * cores).reshape(cores, size).astype(np.int64)

    @cached_property
    def _counts(self) -> list[Ints]:
        """Per core and command what it waits for, by queue, counted from the program's start."""
        size = len(self.order.queues)
        found = [np.zeros((len(words), size), np.int64) for words in self.program.commands]
        for (core, index), waits in zip(self.order.sequence, self.order.waits, strict=True):
            for queue, count in waits:
                found[core][index, queue % size] = count
        return found

    @cached_property
    def _needs(self) -> list[Ints]:
        """Per core and command the commands of the round before, by queue, that must have retired: those that
        touch the same bytes of local memory, one of the two writing."""
        size, unit = len(self.order.queues), self.program.target.memory.local_align
        cells = -(-int(self.program.meta["local_bytes"]) // unit)
        found = []
        for core, words in enumerate(self.program.commands):
            touched = {write: np.zeros((size, cells), np.int64) for write in (False, True)}
            boxes: dict[int, list[tuple[slice, bool]]] = {}
            for i in np.flatnonzero(self.order.queue // size == core).tolist():
                index, queue = self.order.sequence[i][1], int(self.order.queue[i]) % size
                for region in regions(self.program.decoded[core][index]):
                    if region.space == LOCAL:
                        low, high = region.span
                        box = slice(low // unit, -(-high // unit))
                        boxes.setdefault(index, []).append((box, region.write))
                        touched[region.write][queue, box] = int(self.order.position[i]) + 1
            needs = np.zeros((len(words), size), np.int64)
            for index, own in boxes.items():
                queue = self.program.decoded[core][index].queue
                for box, write in own:
                    for kind in (True, False) if write else (True,):
                        np.maximum(needs[index], touched[kind][:, box].max(1, initial=0), out=needs[index])
                needs[index, queue] = 0
            found.append(needs)
        return found

    def _meta(self, streams: list[Words]) -> dict[str, Any]:
        meta, numbers = self.program.meta, range(self.number)
        found = {key: meta[key] for key in KEPT if key in meta}
        if "state" in meta:
            found["state"] = [[f"{name}@{k}" for name in pair] for k in numbers for pair in meta["state"]]
        return {
            **found,
            "target": target_meta(self.target),
            "inputs": [_named(entry, k) for k in numbers for entry in meta["inputs"]],
            "outputs": [_named(entry, k) for k in numbers for entry in meta["outputs"]],
            "values": {
                f"{name}@{k}": {
                    **entry, "address": entry["address"] + k * self.stride,
                    "owner": f"{entry.get('owner', name)}@{k}",
                }
                for k in numbers
                for name, entry in meta["values"].items()
            },
            "steps": [step for own in meta["steps"] for step in self._steps(own)],
            "data_bytes": self.number * self.stride,
        }

    def _steps(self, step: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A step of the host for every inference; a segment of the NPU once, for all of them."""
        if step["kind"] == "npu":
            first, count = (list(step[key]) * self.instances for key in ("first", "count"))
            return [{**step, "first": first, "count": [n * self.rounds for n in count]}]
        found = []
        for k in range(self.number):
            one = {key: f"{step[key]}@{k}" for key in ("value", "out") if key in step}
            many = {key: [f"{n}@{k}" for n in step[key]] for key in ("inputs", "outputs") if key in step}
            found.append({**step, **one, **many})
        return found


def _places(opcode: str) -> dict[str, int]:
    """The first word of every field."""
    return {field.name: at for field, at in layout(opcode)}


def _named(entry: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {**entry, "name": f"{entry['name']}@{number}"}


def data_parallel(program: Program, instances: int) -> Program:
    """The program of one inference, to be run by so many at the same time; their memory must fit."""
    copies = Copies(program, instances)
    if because := copies.obstacle():
        each = copies.stride
        room = program.target.memory.external_bytes - len(program.const)
        raise TargetError(
            f"{instances} inferences at the same time do not fit external memory", because=because,
            hint=f"fewer cores: target.compute.cores = {max(1, room // each)}" if room >= each else
            'target.compute.cores_mode = "all"', code="NF-TARGET-035",
        )
    return replace(program, meta={**program.meta, "instances": instances})
