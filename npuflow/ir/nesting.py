"""Which nodes stand in the body of which loop, and which loop stands in another one.

A loop stands in the body of another one where what enters it is a value of that body. What it gives then is
of that body, too. Loops are nested once: see `ir/loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from npuflow.ir.borders import LEAVES, border
from npuflow.ir.op import Node

DEEPEST = 2                               # loops around a node


def inside(nodes: Sequence[Node]) -> dict[int, str]:
    """The nodes of loops, borders included, by position: the name of the innermost loop."""
    return standing(nodes)[0]


def standing(nodes: Sequence[Node]) -> tuple[dict[int, str], dict[str, str], dict[str, str]]:
    """Of nodes, by position, the loop in which they stand, or whose border they are; of values of bodies the
    innermost loop; of loops in the body of another one that loop."""
    around: dict[str, str] = {}
    while True:
        found: dict[int, str] = {}
        within: dict[str, str] = {}       # values of bodies
        before = len(around)
        for i, node in enumerate(nodes):
            side, own = border(node)
            bodies = (within[v] for v in node.inputs if v in within)
            name = own.loop if side else next(bodies, "")
            if not name:
                continue
            found[i] = name
            if side and side not in LEAVES:
                other = next((body for body in bodies if body != name), "")
                if other:
                    around.setdefault(name, other)
            home = around.get(name, "") if side in LEAVES else name
            if home:
                within.update(dict.fromkeys((o for o in node.outputs if o), home))
        # what a loop gives is of the body around it, which may be known behind its last border only
        if len(around) == before:
            return found, within, around


def chains(nodes: Sequence[Node]) -> dict[int, tuple[str, ...]]:
    """The nodes of loops, by position: the names of the loops around each, the outer one first."""
    names, _, around = standing(nodes)
    return {i: tuple(outward(name, around))[::-1] for i, name in names.items()}


def where_in_loops(chain: Sequence[str]) -> dict[str, str]:
    """In which loop a node stands, and in which loop in that one, for pages and listings."""
    return dict(zip(("loop", "inner"), chain, strict=False))


def outward(name: str, around: Mapping[str, str]) -> Iterator[str]:
    """A loop, and those around it; no more than a malformed graph has."""
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        yield name
        name = around.get(name, "")


def depth_faults(around: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with loops in each other, in words."""
    for name in around:
        names = list(outward(name, around))
        if len(names) > DEEPEST or around.get(names[-1], ""):
            chain = ", which stands in ".join(f'"{one}"' for one in names[1:])
            yield f'the loop "{name}" stands in {chain}: a loop may stand in one other loop'
