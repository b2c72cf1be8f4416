"""Banks of local memory: what a job waits where others have taken the ports of the banks that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from npuflow.hw.target import Memory


class Touched(NamedTuple):
    """Bytes that a job reads or writes between two addresses of local memory, evenly."""

    low: int
    high: int
    bytes: int


Shares = Mapping[int, float]              # bank -> bytes
NOTHING: Shares = {}


class Banks:
    """The local memory of a core by banks."""

    def __init__(self, memory: Memory) -> None:
        self.ports, self.width = memory.bank_ports, float(memory.local_bandwidth)
        self.size = memory.local_bytes // memory.local_banks
        self._known: dict[tuple[Touched, ...], Shares] = {}

    def shares(self, key: tuple[Touched, ...]) -> Shares:
        """Bytes by bank."""
        if key not in self._known:
            self._known[key] = self._found(key)
        return self._known[key]

    def _found(self, touched: Iterable[Touched]) -> Shares:
        found: dict[int, float] = {}
        for low, high, amount in touched:
            density = amount / max(1, high - low)
            while low < high:
                bank = low // self.size
                end = min(high, (bank + 1) * self.size)
                found[bank] = found.get(bank, 0.0) + (end - low) * density
                low = end
        return found

    def wait(self, own: Shares, others: Sequence[tuple[Shares, float]]) -> float:
        """Cycles for a job that comes while others run, of whose bytes some part is still to come."""
        cycles = 0.0
        if len(others) < self.ports:
            return 0.0
        for bank, amount in own.items():
            taken = [shares[bank] * part for shares, part in others if bank in shares]
            over = len(taken) + 1 - self.ports             # so many must end before one port is free
            if over > 0:
                cycles += min(amount, sum(sorted(taken)[:over]))
        return cycles / self.width
