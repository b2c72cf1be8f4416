"""Scale unification: what an addition reads gets one range, so that no operand is
rescaled; where that loses nothing.

Operators that cannot rescale (concat, pooling, reshape) share scales in any case; see
`quantize.scales`. Compilers for NPUs that cannot rescale an operand either do this to additions,
unasked. Here it is tried one operator after the other; additions that one layer of the model was
written out to, the steps of an LSTM, are tried at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.quantise.scales import activation_inputs
from npuflow.run.walk import Feed
from npuflow.tune.correct.error import output_error, outputs_of
from npuflow.tune.correct.groups import Probe
from npuflow.tune.correct.trial import NETWORK, Trial

Range = tuple[float, float]
Made = Callable[[Mapping[str, Range]], Graph]
"""The quantised graph for some ranges."""


@dataclass(frozen=True)
class Unified:
    """The values that share a range now, set by set, and what was tried."""

    sets: tuple[tuple[str, ...], ...]
    trials: tuple[Trial, ...]


def partners(
    graph: Graph, on_npu: Callable[[int], bool], free: Mapping[str, Range]
) -> list[tuple[Node, tuple[str, ...]]]:
    """Nodes that add or compare several activations, and these; only values in
    `free`, whose ranges may change."""
    probe, found = Probe(graph), []
    for i, node in enumerate(graph.nodes):
        ids = tuple(dict.fromkeys(v for _, v in activation_inputs(graph, node) if graph.const(v) is None))
        if (
            on_npu(i)
            and len(ids) > 1
            and not node.op.shares_scale
            and all(v in free for v in ids)
            and probe.homogeneous(node)
        ):
            found.append((node, ids))
    return found


def unify(
    pairs: Sequence[tuple[Node, tuple[str, ...]]], ranges: Mapping[str, Range], made: Made,
    truth: Sequence[Sequence[object]], held: Sequence[Feed], judge: bool = True,
) -> Unified:
    """Give each node's operands one range, if the network's outputs come closer to `truth`
    (or unasked, unless `judge`)."""
    sets: list[tuple[str, ...]] = []
    reported: list[Trial] = []
    start = known = _error(made(ranges), truth, held)
    for name, group in together(pairs):
        changed, factor, given = dict(ranges), 0.0, []
        for ids in group:
            hull = union(changed, ids)
            narrowest = min(changed[v][1] - changed[v][0] for v in ids)
            if all(changed[v] == hull for v in ids) or narrowest <= 0:
                continue
            changed.update(dict.fromkeys(ids, hull))
            factor = max(factor, (hull[1] - hull[0]) / narrowest)
            given.append(ids)
        if not given:
            continue
        after = _error(made(changed), truth, held)
        kept = after < known or not judge
        reported.append(Trial("unify", name, known, after, kept, factor))
        if kept:
            ranges, known = changed, after
            sets += given
    if not reported:
        return Unified((), ())
    return Unified(tuple(sets), (*reported, Trial("unify", NETWORK, start, known, bool(sets))))


def together(
    pairs: Sequence[tuple[Node, tuple[str, ...]]],
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """What is tried at once, with its name: additions of one operator of the model."""
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for node, ids in pairs:
        groups.setdefault(node.origin or (node.name,), []).append(ids)
    return [(key[0], group) for key, group in groups.items()]


def union(ranges: Mapping[str, Range], ids: Sequence[str]) -> Range:
    return min(ranges[v][0] for v in ids), max(ranges[v][1] for v in ids)


def _error(graph: Graph, truth: Sequence[Sequence[object]], held: Sequence[Feed]) -> float:
    return output_error(truth, outputs_of(graph, held))  # type: ignore[arg-type]
