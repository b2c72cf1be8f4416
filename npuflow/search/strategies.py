"""The search strategies, in one table; the recipe can leave out each by name.

Every strategy proposes finished plans; of all of them the one with the fewest cycles
of schedule time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from npuflow.base.errors import RecipeError, TargetError, Where, meant
from npuflow.base.tables_toml import dotted
from npuflow.schedule import tuned
from npuflow.search.tilings import DEFAULT_LEVEL

Form = Literal[
    "lower level", "rows stay", "groups", "overlapping", "reordered", "under loops", "few sizes",
    "weights stay", "one core",
]
When = Literal[
    "always", "above the default level", "on several cores", "on several cores, or where values are joined",
    "on one core, or above the default level", "where values are joined",
]
Result = Literal["scheduled", "estimated", "does not fit", "cannot win", "same plan", "no plan"]

APPLIES: Mapping[When, Callable[[int, int, bool], bool]] = {
    "always": lambda cores, level, joins: True,
    "above the default level": lambda cores, level, joins: level > DEFAULT_LEVEL,
    "on several cores": lambda cores, level, joins: cores > 1,
    "on several cores, or where values are joined": lambda cores, level, joins: cores > 1 or joins,
    "on one core, or above the default level": lambda cores, level, _: cores == 1 or level > DEFAULT_LEVEL,
    "where values are joined": lambda cores, level, joins: joins,
}


@dataclass(frozen=True)
class TilingStrategy:
    """`bus`: the assumed cost of a bus cycle to neighbouring groups, in cycles; `keeps`: whether
    tensors stay in local memory between groups where that saves cycles; `joins`: whether groups
    may join values in local memory; `room`: share of local memory for a group; `ahead`: parts whose buffers
    lie apart."""

    name: str
    form: Form
    what: str
    when: When = "always"
    bus: float = 0.0
    keeps: bool = True
    joins: bool = True
    room: float = 1.0
    ahead: int = 0


def _groups(bus: float, when: When = "always") -> tuple[TilingStrategy, TilingStrategy]:
    what = "fusion groups by dynamic programming over cuts, then tensors that stay between groups"
    alone = "the same groups, and all tensors between them in external memory"
    return (
        TilingStrategy(f"bus x {bus}", "groups", what, when, bus),
        TilingStrategy(
            f"bus x {bus}, nothing stays", "groups", alone, "above the default level", bus, keeps=False
        ),
    )


STRATEGIES: tuple[TilingStrategy, ...] = (
    TilingStrategy(
        "default level", "lower level", "the plan of the default level", "above the default level"
    ),
    TilingStrategy(
        "rows stay, bus x 1.0",
        "rows stay",
        "dynamic programming over cuts, with activations resident on the cores that compute them",
        "on several cores, or where values are joined",
        1.0,
        room=tuned.STAY_ROOM,
    ),
    *_groups(tuned.BUS_COST),
    TilingStrategy(
        "joined outside",
        "groups",
        "fusion groups that join no values in local memory",
        "where values are joined",
        tuned.BUS_COST,
        joins=False,
    ),
    *_groups(0.6, "on one core, or above the default level"),
    *_groups(0.0, "on one core, or above the default level"),
    TilingStrategy(
        "rows stay in half, bus x 1.0",
        "rows stay",
        "the same in groups of half the size, where those had to be mended",
        "on several cores, or where values are joined",
        1.0,
        room=tuned.STAY_LESS,
    ),
    TilingStrategy(
        "overlapping", "overlapping", "tiles of the best plan drawn anew, so that parts of a group overlap"
    ),
    *(
        TilingStrategy(
            f"reordered x {n}", "reordered",
            "the best plan, where queues take the first job that is ready, and buffers of so many parts lie "
            "apart; without loops", ahead=n,
        )
        for n in tuned.AHEAD_PARTS
    ),
    TilingStrategy(
        "under loops", "under loops",
        "the best plan, in which rounds of loops load constants of what follows them",
    ),
    TilingStrategy(
        "few sizes", "few sizes",
        "in networks with loops, all of these with fewer tile sizes: weights stay in local memory",
    ),
    TilingStrategy(
        "weights stay", "weights stay",
        "in networks with loops, all of these with weights that stay in local memory over all steps",
    ),
    TilingStrategy(
        "on one core", "one core", "all of these on one core, and the others idle", "on several cores"
    ),
)


@dataclass(frozen=True)
class Tried:
    """What came of a plan that a strategy proposed: its cycles, by its schedule or by the
    estimate; 0: neither was needed."""

    origin: str
    cycles: float
    result: Result


def usable(
    cores: int, level: int, without: Collection[str] = (), joins: bool = True
) -> tuple[TilingStrategy, ...]:
    """The strategies that apply, but those that are left out. `joins`: the network joins values."""
    return tuple(s for s in STRATEGIES if APPLIES[s.when](cores, level, joins) and s.name not in without)


def others_than(origin: str) -> tuple[str, ...]:
    """The names of all strategies but those that found a plan, by what it says of that, and the usual one."""
    rest, found = origin, {f"bus x {tuned.BUS_COST}"}
    for name in sorted((s.name for s in STRATEGIES), key=len, reverse=True):
        if name in rest:
            found.add(name)
            rest = rest.replace(name, "")
    return tuple(s.name for s in STRATEGIES if s.name not in found)


def check_names(without: Sequence[str]) -> None:
    """An error for every name that no strategy has, at its key."""
    names = [s.name for s in STRATEGIES]
    faults = [
        TargetError(
            f'there is no strategy "{name}"', where=Where(key=dotted(("tiling", "without", i))),
            because=f"there are {', '.join(names)}", hint=meant(name, names), code="NF-TILING-013",
        )
        for i, name in enumerate(without) if name not in names
    ]
    if len(faults) > 1:
        raise RecipeError(faults)
    if faults:
        raise faults[0]
