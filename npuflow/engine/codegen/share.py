"""Loads of the same bytes by several cores become one shared load each.

Only loads between the same two barriers meet, in an order that agrees with each core's own: whatever a core waits for
before such a load was begun before it on all cores, so that they cannot wait for each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from npuflow.engine.codegen.commands import CommandList, Pending
from npuflow.engine.tiling.meet import meetings

SOURCE = ("space", "external", "element", "dims", "external_strides")


def share_loads(lists: Sequence[CommandList], since: Sequence[int]) -> None:
    """Sets the masks of all loads that cores can make together, of the commands from those numbers on."""
    loads = [
        [p for p in commands.commands[first:] if p.opcode == "LOAD"] for commands, first in zip(lists, since, strict=True)
    ]
    for meeting in meetings([[_key(p) for p in own] for own in loads]):
        if len(meeting) > 1:
            mask = sum(1 << core for core, _ in meeting)
            for core, index in meeting:
                pending = loads[core][index]
                pending.values = {**pending.values, "mask": mask}


def _key(p: Pending) -> Hashable:
    return p.queue, *(p.values[name] for name in SOURCE)
