"""Which lines the log of a build has: one for a stage with its parts and refinements, none for minor ones unless asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan


class Lines:
    """Step -> the line that shows it."""

    def __init__(self, plan: Plan, every: bool) -> None:
        if every:
            self.of = {step.name: step.name for step in plan}
            self.last = set(self.of)
            self.shown = list(self.of)
            return
        refined = {step.name: step.stage.refines for step in plan}
        self.of = {step.name: refined.get(step.whole) or step.whole for step in plan}
        settled_by = {line: name for name, line in self.of.items()}
        self.last = set(settled_by.values())
        """Steps that settle their line."""
        said = {self.of[step.name] for step in plan if step.name == step.whole and not step.stage.minor}
        self.shown = [line for line in settled_by if line in said]
        """The lines that are printed, in order; failures are, whatever their step."""

    def settles(self, step: str) -> bool:
        """Whether a step is the last of a line that is shown."""
        return step in self.last and self.of[step] in self.shown
