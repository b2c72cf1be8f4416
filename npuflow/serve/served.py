"""A model as the server has it: its runner, whether samples stack, and what was counted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from npuflow.runner.ports import Array, joined, rows
from npuflow.runner.runner import Runner
from npuflow.serve.batches import Batches
from npuflow.serve.metrics import Counts, Shown
from npuflow.serve.protocol import Request
from npuflow.serve.tensors import ProtocolError


@dataclass
class Served:
    """One model under its name. `most`: samples that one request may hold. `file`: what it was
    opened from."""

    name: str
    runner: Runner
    most: int = 64
    timeout: float = 30.0
    file: Path | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._seen = self._state()

    def _state(self) -> tuple[int, int] | None:
        """Size and time of the file; nothing without one."""
        try:
            held = None if self.file is None else self.file.stat()
        except OSError:
            return None
        return None if held is None else (held.st_size, held.st_mtime_ns)

    def changed(self) -> bool:
        """Whether the file is not the one that was opened."""
        return self._state() != self._seen

    @cached_property
    def batches(self) -> Batches:
        return Batches(self.runner)

    @cached_property
    def batched(self) -> bool:
        """Whether samples lie along the first axis of all inputs and outputs, a batch of one in each."""
        ports = (*self.runner.inputs, *self.runner.outputs)
        return all(port.ranked and port.shape[:1] == (1,) for port in ports)

    async def infer(self, request: Request) -> dict[str, Array]:
        """The outputs of a request; its samples go into batches with those of others."""
        timeout = min(self.timeout, request.timeout or self.timeout)
        samples: list[Mapping[str, Array]] = [request.inputs]
        if self.batched:
            held = {name for _, name in self.runner.state}     # what is not given begins with zeros
            ports = [p for p in self.runner.inputs if p.name in request.inputs or p.name not in held]
            samples = list(rows(request.inputs, ports))
            if not 1 <= len(samples) <= self.most:
                allowed = "1 sample" if self.most == 1 else f"1 to {self.most} samples"
                raise ProtocolError(f"a request holds {allowed}, not {len(samples)}")
        futures = []
        try:
            for sample in samples:
                futures.append(self.batches.submit(sample, timeout))
            found = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return joined(found) if self.batched else found[0]

    def samples(self, request: Request) -> int:
        """How many a request holds."""
        return len(next(iter(request.inputs.values()))) if self.batched and request.inputs else 1

    def shown(self) -> Shown:
        return Shown(self.counts, self.batches.waiting, dict(self.batches.sizes))
