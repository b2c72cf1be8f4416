"""By how much words of a repeated block go on from round to round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npuflow.hw.command import Command
from npuflow.hw.isa import HEADER_WORDS, OPCODES, WORDS, Terms, numbers
from npuflow.hw.region import Region
from npuflow.hw.target import Target
from npuflow.kernels.opcode import Simulated

ENTRIES = 17


@OPCODES.entry
class AdvanceOpcode(Simulated):
    """Behind a REPEAT: word `words[k]` of the block's command `commands[k]`, counted from 0, is higher by
    `steps[k]` in each round than in the one before, modulo 2^32. Entries with a step of 0 say nothing."""

    code = 45
    name = "ADVANCE"
    queue = "ANY"
    fields = numbers(f"commands:{ENTRIES} words:{ENTRIES} steps:{ENTRIES}!")

    def problems(self, f: Any) -> Iterator[str]:
        for word, step in zip(f["words"], f["steps"], strict=True):
            if step and not HEADER_WORDS <= word < WORDS:
                yield f"word {word} is none of the fields"

    def accesses(self, c: Command) -> Iterator[Region]:
        return iter(())

    def latency(self, c: Command, target: Target) -> Terms:
        return Terms()
