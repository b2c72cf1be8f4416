"""Decides which lines the log of a build has: one a stage, minor stages only when asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan


class Lines:
    """Step -> the line that shows it; what the user asked for by name has one."""

    def __init__(self, plan: Plan, every: bool, asked: Collection[str] = ()) -> None:
        if every:
            self.of = {step.name: step.name for step in plan}
            self.last = set(self.of)
            self.shown = list(self.of)
            return
        minor = {step.name: step.stage.minor for step in plan}
        wholes = {step.name: step.whole for step in plan}
        refined = {step.name: step.stage.refines for step in plan}
        bases = {step.name: refined.get(step.whole) or step.whole for step in plan}
        names = {base: base for base in bases.values()}
        # a line is named for its base, or, where that is minor, for the last refinement that is not
        names |= {
            base: name
            for name, base in bases.items()
            if minor.get(base) and not minor[name] and name == wholes[name]
        }
        self.of = {name: names[base] for name, base in bases.items()}
        settled_by = {line: name for name, line in self.of.items()}
        self.last = set(settled_by.values())
        """Steps that settle their line."""
        said = {self.of[step.name] for step in plan if step.name == step.whole and not minor[step.name]}
        said |= {self.of[name] for name in asked if name in self.of}
        self.shown = [line for line in settled_by if line in said]
        """The lines that are printed, in order; failures are, whatever their step."""

    def settles(self, step: str) -> bool:
        """Whether a step is the last of a line that is shown."""
        return step in self.last and self.of[step] in self.shown
