"""Finds the table of energy of a program: that of a named target, or of the shipped one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuflow.base.errors import UsageError

if TYPE_CHECKING:
    from npuflow.hw.energy import Energy
    from npuflow.program.container import Program


def table_for(program: Program, asked: str | None) -> Energy | None:
    """What `--energy` names; without it, the table of the shipped target whose machine is the program's."""
    from npuflow.program.container import fingerprint
    from npuflow.stages.tiling import shipped_targets

    if asked is not None:
        return _asked(asked)
    for target in shipped_targets().values():
        one = replace(target, compute=target.compute.of_one_inference)
        if target.energy is not None and fingerprint(one) == program.target_fingerprint:
            return target.energy
    return None


def _asked(name: str) -> Energy:
    from npuflow.cli.targets import path_of, target_of

    found: Energy | None = target_of(path_of(name)).energy
    if found is None:
        raise UsageError(
            f'--energy: the target "{name}" says nothing of energy', because="it has no table [energy]",
            hint="docs/explanation/energy.md says what the table holds", code="NF-USAGE-354",
        )
    return found
