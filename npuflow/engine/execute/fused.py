"""Commands that are faster together, or in a layout of their own, than by the simulator's kernels."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.engine.execute.bench import TensorBench
from npuflow.engine.sim.opcode import Step
from npuflow.hw.command import Command


def fused(bench: TensorBench, commands: Sequence[Command]) -> tuple[int, Step | None]:
    """How many of the commands the step does; None: there is no such kernel for the first of them."""
    return 0, None
