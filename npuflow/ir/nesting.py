"""Which loop each node and each value belongs to, and which loops are nested in which.

A loop is nested in another one where a value that enters it belongs to the other one's body. What it gives
belongs to that body, too. Loops are nested once: see `ir/loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from npuflow.ir.borders import LEAVES, border
from npuflow.ir.op import Node

MAX_DEPTH = 2                             # nested loops: an outer and an inner one


class LoopMembership(NamedTuple):
    """The innermost loop of nodes, by position, borders included; of values of bodies; and the outer loop of
    nested ones. Loops by name."""

    of_node: dict[int, str]
    of_value: dict[str, str]
    outer: dict[str, str]


def inside(nodes: Sequence[Node]) -> dict[int, str]:
    """The innermost loop of nodes, by position, borders included."""
    return membership(nodes).of_node


def membership(nodes: Sequence[Node]) -> LoopMembership:
    outer: dict[str, str] = {}
    while True:
        of_node: dict[int, str] = {}
        of_value: dict[str, str] = {}
        before = len(outer)
        for i, node in enumerate(nodes):
            side, own = border(node)
            bodies = (of_value[v] for v in node.inputs if v in of_value)
            name = own.loop if side else next(bodies, "")
            if not name:
                continue
            of_node[i] = name
            if side and side not in LEAVES:
                other = next((body for body in bodies if body != name), "")
                if other:
                    outer.setdefault(name, other)
            home = outer.get(name, "") if side in LEAVES else name
            if home:
                of_value.update(dict.fromkeys((o for o in node.outputs if o), home))
        # that a loop is nested may show at its last border only: its earlier results are assigned again
        if len(outer) == before:
            return LoopMembership(of_node, of_value, outer)


def enclosing_loops(nodes: Sequence[Node]) -> dict[int, tuple[str, ...]]:
    """The loops of nodes, by position, the outer one first."""
    found = membership(nodes)
    return {i: tuple(enclosing(name, found.outer))[::-1] for i, name in found.of_node.items()}


def loop_fields(names: Sequence[str]) -> dict[str, str]:
    """A node's outer and inner loop as fields of pages and listings."""
    return dict(zip(("loop", "inner"), names, strict=False))


def enclosing(name: str, outer: Mapping[str, str]) -> Iterator[str]:
    """A loop, and those that it is nested in; each once where a malformed graph has a cycle."""
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        yield name
        name = outer.get(name, "")


def depth_faults(outer: Mapping[str, str]) -> Iterator[str]:
    """Loops that are nested too deep, in words."""
    for name in outer:
        names = list(enclosing(name, outer))
        if len(names) > MAX_DEPTH or outer.get(names[-1], ""):
            chain = ", which is nested in ".join(f'"{one}"' for one in names[1:])
            yield f'the loop "{name}" is nested in {chain}: a loop may be nested in one other loop'
