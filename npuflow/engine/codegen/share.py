"""Loads of the same box, or of the same constants, by several cores become one shared load each.

Only loads between the same two barriers meet, in an order that agrees with each core's own: whatever a core waits for
before such a load was begun before it on all cores, so that they cannot wait for each other. What meets is what the tiles
are of, not what their bytes happen to be: tables and weights often repeat, and a repeated block that met another tile's
would keep both cores from the loads in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from npuflow.engine.codegen.commands import CommandList, Pending
from npuflow.engine.codegen.dma import in_step
from npuflow.engine.schedule.meet import meetings


def share_loads(lists: Sequence[CommandList], since: Sequence[int]) -> None:
    """Sets the masks of all loads that cores can make together, of the commands from those numbers on."""
    loads = [
        [p for p in commands.commands[first:] if p.opcode == "LOAD"] for commands, first in zip(lists, since, strict=True)
    ]
    for meeting in meetings([[_key(p) for p in own] for own in loads]):
        same = [loads[core][index] for core, index in meeting]
        if len(same) < 2 or (copies := in_step([p.values for p in same])) is None:
            continue
        mask = sum(1 << core for core, _ in meeting)
        for pending, values in zip(same, copies, strict=True):
            pending.values = {**values, "mask": mask}


def _key(p: Pending) -> Hashable:
    return p.queue, id(p) if p.what is None else p.what
