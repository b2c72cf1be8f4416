"""The rewrite contract: pattern, check, rewrite. A rule refuses with a reason, which is kept as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.base.registry import Registry
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array, Value

RULES = Registry("rules", "npuflow.rules")


@dataclass(frozen=True)
class Refusal:
    """Why a rule that matched a node left it alone."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True)
class Change:
    """Nodes `remove`d (by first output id) and the `nodes` put in their place (at the last removed one's
    position); `values` and `consts` are added or replace same-named ones; `alias` redirects uses of a
    removed output to another value.
    """

    remove: tuple[Node, ...]
    nodes: tuple[Node, ...] = ()
    values: tuple[Value, ...] = ()
    consts: tuple[tuple[str, Array], ...] = ()
    alias: tuple[tuple[str, str], ...] = ()


class Rule:
    """One graph rewrite. `order`: rules with a lower number reach their fixed point first. `triggers`:
    operator file names (OPS names) at which `rewrite` is tried; `makes`: operators the rule may
    introduce (they enter cache keys)."""

    order: ClassVar[int] = 50
    triggers: ClassVar[tuple[str, ...]] = ()
    makes: ClassVar[tuple[str, ...]] = ()

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        """The change at `node`, a refusal when the pattern is there but the check fails,
        None when it does not match."""
        raise NotImplementedError
