"""One QuantType per activation: ranges from thresholds, fixed functions and constants;
operators that share a scale joined.

The input of a table function needs no codes where the function's own output code stands still: its range is
trimmed to the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import every_loop, has_loops
from npuflow.ir.op import Node
from npuflow.ir.types import INDEX_BITS, QuantType, span
from npuflow.ir.whole import code_type, constant_span, spans_of, whole_span
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.compared import compared
from npuflow.quantise.config import Activations, Quantize, activation_grid
from npuflow.quantise.trimmed import trimmed
from npuflow.quantise.types import activation_type, in_whole_steps

Range = tuple[float, float]


def narrower(
    graph: Graph,
    chosen: Sequence[Node],
    spans: Mapping[str, Range],
    types: Mapping[str, QuantType],
    alone: Collection[str],
) -> dict[str, Range]:
    """Smaller ranges for values that only table functions read. `alone`: values that
    share their scale with no other."""
    consumers, mine = graph.consumers(), {n.outputs for n in chosen}
    found: dict[str, Range] = {}
    for value_id in spans:
        readers = consumers.get(value_id, [])
        tables = [n for n in readers if n.op.unary and n.outputs in mine]
        if not readers or len(tables) < len(readers) or value_id not in alone or value_id in graph.outputs:
            continue
        parts = [trimmed(n.op, spans[value_id], types[n.outputs[0]]) for n in tables]
        found[value_id] = min(p[0] for p in parts), max(p[1] for p in parts)
    # A table whose output is itself narrowed gets finer output codes than were looked
    # at here: it keeps its range.
    return {v: r for v, r in found.items() if not any(n.outputs[0] in found for n in consumers[v])}


MANY = 8                                  # nodes that share a weight and are steps of one layer


@dataclass
class ScaleGroups:
    """Sets of values that must have one scale (union-find). `stated`: the type that a
    set must have, by its root."""

    parent: dict[str, str] = field(default_factory=dict)
    stated: dict[str, QuantType] = field(default_factory=dict)

    def find(self, value_id: str) -> str:
        root = value_id
        while self.parent.get(root, root) != root:
            root = self.parent[root]
        while self.parent.get(value_id, value_id) != root:
            self.parent[value_id], value_id = root, self.parent[value_id]
        return root

    def join(self, ids: Sequence[str]) -> None:
        """One set of them all, but for those whose stated types differ: the
        quantiser requantises between these."""
        for other in ids[1:]:
            a, b = self.find(ids[0]), self.find(other)
            mine, theirs = self.stated.get(a), self.stated.get(b)
            if a == b or (mine is not None and theirs is not None and mine != theirs):
                continue
            self.parent[b] = a
            if mine is None and theirs is not None:
                self.stated[a] = theirs


def activation_inputs(graph: Graph, node: Node) -> list[tuple[int, str]]:
    """Positions and ids of the inputs that carry activations: constants in an activation's place, and weights
    that are computed, included."""
    found: list[tuple[int, str]] = []
    if node.op.retypes:                   # whatever type its operand has
        return found
    for i, value_id in enumerate(node.inputs):
        if not value_id or graph.type(value_id).dtype != "float32":
            continue
        role = node.op.role(i)
        if role == "activation" or (role in ("weight", "table") and graph.const(value_id) is None):
            found.append((i, value_id))
    return found


def passed_on(graph: Graph, node: Node) -> list[str]:
    """The activations whose codes become codes of the first result as they are."""
    own = activation_inputs(graph, node)
    return [v for i, v in own if node.op.shares_scale or node.op.role(i) == "table"]


def one_type(graph: Graph, node: Node, whole: Container[str]) -> list[str]:
    """The values of a node whose codes pass through it as they are, and so have one type. Not those in
    `whole` beside others: whole numbers are their own codes, and others of that type would be rounded to
    whole ones. So are positions beside the values that stand there."""
    read = passed_on(graph, node)
    made = [o for o in node.outputs if o and graph.type(o).dtype == "float32"] if read else []
    real = [v for v in (*read, *made) if v not in whole]
    return real or [*read, *made]


def activation_types(
    graph: Graph, chosen: Sequence[Node], ranges: Mapping[str, Range], config: Quantize, numerics: Numerics,
    fixed: Mapping[str, QuantType] = MappingProxyType({}),
) -> dict[str, QuantType]:
    """QuantType of every value that the chosen (NPU) nodes read or write as
    activation; shared-scale sets have one.
    `fixed`: types that are stated and stay."""
    whole = whole_types(graph, chosen)
    fixed = {**fixed, **whole}
    groups, (bits, stated) = ScaleGroups(stated=dict(fixed)), _widths(graph, chosen, config)
    spans: dict[str, Range] = {value_id: span(quant) for value_id, quant in whole.items()}
    for node in chosen:
        ids = [value_id for _, value_id in activation_inputs(graph, node)]
        known = node.op.output_range(graph.site(node))
        for value_id in ids:
            if value_id not in spans:
                spans[value_id] = _span(graph, value_id, ranges, fixed)
        for value_id in node.outputs:
            if value_id:
                spans[value_id] = known if known is not None else _span(graph, value_id, ranges, fixed)
        groups.join(one_type(graph, node, whole))
    spans.update(_flags(graph, chosen, spans))
    join_recurrent(groups, graph, chosen, spans)
    schemes = _schemes(groups, spans, chosen, config)
    widest: dict[str, tuple[bool, int]] = {}
    for value_id in spans:
        # An exception of the recipe counts for its whole set; among equals the wider wins.
        root = groups.find(value_id)
        width = bits.get(value_id, config.activations.bits)
        widest[root] = max(widest.get(root, (False, 0)), (value_id in stated, width))
    widths = {root: width for root, (_, width) in widest.items()}
    types = _whole_steps(groups, chosen, _types(groups, spans, widths, schemes, numerics))
    if not config.trim:
        return types
    members = Counter(groups.find(v) for v in spans)
    alone = {v for v in spans if members[groups.find(v)] == 1 and v not in fixed}
    spans.update(narrower(graph, chosen, spans, types, alone))
    types = _whole_steps(groups, chosen, _types(groups, spans, widths, schemes, numerics))
    return {**types, **compared(graph, chosen, types, alone, numerics)}


def _whole_steps(
    groups: ScaleGroups, chosen: Sequence[Node], types: dict[str, QuantType]
) -> dict[str, QuantType]:
    """The same types with scales of one over a whole number where an operator computes with that number."""
    roots = {groups.find(n.outputs[0]) for n in chosen if n.op.whole_steps} - set(groups.stated)
    return {v: in_whole_steps(one) if groups.find(v) in roots else one for v, one in types.items()}


def _flags(graph: Graph, chosen: Sequence[Node], spans: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges of flags of 0 and 1, whatever samples had: those of full length have no step that is masked.
    Where steps are written out, of flags that the lengths of sequences look up, and of what these let pass,
    which in loops has the type of what is carried."""
    flags = {v for v, whole in spans_of(graph).items() if whole == (0, 1)}
    if graph.lengths or has_loops(graph):
        return {v: _hull(spans[v], (0.0, 1.0)) for v in sorted(flags) if v in spans}
    found, passed = dict[str, Range](), set[str]()
    for node in chosen:
        read, out = node.inputs, node.outputs[0]
        if out in flags and (node.op.role(0) == "table" or any(v in found for v in read)):
            found[out] = _hull(spans[out], (0.0, 1.0))
        elif node.op.algebra == "product" and any(v in found and v in flags for v in read):
            others = [found.get(v, spans[v]) for v in read if v not in flags]
            found[out] = _hull(spans[out], (0.0, 0.0), *others)
            passed.add(out)
        elif node.op.algebra == "sum" and passed.issuperset(read):
            found[out] = _hull(spans[out], *(found[v] for v in read))
    return found


