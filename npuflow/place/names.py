"""Names of layers as recipes write them, and faults for those that name nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache
from typing import Protocol, Self

from npuflow.base.errors import NpuflowError, RecipeError, Where, nearest
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.place.place import op_name
from npuflow.rules import Applied


def names_of(node: Node) -> tuple[str, ...]:
    """The source model's names of a node, and those of the values that it writes."""
    return (*node.origin, *(o for o in node.outputs if o))


@dataclass(frozen=True)
class LayerPatterns:
    """Names, operators and patterns of names, ready to be looked up: searches name thousands of layers."""

    exact: frozenset[str]
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, patterns: Collection[str]) -> Self:
        wild = [p for p in patterns if is_pattern(p)]
        return cls(frozenset(patterns), re.compile("|".join(map(translate, wild))) if wild else None)

    def answer(self, names: Iterable[str], op: str) -> bool:
        """Whether a layer is meant: by a name, its operator, or a pattern of names."""
        if op in self.exact:
            return True
        known = tuple(names)
        return not self.exact.isdisjoint(known) or (
            self.pattern is not None and any(self.pattern.match(name) for name in known)
        )


def is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")


_patterns = lru_cache(maxsize=256)(LayerPatterns.of)


def answers(patterns: Iterable[str], names: Iterable[str], op: str) -> bool:
    """Whether a layer is meant: by a name, its operator, or a pattern of names."""
    return _patterns(tuple(patterns)).answer(names, op)


class Naming(Protocol):
    """A table of the recipe that names layers."""

    @property
    def layers(self) -> tuple[str, ...]: ...


def stated(key: str, tables: Sequence[Naming]) -> list[tuple[str, tuple[str, ...]]]:
    """The names in an array of tables, by the recipe key of each."""
    return [(f"{key}[{i}].layers", table.layers) for i, table in enumerate(tables)]


def unanswered(tables: Iterable[Naming], nodes: Iterable[Node]) -> Iterator[str]:
    """The names in tables to which none of these layers answers."""
    layers = [(names_of(node), op_name(node)) for node in nodes]
    for table in tables:
        meant = LayerPatterns.of(table.layers)
        if not any(meant.answer(names, op) for names, op in layers):
            yield ", ".join(table.layers)


def unknown_layers(
    graph: Graph, stated: Iterable[tuple[str, Iterable[str]]], history: Sequence[Applied] = ()
) -> None:
    """Every name or pattern that nothing in the graph answers to, as one error.

    `stated`: recipe keys and their names; `history`: the rewrites that led to the graph.
    """
    faults = list(name_faults(graph, stated, history))
    if faults:
        raise RecipeError(faults)


def name_faults(
    graph: Graph, stated: Iterable[tuple[str, Iterable[str]]], history: Sequence[Applied] = ()
) -> Iterator[NpuflowError]:
    """A fault for every name or pattern that nothing in the graph answers to."""
    layers = [(names_of(node), op_name(node)) for node in graph.nodes] + [
        ((value,), "input") for value in graph.inputs
    ]
    sources = [
        (names[: len(node.origin) or 1], op) for node, (names, op) in zip(graph.nodes, layers, strict=False)
    ]
    allowed = tuple(dict.fromkeys(name for names, op in sources for name in (*names, op)))
    known = {name for names, op in layers for name in (*names, op)}
    for key, patterns in stated:
        for pattern in patterns:
            if pattern in known or (
                is_pattern(pattern) and any(answers((pattern,), names, op) for names, op in layers)
            ):
                continue
            what = "no layer matches" if is_pattern(pattern) else "no layer is called"
            message, where = f'{what} "{pattern}"', Where(key=key)
            same = next((op for _, op in layers if op.lower() == pattern.lower()), "")
            because, now = _became(graph, pattern, history) if not same else ("", [])
            if same:
                because = "operator names are written as in `npuflow ops`"
                yield RecipeError(
                    message, where=where, because=because, hint=f'"{same}"', code="NF-RECIPE-023",
                )
            elif because:
                names = ", ".join(json.dumps(name, ensure_ascii=False) for name in now[:3])
                hint = f"layers = [{names}]" if now else ""
                yield RecipeError(message, where=where, because=because, hint=hint, code="NF-RECIPE-023")
            else:
                yield RecipeError(message, where=where, hint=_alike(pattern, allowed), code="NF-RECIPE-023")


def _became(graph: Graph, pattern: str, history: Sequence[Applied]) -> tuple[str, list[str]]:
    """What rewrites made of the nodes that a name or operator means, and the layers that stand for them now.
    """
    meant: dict[str, tuple[int, str]] = {}      # node -> the last change that removed it, and its operator
    for at, change in enumerate(history):
        for op, name in change.removed:
            if pattern.lower() == op.lower() or answers((pattern,), (name,), op):
                meant[name] = (at, op)
    if not meant:
        return "", []
    rules = dict.fromkeys(history[at].rule for at, _ in meant.values())
    first, (at, op) = next(iter(meant.items()))
    every = (_standing(graph, name, history, at) for name, (at, _) in meant.items())
    now = list(dict.fromkeys(layer for layers in every for layer in layers))
    mine = _standing(graph, first, history, at)
    kinds = {node.name: op_name(node) for node in graph.nodes}
    fate = f'is now part of {kinds[mine[0]]} "{mine[0]}"' if mine else "was removed"
    many = f"{len(meant)} such nodes" if len(meant) > 1 else f'{op} "{first}"'
    reported = f'{op} "{first}" {fate}' if len(meant) > 1 else f"it {fate}"
    return f"the rewrite{'s' if len(rules) > 1 else ''} {', '.join(rules)} replaced {many}: {reported}", now


def _standing(graph: Graph, name: str, history: Sequence[Applied], at: int) -> list[str]:
    """The nodes of the graph that a replaced one went into, followed from change to change."""
    alive = {one: node.name for node in graph.nodes for one in (node.name, *node.origin)}
    followed, seen = [name, *(made for _, made in history[at].made)], set[str]()
    found: dict[str, None] = {}
    while followed:
        one = followed.pop(0)
        if one in seen:
            continue
        seen.add(one)
        if one in alive:
            found[alive[one]] = None
            continue
        for change in history:
            if any(one == gone for _, gone in change.removed):
                followed += [made for _, made in change.made]
    return list(found)


def _alike(pattern: str, allowed: Sequence[str]) -> str:
    """The nearest name, else the three that are least unlike."""
    close = nearest(pattern, allowed)
    plain = pattern.strip("*?")
    rough = [close] if close else get_close_matches(plain, allowed, n=3, cutoff=0.0)
    return " or ".join(f'"{name}"' for name in rough)
