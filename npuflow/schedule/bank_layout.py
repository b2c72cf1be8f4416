"""Local addresses by banks: what two engines use at once goes to different banks,
where the bytes are free anyway.

The allocator says where everything fits; here lives move within what is left. A move is judged by the bytes
that the life shares in a bank with others that another engine uses in the same part, as the clock counts
them. It never makes anything wait for its bytes longer: no later tenant comes before, no earlier one after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Memory
from npuflow.schedule import tuned
from npuflow.schedule.allocate import Layout, Lifetime, aligned, check_layout
from npuflow.schedule.frame import Frame
from npuflow.schedule.local import Local, held_slots
from npuflow.schedule.machine import Machine

Ints = npt.NDArray[np.int64]
Part = tuple[int, int]                    # a group and a part of it
Users = Mapping[Part, Mapping[str, frozenset[str]]]      # who works on each life while a part runs
_HOMES = {
    "acc": "TENSOR VECTOR",
    "output": "VECTOR STORE",
    "inner": "VECTOR",
    "input": "LOAD",
    "const": "LOAD",
}


def set_apart(local: Local, frames: Sequence[Frame], machine: Machine) -> Local:
    """The same lives in banks that nobody else is using, where bytes are free."""
    memory = machine.memory
    layout = spread(local.lives, local.layout, users(frames, local.shared), memory, memory.slot_align)
    check_layout(local.lives, layout.addresses, memory.local_bytes, memory.slot_align)
    return replace(local, layout=layout)


def users(frames: Sequence[Frame], shared: Mapping[str, str]) -> Users:
    """The engines that read or write each life, by part; names as in `lay_local`, `shared` as in `Local`."""
    found: dict[Part, dict[str, frozenset[str]]] = {}
    for g, frame in enumerate(frames):
        if frame.moves:
            found[g, 0] = {f"{g}.move/{k}": frozenset(("LOAD", "STORE")) for k in range(2)}
            continue
        turns = len(frame.strips[0]) > 1
        for p, member in enumerate(frame.members):
            array = "TENSOR" if member.layer.mac is not None else "VECTOR"
            here = found.setdefault((g, p), {})
            for u, unit in enumerate(frame.units[p]):
                engines = {*_HOMES[unit.home].split(), *({array} if unit.home in ("input", "const") else ())}
                scratch = turns and unit.home in ("acc", "inner")
                own = shared.get(f"{g}.{p}.{u}", f"{g}.{p}.{u}")
                for name in [f"{g}.scratch/0"] if scratch else [f"{own}/{k}" for k in range(unit.slots)]:
                    here[name] = here.get(name, frozenset()) | engines
            for value, engines in _values(frame, p, array):
                owner = frame.owner(value)
                first = shared.get(f"kept.{owner}", f"kept.{owner}")
                names = [f"{first}/0"] if owner in frame.kept else _slots(frame, g, owner)
                here.update({name: here.get(name, frozenset()) | engines for name in names})
    return found


def _values(frame: Frame, p: int, array: str) -> Iterator[tuple[str, set[str]]]:
    """Values that a part finds or leaves in buffers."""
    member = frame.members[p]
    made = {v for m in frame.members for v in m.outputs}
    for value, _ in member.inputs:
        yield value, {array} | ({"LOAD"} if value not in made else set())
    for value in member.outputs:
        yield value, {"VECTOR"} | ({"STORE"} if value in frame.results else set())


def _slots(frame: Frame, g: int, value: str) -> list[str]:
    return [f"{held_slots(g, value)}/{k}" for k in range(frame.slots.get(value, 0))]


def conflicts(lives: Sequence[Lifetime], addresses: Mapping[str, int], who: Users, memory: Memory) -> float:
    """Bytes that lie in one bank with bytes that another engine uses in the same part, summed over pairs."""
    return _Map(lives, addresses, who, memory, 1).total()


def spread(lives: Sequence[Lifetime], layout: Layout, who: Users, memory: Memory, align: int) -> Layout:
    """The layout with lives moved apart; the same one where nothing is gained."""
    bank = _Map(lives, layout.addresses, who, memory, align)
    before = bank.total()
    for _ in range(tuned.BANK_SWEEPS):
        if not bank.sweep():
            break
    if bank.total() >= before:
        return layout
    total = max((int(h) for h in bank.high), default=0)
    return Layout({v.name: int(a) for v, a in zip(lives, bank.low, strict=True)}, total, layout.bound)


class _Map:
    def __init__(
        self, lives: Sequence[Lifetime], addresses: Mapping[str, int], who: Users, memory: Memory, align: int
    ) -> None:
        self.low = np.array([addresses[v.name] for v in lives], np.int64)
        self.size = np.array([aligned(v.size, align) for v in lives], np.int64)
        self.high = self.low + self.size
        self.first, self.last = (
            np.array([getattr(v, f) for v in lives], np.int64) for f in ("first", "last")
        )
        self.memory, self.align, self.bank = memory, align, memory.local_bytes // memory.local_banks
        index = {v.name: i for i, v in enumerate(lives)}
        pairs: dict[tuple[int, int], int] = {}
        for names in who.values():
            known = [(index[n], engines) for n, engines in names.items() if n in index]
            for (i, a), (j, b) in combinations(known, 2):
                weight = sum(e != f for e in a for f in b)
                for key in ((i, j), (j, i)) if weight else ():
                    pairs[key] = pairs.get(key, 0) + weight
        grouped: dict[int, list[tuple[int, int]]] = {}
        for (i, j), w in pairs.items():
            grouped.setdefault(i, []).append((j, w))
        self.others = {
            i: (np.array([j for j, _ in g]), np.array([w for _, w in g])) for i, g in grouped.items()
        }

    def total(self) -> float:
        return sum(float(self.cost(i, self.low[i : i + 1])[0]) for i in self.others) / 2

    def cost(self, i: int, at: Ints) -> npt.NDArray[np.float64]:
        """Per address: bytes in common banks with whom another engine uses, times the pairs of engines."""
        others, weights = self.others[i]
        a, size, low, high = at[:, None], self.size[i], self.low[others], self.high[others]
        start = np.maximum(a // self.bank, low // self.bank) * self.bank
        end = (np.minimum((a + size - 1) // self.bank, (high - 1) // self.bank) + 1) * self.bank
        mine = np.minimum(a + size, end) - np.maximum(a, start)
        theirs = np.minimum(high, end) - np.maximum(low, start)
        return np.asarray((np.where(end > start, np.minimum(mine, theirs), 0) * weights).sum(1), np.float64)

    def sweep(self) -> bool:
        """Every life once, the worst first, to where it is in fewer conflicts; whether any moved."""
        moved = False
        now = {i: float(self.cost(i, self.low[i : i + 1])[0]) for i in self.others}
        for i in sorted((i for i in now if now[i]), key=lambda i: (-now[i], i)):
            here = float(self.cost(i, self.low[i : i + 1])[0])
            at = self._free(i) if here else np.zeros(0, np.int64)
            costs = self.cost(i, at)
            order = np.lexsort((at, costs))
            at = self._prompt(i, at[order[: int((costs < here).sum())][: tuned.BANK_LOOKS]])
            if len(at):
                self.low[i], self.high[i], moved = at[0], at[0] + self.size[i], True
        return moved

    def _free(self, i: int) -> Ints:
        """Addresses where a life finds room: beside others and at the banks' borders."""
        size, starts = int(self.size[i]), np.arange(self.memory.local_banks) * self.bank
        meets = (self.first <= self.last[i]) & (self.last >= self.first[i])
        meets[i] = False
        low, high = self.low[meets], self.high[meets]
        at = np.unique(np.concatenate([starts, starts + self.bank - size, high, low - size]))
        at = at[(at >= 0) & (at + size <= self.memory.local_bytes) & (at % self.align == 0)]
        return np.asarray(at[~((low < at[:, None] + size) & (at[:, None] < high)).any(1)])

    def _prompt(self, i: int, at: Ints) -> Ints:
        """Those addresses of which nobody keeps the life waiting longer than now, nor it others."""
        size = int(self.size[i])
        before, after = self.last < self.first[i], self.first > self.last[i]
        since, until = self._neighbours(at, size, before, after)
        least, most = self._neighbours(self.low[i : i + 1], size, before, after)
        return at[(since <= least[0]) & (until >= most[0])]

    def _neighbours(
        self, at: Ints, size: int, before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
    ) -> tuple[Ints, Ints]:
        """Per address: when the last tenant before leaves, when the first one behind comes."""
        meets = (self.low < at[:, None] + size) & (at[:, None] < self.high)
        since = np.where(meets & before, self.last, -1).max(axis=1, initial=-1)
        until = np.where(meets & after, self.first, 1 << 62).min(axis=1, initial=1 << 62)
        return since, until