def _hull(*spans: Range) -> Range:
    return min(lo for lo, _ in spans), max(hi for _, hi in spans)


def whole_types(graph: Graph, chosen: Sequence[Node]) -> dict[str, QuantType]:
    """The types of whole numbers that are their own codes: 16 bits, with a sign where that suffices.
    Operators state them, Casts make integers of them, and arithmetic between them gives more."""
    below: dict[str, int] = {}
    for node in chosen:
        for value_id, kept in node.op.whole_numbers(graph.site(node)).items():
            below[value_id] = max(kept.below, below.get(value_id, 0))
    half = 1 << (INDEX_BITS - 1)
    found = {value_id: QuantType(INDEX_BITS, most <= half, (1.0,)) for value_id, most in below.items()}
    counted = {n.inputs[0] for n in graph.nodes if _makes_integers(graph, n)}
    if not found and not counted:
        return found
    fitting = {v: code_type(s) for v, s in spans_of(graph).items()}
    own = {v: q for v, q in fitting.items() if q is not None and graph.type(v).dtype == "float32"}
    made = {o for node in chosen for o in node.outputs}
    found.update({v: own[v] for v in (*below, *(counted & made)) if v in own})
    before = -1
    while before != len(found):                  # to what reads them, and back to what they are made of
        before = len(found)
        for node in (*chosen, *reversed(chosen)):
            if node.op.moves_data:       # indices from outside have no span of their own, and are moved
                found.update(_moved(graph, node, found))
            if node.outputs[0] in own and node.outputs[0] not in node.op.whole_numbers(graph.site(node)):
                _joined(graph, node, own, found)
    return found


