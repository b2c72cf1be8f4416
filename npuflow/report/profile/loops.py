"""What loops of a program take, in all and by iteration; and its layers, those of loops over all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from npuflow.program.loop_steps import LoopStep, LoopSteps
from npuflow.report.profile.measure import Profile, Row

Level = tuple[str, ...]                   # a loop by its name, behind those of the loops around it


@dataclass
class _Spent:
    """Cycles of the critical path by iteration, and what commands do."""

    steps: tuple[int, ...]
    cycles: dict[tuple[int, ...], float] = field(default_factory=dict)
    commands: int = 0
    busy: dict[str, float] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)


def steps_of(found: Profile) -> list[tuple[LoopStep, ...]]:
    """By command, in the order's sequence, the steps that it runs for."""
    known = LoopSteps(found.program)
    if not known.rows:
        return [()] * len(found.order.sequence)
    return [known.of(core, index) for core, index in found.order.sequence]


def short(of: Sequence[LoopStep]) -> str:
    """The steps of a command for a table."""
    return ", ".join(f"{one.loop} {one.step}" for one in of)


def loops(found: Profile) -> list[Row]:
    """A row for each loop, inner ones behind their outer one. `cycles`: of the critical path, those of inner
    loops among them; `each`, `least`, `most`: of an iteration."""
    if not found.program.meta.get("loops"):
        return []
    levels, steps = dict[Level, _Spent](), steps_of(found)
    for i, of in enumerate(steps):
        kind, took = found.kinds[i], float(found.timeline.end[i] - found.timeline.start[i])
        for level, spent in _levels(levels, of):
            spent.commands += 1
            spent.busy[kind] = spent.busy.get(kind, 0.0) + took
            spent.moved[kind] = spent.moved.get(kind, 0.0) + float(found.timeline.moved[i])
            spent.cycles.setdefault(tuple(one.step for one in of[: len(level)]), 0.0)
    for part in found.path:
        of = steps[part["command"]]
        for level, spent in _levels(levels, of):
            spent.cycles[tuple(one.step for one in of[: len(level)])] += part["cycles"]
    return [_row(level, levels[level], found.cycles) for level in _ordered(levels)]


def _levels(levels: dict[Level, _Spent], of: Sequence[LoopStep]) -> Iterator[tuple[Level, _Spent]]:
    for depth in range(1, len(of) + 1):
        level = tuple(one.loop for one in of[:depth])
        if level not in levels:
            levels[level] = _Spent(tuple(one.steps for one in of[:depth]))
        yield level, levels[level]


def _ordered(levels: dict[Level, _Spent]) -> Iterator[Level]:
    """Inner loops behind their outer one, else in the order in which they begin."""
    for outer in (level for level in levels if len(level) == 1):
        yield outer
        yield from (level for level in levels if len(level) > 1 and level[:1] == outer)


def _row(level: Level, spent: _Spent, whole: float) -> Row:
    each, cycles = list(spent.cycles.values()), sum(spent.cycles.values())
    return {
        "loop": level[-1], "in": level[-2] if len(level) > 1 else "", "steps": spent.steps[-1],
        "times": prod(spent.steps[:-1]), "iterations": len(each), "cycles": cycles,
        "share": cycles / whole if whole else 0.0, "each": cycles / max(1, len(each)),
        "least": min(each, default=0.0), "most": max(each, default=0.0), "commands": spent.commands,
        **{name: spent.busy.get(name.upper(), 0.0) for name in ("tensor", "vector", "load", "store")},
        **{f"{name}_bytes": spent.moved.get(name.upper(), 0.0) for name in ("load", "store")},
    }


def layers(found: Profile) -> list[Row]:
    """A row for each layer: one in a loop once, with what all steps take. `loop`: the loops that it is in."""
    known, together = LoopSteps(found.program), dict[int, list[int]]()
    for row in found.operators():
        (node,) = row["nodes"]
        together.setdefault(known.layers.get(node, node), []).append(node)
    return [
        {**found.layer(nodes), "loop": " > ".join(known.around(nodes[0]))} for nodes in together.values()
    ]


def text(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each loop, by its row."""
    for row in rows:
        inner = row["in"] != ""
        times = f"{row['times']} times " if inner else ""
        yield (
            f"{'  ' * inner}{'inner ' * inner}loop \"{row['loop']}\": {times}{row['steps']} iterations, "
            f"{row['cycles']:,.0f} cycles ({row['share']:.1%}), {row['each']:,.1f} an iteration "
            f"({row['least']:,.0f} to {row['most']:,.0f}), {row['commands']:,} commands"
        )
