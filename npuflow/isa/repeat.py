"""A block of commands that is issued several times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Terms, numbers
from npuflow.hw.region import Region
from npuflow.hw.target import Target
from npuflow.kernels.opcode import Simulated


@OPCODES.entry
class RepeatOpcode(Simulated):
    """The sequencer issues the block `count` times: the `length` commands behind the ADVANCE commands, of
    which `advances` follow this one. In round i, counted from 0, every wait that the block has is higher by i
    times the commands that the block has in that queue, and a word that an ADVANCE names by i times its step.
    A wait of 0 in the file is none in all rounds; one that becomes 0 modulo 2^16 goes on. It takes no time of
    any queue, and no queue counts it: what is behind it waits for the commands of all rounds. A block may
    hold other blocks, which hold none.

    Where `most` is not 0, `count` is the most rounds, and the number of steps n, at most `most`, is the
    unsigned 32-bit integer at byte `address` of DATA, which is there before the program starts and which
    no command writes. r = min(count, max(least, ceil((n - before) / each))) rounds are issued: the first
    ones, or with `late` = 1 the last ones, whose words have gone on as if those before them had been
    issued, while their waits have not. Of commands behind the block, every wait that is not 0 is lower by
    count - r times the commands that the block has in that queue. A block in a block has a constant
    count.

    With `late` = 2 the integer is an index, and the block is issued once: its words have gone on as if
    min(count - 1, max(least, ceil((n - before) / each))) rounds had been issued before it, while no wait
    has, neither its own nor one behind it. So addresses and extents follow an index in DATA."""

    code = 44
    name = "REPEAT"
    queue = "ANY"
    fields = numbers("count length advances most address before! each least late")

    def problems(self, f: Any) -> Iterator[str]:
        if f["count"] < 1 or f["length"] < 1:
            yield f"{f['count']} rounds of {f['length']} commands"
        if f["most"] and not (f["each"] and f["least"] <= f["count"] - (f["late"] == 2) and f["late"] <= 2):
            yield f"rounds that are read, of {f['each']} steps, {f['least']} of {f['count']} at least"

    def accesses(self, c: Command) -> Iterator[Region]:
        return iter(())

    def latency(self, c: Command, target: Target) -> Terms:
        return Terms()
