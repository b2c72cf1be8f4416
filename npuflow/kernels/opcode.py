"""What an opcode computes: the base of the files of isa, one opcode a file.

`execute` is the meaning in plain numpy; `bind` gives the same result by compiled kernels, where it is sure
to. Arithmetic for both is in `npuflow.kernels.exact` and `npuflow.kernels.fast`.
"""

from __future__ import annotations

from collections.abc import Callable

from npuflow.hw.command import Command
from npuflow.hw.isa import Opcode, opcodes
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.operands import Bench

Step = Callable[[], None]


class Simulated(Opcode):
    """An opcode that the simulator runs."""

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        """Exactly what the docstring says, for every sample of the memory."""
        raise NotImplementedError(f"{self.name}.execute")

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        """The command at position i of the order as a call without arguments; None: `execute` it."""
        return None


def simulated(name: str) -> Simulated:
    """The opcode of a name."""
    found = opcodes()[name]
    assert isinstance(found, Simulated), f"{name} says nothing of what it computes"
    return found
