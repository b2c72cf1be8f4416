"""What searches have found, for later searches of nearly the same network.

Plans of one network in several forms ask for the costs of the same parts again and again; these depend on the
part, the machine and the level alone.
"""

from __future__ import annotations

from collections.abc import Callable

from npuflow.schedule import tuned
from npuflow.schedule.machine import Machine
from npuflow.search.canonical import Cost, Memo
from npuflow.search.score import Costed


class SearchMemory:
    """Of one target, whatever the network. `known`: costs of subgraphs from steps before."""

    def __init__(self, known: Memo | None = None) -> None:
        self.subgraphs: dict[str, Cost] = dict(known or {})
        self._tilings: dict[tuple[Machine, int], Costed] = {}

    def once(self, key: str, find: Callable[[], Cost]) -> Cost:
        """What is known of a subgraph, or is found now."""
        if key not in self.subgraphs:
            self.subgraphs[key] = find()
        return self.subgraphs[key]

    def tilings(self, machine: Machine, level: int) -> Costed:
        """Tilings of layers on a machine at a level, which those who score groups add to."""
        return self._tilings.setdefault((machine, min(level, tuned.PART_LEVEL)), Costed())
