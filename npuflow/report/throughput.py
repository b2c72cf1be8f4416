"""Latency and inferences a second of a program, by the clock on the command streams of several inferences."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from npuflow.place.host import HostWork
from npuflow.program.container import Program, instances_of
from npuflow.program.copies import Copies
from npuflow.program.order import order_of
from npuflow.sim.clock import timeline_of

ROUNDS = 3      # of inferences: the time between the ends of the last two is the steady state's


@dataclass(frozen=True)
class Throughput:
    """`instances` inferences at a time. `latency`: cycles from the start to the end of one of them, with the
    host's; `period`: cycles from the end of one round of inferences to the end of the next. `overlapped`: a
    round's first loads run under the tail of the round before it; else `because` says why not. `alone`: the
    period of one inference at a time. `bytes`: external traffic of an inference."""

    instances: int
    latency: float
    period: float
    overlapped: bool
    because: str
    alone: float
    bytes: float
    clock_mhz: int

    @property
    def per_second(self) -> float:
        return self.instances * self.clock_mhz * 1e6 / self.period if self.period else 0.0

    @property
    def latency_ms(self) -> float:
        return self.latency / self.clock_mhz / 1000

    @property
    def speed_up(self) -> float:
        """Inferences a second over those of one instance."""
        return self.instances * self.alone / self.period if self.period else 1.0

    def row(self) -> dict[str, Any]:
        """All figures, for reports and JSON."""
        derived = {name: getattr(self, name) for name in ("per_second", "latency_ms", "speed_up")}
        return {**asdict(self), **derived}

    def text(self) -> str:
        """A line for people."""
        how = "overlapped" if self.overlapped else f"one after the other ({self.because})"
        gain = f", {self.speed_up:.2f} times one core's" if self.instances > 1 else ""
        many = f"{self.instances} cores with an inference each" if self.instances > 1 else "inferences"
        return (
            f"throughput: {self.per_second:,.1f} inferences a second{gain}; {many}, {how}; latency "
            f"{self.latency_ms:.4g} ms, {self.bytes / 1e6:.2f} MB external for each"
        )


def throughput(program: Program, instances: int = 0) -> Throughput:
    """The program's figures with so many inferences at a time; 0: as many as it was built for."""
    many = instances or instances_of(program)
    found = _measured(program, many)
    return found if many == 1 else replace(found, alone=_measured(program, 1).period)


def _measured(program: Program, instances: int) -> Throughput:
    copies = Copies(program, instances, ROUNDS)
    because = copies.obstacle()
    if because:
        copies = Copies(program, instances)
    merged = copies.merged()
    order = order_of(merged)
    time = timeline_of(merged, order)
    turns = copies.round_of(order)
    ends = [float(time.end[turns == turn].max(initial=0.0)) for turn in range(copies.rounds)]
    host = instances * _host_cycles(program)
    period = max(ends[-1] - ends[-2], host) if copies.rounds > 1 else ends[0] + host
    traffic = float(time.moved.sum()) / copies.number
    clock = program.target.compute.clock_mhz
    return Throughput(
        instances, ends[0] + host, period, copies.rounds > 1, because, period, traffic, clock
    )


def _host_cycles(program: Program) -> float:
    """Of one inference."""
    works = [HostWork(**node["host"]) for node in program.meta["nodes"] if node.get("host")]
    return sum(works, HostWork()).cycles(program.target)
