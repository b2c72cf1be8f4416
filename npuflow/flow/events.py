"""What a build reports while it runs: plain data, rendered by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["hit", "ran", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Started:
    """The build begins: what is known before the first step."""

    stages: tuple[str, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A dask cluster was started or joined, and runs steps from now on."""

    workers: str
    """How many there are of what, and where."""
    dashboard: str | None = None
    """The address of its dashboard, if it has one."""


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step (or one item of a fan-out) is settled."""

    stage: str
    item: str | None
    key: str | None
    status: Status
    seconds: float = 0.0
    output: str | None = None
    reason: str = ""
    error: BaseException | None = None
    summary: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A step has been handed to a worker."""

    stage: str
    item: str | None
    key: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage has come: `total` grows when a wave brings new items."""

    stage: str
    done: int
    total: int
    hits: int = 0
    rate: float = 0.0
    """Items that ran, a second, since the stage's first task was handed out; 0 while none has come back."""
    shard: int = 0
    """Items of the collection that the largest task so far was given (pairs of one such item count once)."""
    workers: int = 0
    """Processes that have worked on the stage."""
    memory: int = 0
    """Bytes: the most that one of them has had in memory at once."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A task has ended: what its steps took together."""

    stage: str
    seconds: float
    processor: float
    """Seconds of the clock in its worker, and of the processor in its thread."""
    memory: int
    """Bytes: the most that its worker has had in memory by then."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know and the build survives: a quarantine, an unreachable remote, a retry."""

    message: str
    stage: str | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """The build is over."""

    hit: int
    ran: int
    failed: int
    skipped: int
    seconds: float
    outputs: Mapping[str, str] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)


Event = Started | Opened | StepEvent | Running | Progress | Spent | Warned | Summary
