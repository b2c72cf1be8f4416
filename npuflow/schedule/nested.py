"""Loops of a plan, one in another: how often their groups run, and in whose places their items lie.

A plan has some steps of an outer loop, and in each of them some steps of an inner one, as a loop of its own.
What lies in one place in both rounds of the inner loop lies there in both rounds of the outer one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from npuflow.ir.graph import ROUND, Roll
from npuflow.schedule.allocate import Lifetime

Key = TypeVar("Key", str, int)


@dataclass(frozen=True)
class RolledLoop:
    """A loop in a plan: the groups of each step that the graph has, by number. `homes`: values of the second
    round by those of the first in whose places they lie; what the first hands on lies where the step that
    leads in put it. `passed`: values that a step hands to the next."""

    roll: Roll
    groups: tuple[tuple[int, ...], ...]
    homes: Mapping[str, str]
    passed: frozenset[str]
    mirror: Mapping[str, str]             # values of the second round by those of the first

    @property
    def extra(self) -> int:
        """Rounds that are run beside the two that the graph has."""
        return self.roll.rounds - 2

    @property
    def first(self) -> tuple[int, ...]:
        """The groups of the first round."""
        return self._round(0)

    @property
    def second(self) -> tuple[int, ...]:
        return self._round(1)

    def _round(self, k: int) -> tuple[int, ...]:
        at = self.roll.lead + ROUND * k
        return tuple(g for step in self.groups[at : at + ROUND] for g in step)

    @property
    def twins(self) -> Mapping[int, int]:
        """Groups of the second round by those of the first."""
        return dict(zip(self.second, self.first, strict=True))


def by_depth(loops: Sequence[RolledLoop]) -> list[list[RolledLoop]]:
    """The loops, those that are nested in others first."""
    some = [[one for one in loops if bool(one.roll.outer) == inner] for inner in (True, False)]
    return [own for own in some if own]


def homes_together(loops: Sequence[RolledLoop]) -> dict[str, str]:
    """In whose place each value of rounds lies, in those of all loops around it."""
    return _through([[loop.homes for loop in some] for some in by_depth(loops)])


def twins_together(loops: Sequence[RolledLoop]) -> dict[int, int]:
    """Groups of second rounds by those of the first that they are like, in all loops around them."""
    return _through([[loop.twins for loop in some] for some in by_depth(loops)])


def _through(depths: Sequence[Sequence[Mapping[Key, Key]]]) -> dict[Key, Key]:
    """What maps of the inner loops lead to, and from there those of the outer ones."""
    found: dict[Key, Key] = {}
    for maps in depths:
        own = {key: to for one in maps for key, to in one.items()}
        found = {key: own.get(to, to) for key, to in found.items()}
        found |= {key: to for key, to in own.items() if key not in found}
    return found


def runs_of(loops: Sequence[RolledLoop]) -> dict[int, int]:
    """How often the groups of second rounds run: those stand for all rounds behind the first."""
    found: dict[int, int] = {}
    for loop in loops:
        found.update((g, found.get(g, 1) * (1 + loop.extra)) for g in loop.second)
    return found


def own_groups(loops: Sequence[RolledLoop]) -> list[tuple[int, ...]]:
    """The groups of each loop's first round that belong to no loop in it."""
    inner = {g for loop in loops if loop.roll.outer for step in loop.groups for g in step}
    return [
        loop.first if loop.roll.outer else tuple(g for g in loop.first if g not in inner) for loop in loops
    ]


def merged(
    lives: Sequence[Lifetime], home: Callable[[str], str], passed: Collection[str]
) -> list[Lifetime]:
    """Lives of items by where they lie: in the second round as in the first. What a step hands to the next
    lives from the first of them to the last."""
    found: dict[str, Lifetime] = {}
    for life in lives:
        name = home(life.name)
        known = found.get(name)
        if known is None:
            found[name] = replace(life, name=name)
        elif life.name.removeprefix("kept.").rpartition("/")[0] in passed:
            found[name] = replace(
                known, size=max(known.size, life.size), first=min(known.first, life.first),
                last=max(known.last, life.last),
            )
    return list(found.values())
