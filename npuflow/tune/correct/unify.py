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
from functools import partial

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.scales import activation_inputs
from npuflow.tune.correct.groups import Probe
from npuflow.tune.improve import CLOSER, Acceptance, Proposal, Trial, improve, in_all

Range = tuple[float, float]


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
    pairs: Sequence[tuple[Node, tuple[str, ...]]], start: Candidate, error: Callable[[Candidate], float],
    rule: Acceptance = CLOSER,
) -> Unified:
    """Give each node's operands one range, where `rule` takes it for what it does to the `error`."""
    tried: list[list[tuple[str, ...]]] = []

    def shared(
        name: str, group: Sequence[tuple[str, ...]], now: Candidate
    ) -> Proposal[Candidate] | Sequence[Trial]:
        ranges, factor, given = dict(now.ranges), 0.0, []
        for ids in group:
            hull = union(ranges, ids)
            narrowest = min(ranges[v][1] - ranges[v][0] for v in ids)
            if all(ranges[v] == hull for v in ids) or narrowest <= 0:
                continue
            ranges.update(dict.fromkeys(ids, hull))
            factor = max(factor, (hull[1] - hull[0]) / narrowest)
            given.append(ids)
        if not given:
            return ()
        tried.append(given)
        return Proposal("unify", now.with_(ranges=ranges), name, factor, rule=rule)

    _, trials = improve(start, (partial(shared, *one) for one in together(pairs)), error)
    kept = (given for given, trial in zip(tried, trials, strict=True) if trial.kept)
    return Unified(tuple(ids for given in kept for ids in given), in_all(trials))


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
