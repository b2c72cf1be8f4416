"""Names of layers as recipes write them, and faults for those that name nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Protocol

from npuflow.base.errors import NpuflowError, RecipeError, Where, nearest
from npuflow.engine.place import op_name
from npuflow.ir.graph import Graph, Node


def names_of(node: Node) -> tuple[str, ...]:
    """The source model's names of a node, and those of the values that it writes."""
    return (*node.origin, *(o for o in node.outputs if o))


def answers(patterns: Iterable[str], names: Iterable[str], op: str) -> bool:
    """Whether a layer is meant: by a name, its operator, or a pattern of names."""
    known = tuple(names)
    return any(p == op or any(p == n or fnmatchcase(n, p) for n in known) for p in patterns)


class Naming(Protocol):
    """A table of the recipe that names layers."""

    @property
    def layers(self) -> tuple[str, ...]: ...


def stated(key: str, tables: Sequence[Naming]) -> list[tuple[str, tuple[str, ...]]]:
    """The names in an array of tables, by the recipe key of each."""
    return [(f"{key}[{i}].layers", table.layers) for i, table in enumerate(tables)]


def unknown_layers(graph: Graph, stated: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Every name or pattern that nothing in the graph answers to, as one error; `stated`: recipe keys and their names."""
    faults = list(name_faults(graph, stated))
    if faults:
        raise RecipeError(faults)


def name_faults(graph: Graph, stated: Iterable[tuple[str, Iterable[str]]]) -> Iterator[NpuflowError]:
    """A fault for every name or pattern that nothing in the graph answers to."""
    layers = [(names_of(node), op_name(node)) for node in graph.nodes] + [((value,), "input") for value in graph.inputs]
    sources = [(names[: len(node.origin) or 1], op) for node, (names, op) in zip(graph.nodes, layers, strict=False)]
    allowed = tuple(dict.fromkeys(name for names, op in sources for name in (*names, op)))
    for key, patterns in stated:
        for pattern in patterns:
            if not any(answers((pattern,), names, op) for names, op in layers):
                what = "no layer matches" if any(c in pattern for c in "*?[") else "no layer is called"
                yield RecipeError(f'{what} "{pattern}"', where=Where(key=key), hint=_alike(pattern, allowed))


def _alike(pattern: str, allowed: Sequence[str]) -> str:
    """The nearest name, else the three that are least unlike."""
    close = nearest(pattern, allowed)
    plain = pattern.strip("*?")
    rough = [close] if close else get_close_matches(plain, allowed, n=3, cutoff=0.0)
    return " or ".join(f'"{name}"' for name in rough)
