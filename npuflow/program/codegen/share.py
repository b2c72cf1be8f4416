"""Loads of the same box, or of the same constants, by several cores become one shared load each.

Only loads between the same two barriers meet, in an order that agrees with each core's own: whatever a core
waits for before such a load was begun before it on all cores, so that they cannot wait for each other. What
meets is what the tiles are of, not what their bytes happen to be: tables and weights often repeat, and a
repeated block that met another tile's would keep both cores from the loads in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.program.codegen.commands import Pending
from npuflow.program.codegen.dma import in_step
from npuflow.schedule.jobs import Phase


def share_loads(phase: Phase, commands: Mapping[int, Pending]) -> None:
    """Sets the masks of loads that cores make together, where their dimensions can be
    the same. `commands`: by job."""
    for together in phase.shared:
        same: Sequence[Pending] = [commands[n] for n in together]
        copies = in_step([p.values for p in same])
        mask = sum(1 << phase.jobs[n].core for n in together)
        for pending, values in zip(same, copies or (), strict=False):
            pending.values = {**values, "mask": mask}
