"""Updates under a mask: the steps of a loop whose end depends on data.

The loop has a stated number of steps. One statement for all source formats; each writes the operators of its
own (`StepWriter`). A carried truth value says whether a step counts. Behind the end what is carried stays as
it is, bit for bit, and what the steps stack is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Name = TypeVar("Name")

END = "depends on data"
BOUND = "[model] max_steps = N makes a loop of N steps of it"
# why a loop has no number of steps that is known before it runs
ENDLESS = (
    "the number of its steps is not a constant",
    "its condition is not a constant",
    f"its condition {END}",
)

# what may give no number at all of a state behind the end, which the condition kept from it
GUARDED = frozenset((
    "Div", "Reciprocal", "Log", "Sqrt", "Pow", "Acos", "Acosh", "Asin", "Atanh", "Tan", "DIV", "LOG", "SQRT",
    "RSQRT", "POW", "FLOOR_DIV", "FLOOR_MOD",
))


@dataclass
class StepBounds:
    """How many steps loops may have whose end depends on data: `stated`, one number or by name; None: they
    stay as they are. `found`: the names of such loops. `going`: values that say that one would go on."""

    stated: int | Mapping[str, int] | None = None
    found: dict[str, None] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)

    def of(self, name: str) -> int | None:
        """The steps of a loop of this name."""
        self.found[name] = None
        return self.stated.get(name) if isinstance(self.stated, Mapping) else self.stated


class StepWriter(Protocol, Generic[Name]):
    """Adds operators to a step; each gives its result's name. `truth`: of truth values."""

    def product(self, a: Name, b: Name, truth: bool) -> Name:
        """a * b, or both of them."""

    def sum(self, a: Name, b: Name, truth: bool) -> Name:
        """a + b, or either of them."""

    def opposite(self, a: Name, truth: bool) -> Name:
        """1 - a, or not a."""

    def number(self, a: Name) -> Name:
        """A truth value as 0 or 1."""


class StepMask(Generic[Name]):
    """A step's mask. `runs`: whether the step counts, a truth value of one element."""

    def __init__(self, writer: StepWriter[Name], runs: Name) -> None:
        self.writer, self.runs = writer, runs
        number = writer.number(runs)
        self.flags = {True: runs, False: number}
        self.others = {False: writer.opposite(number, False)}

    def held(self, new: Name, old: Name, truth: bool) -> Name:
        """What is carried on: the new value where the step counts, else the old one."""
        write = self.writer
        if truth not in self.others:
            self.others[truth] = write.opposite(self.runs, truth)
        return write.sum(
            write.product(new, self.flags[truth], truth), write.product(old, self.others[truth], truth), truth
        )

    def fed(self, state: Name, initial: Name) -> Name:
        """What a step computes with, where it may divide by 0 and the like: the initial state behind the
        end."""
        return self.held(state, initial, False)

    def row(self, value: Name, flag: Name, truth: bool) -> Name:
        """What a step stacks. `flag`: the mask in the form that fits the value."""
        return self.writer.product(value, flag, truth)

    def goes_on(self, conditions: Sequence[Name]) -> Name:
        """Whether the next step counts: this one does, and all of the conditions hold behind it."""
        result = self.runs
        for one in conditions:
            result = self.writer.product(result, one, True)
        return result


def steps_needed(most: int, known: Sequence[Sequence[bool]]) -> int:
    """The steps that are needed: the stated ones, or as many as conditions let run that are known in all of
    these. `known`: such conditions, behind each step."""
    ends = [rows.index(False) + 1 for rows in known if False in rows]
    return min([most, *ends])
