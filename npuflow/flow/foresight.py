"""Memory estimates: what later steps will need is known from shapes.
A step that cannot fit is reported before earlier ones have run for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from npuflow.base.errors import BuildError
from npuflow.flow.artifact import Artifact, ArtifactRef, Damaged, Need
from npuflow.flow.events import Event, Warned
from npuflow.flow.memory import shown
from npuflow.flow.plan import Plan
from npuflow.flow.run_state import StepState

ROUND = 0.9         # of the memory there is: what a suggested count may take


def foresees(kind: type[Artifact]) -> bool:
    """Whether artifacts of this class say what later steps need."""
    return kind.needs is not Artifact.needs


class Foresight:
    """What the steps of a plan will need, beside the most that one of them may take."""

    def __init__(self, plan: Plan, most: int) -> None:
        self.most = most
        self.needs: dict[str, Need] = {}
        self._seers = [step.name for step in plan if foresees(step.signature.output) and step.stage.quick]
        self._reported: set[str] = set()
        self._read: dict[str, str] = {}
        self._known_as = {step.name: step.whole for step in plan}
        self._above: dict[str, frozenset[str]] = {}
        for step in plan:
            sources = [place.step for place in step.inputs.values() if place.step is not None]
            self._above[step.name] = frozenset(
                (step.name, *(name for one in sources for name in self._above[one]))
            )

    def pending(self, states: Mapping[str, StepState]) -> bool:
        """Whether something will be known in a moment: no dear step is handed out before."""
        return any(states[name].pending for name in self._seers)

    def faults(
        self,
        state: StepState,
        states: Mapping[str, StepState],
        load: Callable[..., Any],
        emit: Callable[[Event], None],
    ) -> Iterator[tuple[str, BuildError]]:
        """What is foreseen once a step has its product, or is about to run: steps that
        cannot end well, with the error.

        A step counts as one that will run as soon as a dear one on the way to it runs, or it itself: a
        network whose products are all in the cache needs no memory.
        """
        ref, kind = state.ref, state.step.signature.output
        if isinstance(ref, ArtifactRef) and foresees(kind) and self._read.get(state.step.name) != ref.digest:
            self._read[state.step.name] = ref.digest
            with suppress(Damaged):  # whoever needs it finds the damage
                self.needs.update(
                    {name: need for name, need in load(ref, kind).needs().items() if name in self._above}
                )
            begun = [one for one in states.values() if one.pending]
        else:
            begun = [state] if state.pending else []
        for one in begun:
            if not one.step.stage.quick:
                yield from self._before(one.step.name, states, emit)

    def _before(
        self, begun: str, states: Mapping[str, StepState], emit: Callable[[Event], None]
    ) -> Iterator[tuple[str, BuildError]]:
        for name, need in self.needs.items():
            if begun not in self._above[name] or name in self._reported or states[name].over_with:
                continue
            if need.fixed + need.least * need.each > self.most:
                self._reported.add(name)
                yield name, self._error(name, need)
            elif need.fixed + need.count * need.each > self.most:
                self._reported.add(name)
                whole = shown(need.fixed + need.count * need.each)
                text = (
                    f"{self._known_as[name]} will need about {whole} of memory, and there are "
                    f"{shown(self.most)}"
                )
                emit(Warned(text, name, self._key(need)))

    def _error(self, name: str, need: Need) -> BuildError:
        least = need.fixed + need.least * need.each
        return BuildError(
            f"{self._known_as[name]} would need about {shown(least)} of memory, and there are "
            f"{shown(self.most)}",
            because=need.about,
            hint=need.key if not need.each else "smaller inputs: [model] inputs; or more memory",
            code="NF-STEP-004",
        )

    def _key(self, need: Need) -> str:
        room = int((ROUND * self.most - need.fixed) / need.each) if need.each else 0
        return need.key.format(count=max(need.least, min(need.count, room)))
