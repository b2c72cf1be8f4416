"""How fast a stage's tasks come back, how large they are, and what their workers need."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Pace:
    """Figures of one stage while it runs."""

    begun: float | None = None
    ran: int = 0
    shard: int = 0
    seconds: float = 0.0
    """From the first task handed out to the last one come back."""
    workers: dict[str, int] = field(default_factory=dict)
    """Worker -> the most memory that it has taken, in bytes."""

    def begin(self) -> None:
        """A task is handed out."""
        if self.begun is None:
            self.begun = time.perf_counter()

    def took(self, shard: int, ran: int, worker: str, memory: int) -> None:
        """A task has come back."""
        self.ran += ran
        self.shard = max(self.shard, shard)
        self.seconds = time.perf_counter() - (self.begun or 0.0) if self.begun is not None else 0.0
        if worker:
            self.workers[worker] = max(self.workers.get(worker, 0), memory)

    @property
    def rate(self) -> float:
        return self.ran / self.seconds if self.seconds else 0.0

    @property
    def memory(self) -> int:
        return max(self.workers.values(), default=0)