def _moved(graph: Graph, node: Node, found: Mapping[str, QuantType]) -> Mapping[str, QuantType]:
    """What an operator that only moves data adds to the types of whole numbers: of its operands by its
    result's, of its results by its operands' where these are whole numbers of one type."""
    read = passed_on(graph, node)
    if node.outputs[0] in found:
        return {v: found[node.outputs[0]] for v in read if v not in found}
    held = {v: constant_span(array) for v in read if (array := graph.const(v)) is not None}
    kinds = {found.get(v) for v in read if v not in held}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or any(s is None or s[0] < kind.lo or s[1] > kind.hi for s in held.values()):
        return {}
    return dict.fromkeys((v for v in (*held, *node.outputs) if v and v not in found), kind)


def _joined(graph: Graph, node: Node, own: Mapping[str, QuantType], found: dict[str, QuantType]) -> None:
    """The result of whole numbers, or what a whole result is made of. Not the positions that an operator
    gives, which it states itself."""
    read = [v for _, v in activation_inputs(graph, node)]
    if any(v in found for v in read if graph.const(v) is None):
        found.update({o: own[o] for o in node.outputs if o in own and o not in found})
    if node.outputs[0] in found:
        found.update({v: own[v] for v in read if v in own and v not in found})


def _makes_integers(graph: Graph, node: Node) -> bool:
    """Whether it is a Cast of floats to integers."""
    if not node.op.hosted or op_name(node) != "Cast":
        return False
    return graph.type(node.inputs[0]).dtype == "float32" and "int" in graph.type(node.outputs[0]).dtype


def join_recurrent(
    groups: ScaleGroups, graph: Graph, nodes: Sequence[Node], coded: Container[str]
) -> None:
    """A state has one type from run to run: its codes are kept as they are, and what is kept of it beside
    zeros has its type too. So has what a loop carries from step to step, and a value of a layer that is
    unrolled, in all steps: the steps then have equal constants, which stay in local memory."""
    carried = ((one.now, one.following) for loop in every_loop(graph) for one in loop.carried)
    for found in (*graph.state, *_kept(graph, nodes), *carried, *_steps(nodes)):
        known = [v for v in found if v in coded]
        if len(known) == len(found):
            groups.join(known)


