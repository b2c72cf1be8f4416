"""States of the search for resident values, each made from the one before it."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.search.score import Scored

State = tuple[list[Scored], set[str]]     # groups, and the values that stay in local memory between them


class States:
    """The groups that nothing stays between, then one state more for each value that was kept. Only what
    changed is held: of a network of thousands of layers every state is as long as the network."""

    def __init__(self, groups: Sequence[Scored]) -> None:
        self._groups = tuple(groups)
        self._changes: list[tuple[str, int, Sequence[Scored]]] = []

    def __len__(self) -> int:
        return len(self._changes) + 1

    def keep(self, value: str, first: int, groups: Sequence[Scored]) -> None:
        """One more value stays, and these groups stand from `first` on."""
        self._changes.append((value, first, tuple(groups)))

    def at(self, number: int) -> State:
        """The state after so many values; negative numbers count from the last state."""
        chosen, kept = list(self._groups), set[str]()
        for value, first, groups in self._changes[: number % len(self)]:
            chosen[first : first + len(groups)] = groups
            kept.add(value)
        return chosen, kept

    def between(self, low: int, high: int) -> set[str]:
        """The values that the state `high` keeps and the state `low` does not."""
        return {value for value, _, _ in self._changes[low:high]}
