"""Inferences at the same time beside the same inferences alone, on the simulator: equal in every tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.base.errors import BuildError, Where
from npuflow.compare.difference import unequal
from npuflow.ir.types import Array
from npuflow.program.container import Program, instances_of
from npuflow.program.copies import Copies
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of, require_safe


def require_same(program: Program, samples: Sequence[Mapping[str, Array]]) -> int:
    """Runs as many inferences as there are instances, two rounds of them where they overlap, on the samples
    in turn; how many tensors were compared. A hazard or a difference is an error."""
    copies = Copies(program, instances_of(program), 2)
    if copies.obstacle():
        copies = Copies(program, copies.instances)
    merged, number = copies.merged(), copies.number
    runner = ProgramRunner(merged, batch=1)
    require_safe(merged, hazards_of(merged, runner.order))
    alone = [ProgramRunner(program, batch=1).run(sample, dump=True) for sample in samples]
    given = {f"{name}@{k}": a for k in range(number) for name, a in samples[k % len(samples)].items()}
    found = runner.run(given, dump=True)
    compared = 0
    for k in range(number):
        for name, want in alone[k % len(samples)].items():
            got = found.get(f"{name}@{k}")
            if got is None:
                continue
            compared += 1
            wrong = unequal(want, got)
            if wrong.any():
                raise BuildError(
                    f"inference {k} of {number} at the same time differs from the same inference alone",
                    where=Where(value=name),
                    because=f"{np.count_nonzero(wrong)} of {want.size} elements",
                    hint="this is a bug of npuflow: please report it with the recipe", code="NF-BUILD-030",
                )
    return compared