def _kept(graph: Graph, nodes: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """A state, and its product with flags of 0 and 1: the entries of a cache that stay. Rounded to another
    scale and back, they would change with every run. So has what a loop carries behind a sequence's end."""
    held = {given for _, given in graph.state}
    held |= {one.now for loop in every_loop(graph) for one in loop.carried}
    for node in nodes:
        if node.op.algebra == "product" and len(node.inputs) == 2:
            for state, flags in (node.inputs, node.inputs[::-1]):
                if state in held and whole_span(graph, flags) == (0, 1):
                    yield state, node.outputs[0]


def _steps(nodes: Sequence[Node]) -> Iterator[tuple[str, ...]]:
    """Values of one place in many steps: inputs and results of nodes that share a weight, and results of
    equal nodes that read such values."""
    readers: dict[str, list[Node]] = {}
    sharing: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
        if len(node.inputs) > 1 and node.op.role(1) == "weight":
            sharing.setdefault((node.op, *node.inputs[1:]), []).append(node)
    waiting = [own for own in sharing.values() if len(own) >= MANY]
    seen: set[tuple[str, ...]] = set()
    for own in waiting:
        seen.update(n.outputs for n in own)
        yield tuple(dict.fromkeys(n.inputs[0] for n in own))
    while waiting:
        own = waiting.pop()
        for results in zip(*(n.outputs for n in own), strict=True):
            yield results
            read = [[n for n in readers.get(v, ()) if n.outputs not in seen] for v in results]
            by_op: dict[tuple[object, int], list[Node]] = {}
            for v, found in zip(results, read, strict=True):
                for n in found:
                    by_op.setdefault((n.op, n.inputs.index(v)), []).append(n)
            for alike in by_op.values():
                if len(alike) >= len(results) - 1 and len({n.outputs for n in alike}) == len(alike) >= MANY:
                    seen.update(n.outputs for n in alike)
                    waiting.append(alike)


def _types(
    groups: ScaleGroups,
    spans: Mapping[str, Range],
    bits: Mapping[str, int],
    schemes: Mapping[str, Activations],
    numerics: Numerics,
) -> dict[str, QuantType]:
    """`schemes`: of every set."""
    hulls: dict[str, Range] = {}
    for value_id, (lo, hi) in spans.items():
        root = groups.find(value_id)
        old = hulls.get(root, (lo, hi))
        hulls[root] = (min(lo, old[0]), max(hi, old[1]))
    made = {}
    for root, (lo, hi) in hulls.items():
        if root in groups.stated:
            made[root] = groups.stated[root]
            continue
        scheme = schemes[root]
        both = numerics.signed_activations and numerics.unsigned_activations and scheme.signed is None
        try:
            made[root] = activation_type(lo, hi, activation_grid(scheme, numerics, bits[root]), both)
        except TargetError as error:
            raise error.at(value=root) from None
    return {value_id: made[groups.find(value_id)] for value_id in spans}


def _schemes(
    groups: ScaleGroups, spans: Mapping[str, Range], chosen: Sequence[Node], config: Quantize
) -> dict[str, Activations]:
    """By set: the table's own, or that of the first layer that an exception speaks of and that writes one of
    them."""
    found: dict[str, Activations] = {}
    for node in chosen:
        scheme = config.activations_of(names_of(node), op_name(node)).with_(bits=config.activations.bits)
        for value_id in node.outputs:
            if value_id in spans and scheme != config.activations:
                found.setdefault(groups.find(value_id), scheme)
    return {groups.find(v): found.get(groups.find(v), config.activations) for v in spans}


def _widths(graph: Graph, chosen: Sequence[Node], config: Quantize) -> tuple[dict[str, int], set[str]]:
    """Bits per value: the producer's exception, else the widest that a consumer asks for, else the scheme's;
    and which values an exception speaks of."""
    made: dict[str, int] = {}
    asked: dict[str, int] = {}
    stated: set[str] = set()
    for node in chosen:
        rules = config.matching(names_of(node), op_name(node))
        for rule in rules:
            if rule.bits:
                made.update({o: rule.bits for o in node.outputs if o})
        wanted = [r.input_bits for r in rules if r.input_bits]
        for _, value_id in activation_inputs(graph, node):
            constant = graph.const(value_id) is not None
            default = (config.constants if constant else None) or config.activations.bits
            if wanted and value_id not in stated:
                asked[value_id] = 0
                stated.add(value_id)
            if wanted or value_id not in stated:
                asked[value_id] = max(asked.get(value_id, 0), wanted[-1] if wanted else default)
    outputs = {o: config.activations.bits for n in chosen for o in n.outputs if o}
    return {**outputs, **asked, **made}, stated | set(made)


def _span(graph: Graph, value_id: str, ranges: Mapping[str, Range], fixed: Mapping[str, QuantType]) -> Range:
    if value_id in fixed:
        return span(fixed[value_id])
    stored = graph.const(value_id)
    if stored is not None:
        real = np.asarray(stored, np.float64)
        return (float(real.min()), float(real.max())) if real.size else (0.0, 0.0)
    if value_id not in ranges:
        raise TargetError(
            "no threshold for this value", hint="are its statistics missing?", code="NF-QUANT-003",
        ).at(value=value_id)
    return ranges[value_id]
