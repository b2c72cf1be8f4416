"""Applies the rules to a fixed point, order by order, and keeps what they refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from npuflow.base.errors import InternalError
from npuflow.ir.graph import Graph, merge_consts, prune
from npuflow.ir.loops import contiguous, has_loops, own_beginnings
from npuflow.ir.op import OPS, Node
from npuflow.ir.order import in_order
from npuflow.ir.queries import kind
from npuflow.ir.types import Value
from npuflow.ir.unroll import written_out
from npuflow.ir.verify import verify
from npuflow.place.place import op_name
from npuflow.rewrite.working import WorkingGraph
from npuflow.rules import RULES, Change, Hardware, Refusal, Rule
from npuflow.rules import Applied as Applied

_ROUNDS, _CHANGES = 10_000, 10        # changes of any network, and of each of its nodes, that may be needed
Named = tuple[str, str]


@dataclass(frozen=True)
class Rewritten:
    """The graph at the fixed point, what led there, and what was left alone with the reason."""

    graph: Graph
    applied: tuple[Applied, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@dataclass
class _Run:
    """One run of the rules: what was changed and refused so far, and after how many changes it stops.
    `rounds`: changes after which a pair of rules must be undoing each other; `kept`: constants that stay."""

    careful: bool
    most: int | None
    rounds: int = _ROUNDS
    kept: frozenset[str] = frozenset()
    working: WorkingGraph | None = None
    applied: list[Applied] = field(default_factory=list)
    refusals: dict[Refusal, None] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        return len(self.applied) == self.most

    def made(self, graph: Graph, change: Change) -> tuple[Graph, tuple[Node, ...]]:
        """The graph with the change, and the nodes that nothing reads any more without what it removed."""
        if self.working is not None and self.working.graph is graph:
            dead = self.working.changed(change)
            if dead is not None:
                return self.working.graph, dead
        after = apply(graph, change)
        dead = _dead(graph, after, change)
        self.working = WorkingGraph(after)
        return self.working.graph, dead


def rewrite(
    graph: Graph,
    names: Iterable[str] | None = None,
    *,
    careful: bool = False,
    most: int | None = None,
    hardware: Hardware = Rule.hardware,
    loops: bool = True,
    kept: Iterable[str] = (),
) -> Rewritten:
    """Run the named rules (default: all of them). `careful` verifies the graph after every change; `most`:
    stop after so many changes (they are the same in every run); `hardware`: the target's, for rules that ask;
    `loops`: they stay, and are not written out; `kept`: constants that no rule puts another in the place of.
    """
    named = RULES.names() if names is None else names
    rules = sorted(((name, usable(name, hardware)) for name in named), key=lambda p: p[0])
    chosen = [(name, rule) for name, rule in rules if rule is not None]
    run = _Run(careful, most, max(_ROUNDS, _CHANGES * len(graph.nodes)), frozenset(kept))
    graph = _in_order(graph, chosen, run)
    if not loops and has_loops(graph):
        graph = _in_order(written_out(graph), chosen, run)
    graph = own_beginnings(contiguous(prune(graph) if run.applied else graph))
    standing = tuple(_standing(graph, run.applied, run.refusals))
    return Rewritten(_explained(verify(graph, "the rewrites"), standing), tuple(run.applied), standing)


def _in_order(graph: Graph, chosen: Sequence[tuple[str, Rule]], run: _Run) -> Graph:
    """The fixed point of all rules, those of a lower order first."""
    orders = sorted({rule.order for _, rule in chosen})
    while not run.stopped:
        before = len(run.applied)
        for order in orders:
            graph = _fixed_point(graph, [p for p in chosen if p[1].order == order], run)
            if run.stopped or (order != orders[0] and len(run.applied) > before):
                break
        else:
            if len(run.applied) == before or len(orders) == 1:
                break
    return graph


def _explained(graph: Graph, refusals: Iterable[Refusal]) -> Graph:
    """Nodes kept for the host say why the rule that would have spelled them in other
    operators left them alone."""
    said = {
        (kind_, r.node): r.reason
        for r in refusals
        for kind_ in RULES[r.rule].triggers
        if kind_.startswith("host:")
    }
    nodes = tuple(
        replace(n, op=n.op.with_(reason=said[kind(n), n.name])) if (kind(n), n.name) in said else n
        for n in graph.nodes
    )
    return graph.replaced(nodes=nodes)


def usable(name: str, hardware: Hardware) -> Rule | None:
    """The rule, unless an operator it introduces is not there."""
    rule: Rule = RULES[name]()
    rule.hardware = hardware
    return rule if all(m in OPS for m in rule.makes) else None


def _fixed_point(graph: Graph, rules: Sequence[tuple[str, Rule]], run: _Run) -> Graph:
    applied, before = run.applied, -1
    while before != len(applied):
        before, index = len(applied), 0
        while index < len(graph.nodes) and not run.stopped:
            node = graph.nodes[index]
            made = next(
                ((n, c) for n, r in rules if (c := _change(graph, node, (n, r), run)) is not None), None
            )
            if made is None:
                index += 1
                continue
            graph, dead = run.made(graph, made[1])
            if run.careful:
                verify(graph, made[0])
            applied.append(
                Applied(made[0], node.name, _named((*made[1].remove, *dead)), _named(made[1].nodes))
            )
            index = max(0, index - 1)
            if len(applied) > run.rounds:
                tail = ", ".join(f"{a.rule} at {a.node}" for a in applied[-4:])
                raise InternalError(
                    "the rewrite rules do not terminate",
                    because=f"the last were {tail}", code="NF-INTERNAL-015",
                )
    return graph


def _dead(before: Graph, after: Graph, change: Change) -> tuple[Node, ...]:
    """The nodes that nothing reads any more without what the change removed."""
    there = {o for n in after.nodes for o in n.outputs} | {new for _, new in change.alias}
    taken = {node.outputs for node in change.remove}
    return tuple(
        n for n in before.nodes if n.outputs not in taken and not any(o in there for o in n.outputs)
    )


def _named(nodes: Iterable[Node]) -> tuple[Named, ...]:
    return tuple((op_name(node), node.name) for node in nodes)


def _change(graph: Graph, node: Node, named: tuple[str, Rule], run: _Run) -> Change | None:
    name, rule = named
    result = rule.rewrite(graph, node) if _triggers(rule, node) else None
    if isinstance(result, Change) and (lost := _lost(graph, result, run.kept)):
        result = Refusal(name, node.name, f"the model states the codes of {lost[0]}, which would change")
    if isinstance(result, Refusal):
        run.refusals[result] = None
    return result if isinstance(result, Change) else None


def _lost(graph: Graph, change: Change, kept: frozenset[str]) -> list[str]:
    """Constants of `kept` that nothing reads any more after the change."""
    read = {i for node in change.remove for i in node.inputs if i in kept}
    if not read:
        return []
    gone = {node.outputs for node in change.remove}
    others = (*(node for node in graph.nodes if node.outputs not in gone), *change.nodes)
    return sorted(read - {i for node in others for i in node.inputs})


def _triggers(rule: Rule, node: Node) -> bool:
    return not rule.triggers or (kind(node) in rule.triggers and node.op.respelled())


def _standing(graph: Graph, applied: Sequence[Applied], refusals: Iterable[Refusal]) -> Iterable[Refusal]:
    """Refusals that were not overcome later, of nodes that something of the final graph still comes from."""
    done = {(a.rule, a.node) for a in applied}
    alive = {o for n in graph.nodes for o in (*n.origin, n.name)}
    last = {(r.rule, r.node): r for r in refusals}
    return (r for key, r in last.items() if key not in done and r.node in alive)


def apply(graph: Graph, change: Change) -> Graph:
    """The graph with the change made, dead nodes gone, nodes in an order that runs."""
    gone = {node.outputs for node in change.remove}
    last = max(i for i, node in enumerate(graph.nodes) if node.outputs in gone)
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        if node.outputs not in gone:
            nodes.append(node)
        if index == last:
            nodes.extend(change.nodes)
    values = dict(graph.values)
    for value in change.values:
        values[value.id] = value
    consts = merge_consts(graph.consts, change.consts)
    graph = replace(graph, nodes=tuple(nodes), values=MappingProxyType(values), consts=consts)
    for old, new in change.alias:
        graph = _redirected(graph, old, new)
    return prune(replace(graph, nodes=_ordered(graph)))


def _redirected(graph: Graph, old: str, new: str) -> Graph:
    """Every use of `old` becomes `new`; where the caller reads `old`, that name stays
    with the producer of `new`."""
    if old not in graph.outputs:
        return _renamed(graph, {old: new})
    made = {o for n in graph.nodes for o in n.outputs}
    if new in made and new not in graph.outputs:
        values = dict(graph.values)
        values[old] = replace(values[new], id=old)
        return _renamed(replace(graph, values=MappingProxyType(values)), {new: old}, outputs=True)
    kind_ = graph.type(new)
    entry = (
        OPS["reshape"](kind_.shape) if kind_.is_static else OPS["host"]("Identity", "", 14, types=(kind_,))
    )
    node = Node(entry, (new,), (old,), (old,))
    values = dict(graph.values)
    values[old] = Value(old, values[new].type)
    return replace(graph, nodes=(*graph.nodes, node), values=MappingProxyType(values))


def _renamed(graph: Graph, names: Mapping[str, str], outputs: bool = False) -> Graph:
    nodes = []
    for node in graph.nodes:
        inputs = tuple(names.get(i, i) for i in node.inputs)
        results = tuple(names.get(o, o) for o in node.outputs) if outputs else node.outputs
        nodes.append(
            node
            if (inputs, results) == (node.inputs, node.outputs)
            else replace(node, inputs=inputs, outputs=results)
        )
    return replace(graph, nodes=tuple(nodes))


def _ordered(graph: Graph) -> tuple[Node, ...]:
    """The nodes in topological order, as they are where that is one already."""
    known = {"", *graph.inputs, *(v.id for v in graph.values.values() if v.const is not None)}
    order, rest = in_order(graph.nodes, known, lambda node: node.inputs, lambda node: node.outputs)
    if rest:
        raise InternalError(
            "a rewrite made a cycle or lost a value", because=rest[0].name, code="NF-INTERNAL-016",
        )
    return tuple(order)


