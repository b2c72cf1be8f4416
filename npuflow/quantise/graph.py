"""The float graph with thresholds becomes the quantised graph: integer weights, fixed
multipliers, explicit boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph, constant, prune
from npuflow.ir.loops import contiguous
from npuflow.ir.op import OPS, Node, OpContext, Param
from npuflow.ir.overflow import Overflow
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType, Value, WholeNumbers, float_type
from npuflow.place.names import names_of, stated, unanswered, unknown_layers
from npuflow.place.place import op_name
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.candidate import Note as Note
from npuflow.quantise.candidate import Quantization as Quantization
from npuflow.quantise.config import Quantize, activation_grid
from npuflow.quantise.floats import constants, float_layers, operator
from npuflow.quantise.grouped import activations, by_multipliers, kept_groups, of_node, without_groups
from npuflow.quantise.indices import checked_rows
from npuflow.quantise.ports import bare, own_names
from npuflow.quantise.rounded import all_chosen, chosen, of_codes, recoded, replaced
from npuflow.quantise.scales import Range, activation_inputs, activation_types, whole_types
from npuflow.quantise.stated import as_narrow
from npuflow.quantise.trimmed import changing
from npuflow.quantise.types import activation_type
from npuflow.quantise.weights import coded_bias, coded_weight, sparse_type
from npuflow.quantise.wishes import check_scheme
from npuflow.rounders import RoundedWeight

# bits of an operand that is made narrower for the accumulator's sake
NARROWEST = 9


def build(candidate: Candidate) -> Quantization:
    """The quantised graph of a candidate. Nodes whose numbers do not fit go to the host, with a note, or
    raise a TargetError where the scheme says so."""
    config, numerics = candidate.scheme, candidate.numerics
    ports = bare(candidate.graph, config)
    graph, on_npu = ports.graph, ports.placed(candidate.placed.on_npu)
    own = candidate.with_(graph=graph, stated=ports.renamed(candidate.stated))
    notes: dict[int, Note] = {}
    check_scheme(config, numerics)
    unknown_layers(graph, stated("quantize.overrides", config.overrides))
    ranges, (fixed, lacking) = own.spans(ports.renamed(candidate.ranges)), own.codes
    others = (Note(name, f"other codes than stated: {why}", on_host=False) for name, why in lacking.items())
    why = "[[quantize.overrides]]: only layers of the host have such a name"
    idle = unanswered(config.overrides, [n for i, n in enumerate(graph.nodes) if on_npu(i)])
    unused = (*(Note(name, why, on_host=False) for name in idle), *others)
    for i, node in enumerate(graph.nodes):
        if on_npu(i) and any(rule.float for rule in config.matching(names_of(node), op_name(node))):
            notes[i] = Note(node.name, "left in float by the recipe")
    numbers, unable = float_layers(graph, on_npu, config, candidate.room, candidate.caches)
    notes.update({i: Note(graph.nodes[i].name, reason) for i, reason in unable.items()})
    refused: dict[str, str] = {}
    while True:
        chosen = [i for i in range(len(graph.nodes)) if on_npu(i) and i not in notes]
        if notes:
            lost = candidate.stranded(graph, chosen)
            notes.update({i: Note(graph.nodes[i].name, why) for i, why in lost.items()})
            chosen = [i for i in chosen if i not in notes]
        builder = _Builder(
            graph, config, numerics, ranges, {i: numbers[i] for i in chosen}, fixed, candidate.coded,
            candidate.weights,
        )
        result = builder.build()
        if not builder.refused:
            found = (*unused, *(notes[i] for i in sorted(notes)), *builder.notes)
            return Quantization(result, found, refused)
        if config.on_refusal == "error":
            first = min(builder.refused)
            raise builder.refused[first].at(node=graph.nodes[first].name)
        for i, error in builder.refused.items():
            notes[i] = Note(graph.nodes[i].name, str(error.message))
            refused[graph.nodes[i].outputs[0]] = str(error.message)


@dataclass
class _Builder:
    """One pass over the nodes with a fixed choice of integer ones."""

    source: Graph
    config: Quantize
    numerics: Numerics
    ranges: Mapping[str, Range]
    chosen: Mapping[int, str]             # the NPU's nodes, with the float type that each computes in
    fixed: Mapping[str, QuantType] = field(default_factory=dict)
    coded: frozenset[str] = frozenset()
    rounded: Mapping[str, RoundedWeight] = field(default_factory=dict)
    refused: dict[int, TargetError] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    integer: set[str] = field(default_factory=set)        # ids that hold codes in the new graph
    types: dict[str, QuantType] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    rows: dict[str, WholeNumbers] = field(default_factory=dict)     # of the tables that indices point into
    forms: dict[tuple[str, str], str] = field(default_factory=dict)     # names of values made here

    def build(self) -> Graph:
        source = self.source
        self.values.update(source.values)
        self.consts.update(source.consts)
        every = [source.nodes[i] for i in sorted(self.chosen)]
        npu = [source.nodes[i] for i in sorted(self.chosen) if not self.chosen[i]]
        whole = whole_types(source, every)
        stated = {**self.fixed, **whole}
        self.types = activation_types(source, npu, self.ranges, self.config, self.numerics, stated)
        self.types.update({v: q for v, q in self.fixed.items() if v in self.coded} | whole)
        self.rows = checked_rows(source, every)
        held: dict[str, QuantType] = {}
        for i, number in self.chosen.items():
            made = [o for o in source.nodes[i].outputs if o]
            own = float_type(number) if number else None
            held.update({o: self.types[o] if own is None else whole.get(o, own) for o in made})
        asked = set(source.inputs) if self.config.inputs == "integer" else self.coded & set(self.fixed)
        kept = {
            o: i for o, i in source.state
            if o in self.types and held.get(o) == self.types[o] and self.types.get(i) == self.types[o]
        }
        asked = asked - {i for _, i in source.state} | set(kept.values())
        held.update({i: self.types[i] for i in asked if i in self.types})
        self.integer.update(held)
        for value_id, quant in held.items():
            self.values[value_id] = replace(source.values[value_id], quant=quant)
        for i, node in enumerate(source.nodes):
            if i not in self.chosen:
                self.nodes.append(replace(node, inputs=tuple(self.as_float(v) for v in node.inputs)))
                continue
            try:
                number = self.chosen[i]
                done = self.in_floats(node, number) if number else self.quantised(node)
                self.nodes.append(done)
                types = [self.fixed.get(v) for v in node.inputs]
                said = kept_groups(source.site(node), self.site(done), types, self.numerics)
                self.notes += [Note(node.name, text, on_host=False) for text in said]
            except TargetError as error:
                self.refused[i] = error
        coded = set(source.outputs) - set(dict(source.state)) if self.config.outputs == "integer" else set()
        outputs = tuple(v if v in coded or v in kept else self.as_float(v) for v in source.outputs)
        built = Graph(
            source.inputs, outputs, tuple(self.nodes), MappingProxyType(self.values),
            MappingProxyType(self.consts), source.state, source.fed, lengths=source.lengths,
            rings=source.rings,
        )
        return built if self.refused else own_names(contiguous(prune(built)), source)

    # --- boundaries
    def as_float(self, value_id: str) -> str:
        """The float form of a value, made by DequantizeLinear where only codes exist."""
        if value_id not in self.integer:
            return value_id
        name, fresh = self.form(value_id, "f")
        if fresh:
            self.values[name] = Value(name, self.source.type(value_id))
            self.nodes.append(Node(OPS["dequantizelinear"](), (value_id,), (name,)))
        return name

    def as_codes(self, value_id: str, quant: QuantType) -> str:
        """A value in a type of the NPU's: as it is, cast there, or, where only float32 exists, made by
        QuantizeLinear (or once and for all for a constant)."""
        if value_id in self.integer:
            own = self.values[value_id].quant
            return value_id if own == quant else self.retyped(value_id, quant)
        stored = self.source.const(value_id)
        if stored is not None:
            return self.stored(value_id, encode(stored, quant), quant)
        name, fresh = self.form(value_id, quant.element if isinstance(quant, FloatType) else "q")
        if fresh:
            self.values[name] = Value(name, self.source.type(value_id), quant)
            rows = self.rows.get(value_id, WholeNumbers(0))
            op = OPS["quantizelinear"](table_rows=rows.below, parts=rows.parts)
            self.nodes.append(Node(op, (value_id,), (name,)))
        return name

    def kept(self, node: Node, quant: QuantType) -> list[str]:
        """Inputs as they are, but for floats that a node puts into codes."""
        own = self.integer if node.op.retypes else node.inputs
        return [v if v in own else self.as_codes(v, quant) for v in node.inputs]

    def form(self, value_id: str, suffix: str) -> tuple[str, bool]:
        """The name of a value's other form, and whether it is yet to be made; the model
        may have a value of that name."""
        key = value_id, suffix
        if key in self.forms:
            return self.forms[key], False
        name = f"{value_id}:{suffix}"
        while name in self.values:
            name += "'"
        self.forms[key] = name
        return name, True

    def stored(self, value_id: str, codes: Array, quant: QuantType | None) -> str:
        """A constant of the quantised graph; nodes that need other codes of the same source get a name of
        their own."""
        name, count = f"{value_id}:q", 1
        while True:
            value, found = constant(name, codes, quant)
            if self.values.get(name, value) == value:
                self.values[name] = value
                self.consts.update(found)
                return name
            count += 1
            name = f"{value_id}:q{count}"

    # --- nodes
    def quantised(self, node: Node) -> Node:
        """The node over codes, with its integer parameters."""
        real = self.source.site(node)
        activations = dict(activation_inputs(self.source, node))
        inputs = self.kept(node, self.types[node.outputs[0]])
        for i, value_id in activations.items():
            inputs[i] = self.as_codes(value_id, self.types[value_id])
            shared = node.op.shares_scale or node.op.role(i) == "table"
            if shared and self.types[value_id] != self.types[node.outputs[0]]:
                inputs[i] = self.retyped(inputs[i], self.types[node.outputs[0]])
        for i, value_id in enumerate(node.inputs):
            if node.op.role(i) == "index":
                inputs[i] = self.as_codes(value_id, self.types[value_id])
            elif node.op.role(i) == "table" and real.consts[i] is not None:
                inputs[i] = self.as_codes(value_id, self.types[node.outputs[0]])
        weight = next(
            (i for i, v in enumerate(real.consts) if v is not None and node.op.role(i) == "weight"), None
        )
        made = replace(node, inputs=tuple(inputs), params=())
        try:
            return self.prepared(
                made if weight is None else self.weighted(node, made, min(activations), weight)
            )
        except Overflow as error:
            if weight is not None:
                return self.narrower(node, made, min(activations), weight, error)
            return self.narrowed(made, tuple(activations), error)
        except TargetError as error:
            return self.saturated(made, error)

    def in_floats(self, node: Node, number: str) -> Node:
        """The node over numbers of a float type. Factors on its products and its bias are in its constants;
        a bias stays float32, as the sums are."""
        real, quant = self.source.site(node), float_type(number)
        inputs = self.kept(node, quant)
        for i, value_id in activation_inputs(self.source, node):
            inputs[i] = self.as_codes(value_id, quant)
        for i, value_id in enumerate(node.inputs):
            if node.op.role(i) == "index":
                inputs[i] = self.as_codes(value_id, self.types[value_id])
        blocks = self.config.blocks(names_of(node), op_name(node))
        groups = {} if blocks else self.groups(node, number)
        free = {i: node.inputs[i] for i in groups if node.inputs[i] not in self.fixed}
        scheme = self.config.weights_of(names_of(node), op_name(node))
        for i, one in all_chosen(self.rounded, free, scheme, self.numerics).items():
            real, groups[i] = replaced(real, i, one), of_codes(one, number, self.numerics)
        for i, (array, kind) in constants(real, quant, blocks, groups).items():
            inputs[i] = self.stored(node.inputs[i], array, kind)
        return self.prepared(replace(node, op=operator(real, blocks), inputs=tuple(inputs), params=()))

    def groups(self, node: Node, number: str) -> dict[int, GroupedType]:
        """The types of a node's weights in groups with float16 scales, by input; `number`: of activations."""
        scheme = self.config.weights_of(names_of(node), op_name(node))
        stated = [self.fixed.get(name) for name in node.inputs]
        return of_node(self.source.site(node), scheme, stated, number, self.numerics)

    def weighted(self, node: Node, made: Node, source: int, weight: int) -> Node:
        """The node with the codes of its constant weight, and bias, for the type that its input has."""
        real, inputs = self.source.site(node), list(made.inputs)
        x, y = self.values[made.inputs[source]].quant, self.types[node.outputs[0]]
        assert x is not None
        scheme = without_groups(self.config.weights_of(names_of(node), op_name(node)), self.numerics)
        fixed, own = self.fixed.get(node.inputs[weight]), real.consts[weight]
        assert own is not None
        held = self.groups(node, activations(x.bits)).get(weight)
        if isinstance(fixed, GroupedType):
            fixed = held or by_multipliers(fixed, own.shape, self.numerics)
        fixed = None if fixed is None else as_narrow(fixed, own, scheme.bits)
        free = fixed is None and held is None
        known = chosen(self.rounded, node.inputs[weight], scheme, self.numerics) if free else None
        if known is not None:
            real, fixed = replaced(real, weight, known), known.quant
        codes, quant = coded_weight(real, weight, x, y, scheme, self.numerics, held or fixed)
        if known is not None:
            codes = recoded(own, known, quant)
        kind = sparse_type(real, weight, codes, quant, self.numerics)
        inputs[weight] = self.stored(node.inputs[weight], codes, kind)
        bias = weight + 1
        if real.present(bias) and node.op.role(bias) == "bias":
            coded = coded_bias(real, bias, x, y, quant, codes, self.numerics)
            inputs[bias] = self.stored(node.inputs[bias], *coded)
        return replace(made, inputs=tuple(inputs))

    def narrower(self, node: Node, made: Node, source: int, weight: int, error: Overflow) -> Node:
        """A layer of constant weights over narrower codes of its input, as wide as its sums allow."""
        wide, first = self.values[made.inputs[source]], error
        assert wide.quant is not None
        bits = wide.quant.bits
        while True:
            bits -= error.excess
            if wide.const is not None or bits < NARROWEST:
                raise first
            inputs = list(made.inputs)
            inputs[source] = self.rescaled(wide.id, wide.quant, bits)
            try:
                found = self.prepared(
                    self.weighted(node, replace(made, inputs=tuple(inputs)), source, weight)
                )
            except Overflow as again:
                error = again
                continue
            self.notes.append(
                Note(node.name, f"its input requantised to {bits} bits: {first.message}", on_host=False)
            )
            return found

    def prepared(self, node: Node) -> Node:
        params = forms.prepared(self.site(node), self.numerics)
        return replace(node, params=tuple((name, self.param(params[name])) for name in sorted(params)))

    def saturated(self, node: Node, error: TargetError) -> Node:
        """A table over the part of its input's range where its function changes."""
        part, wide = changing(self.site(node)), self.site(node).quant(0)
        if part is None:
            raise error
        grid = activation_grid(self.config.activations, self.numerics, wide.bits)
        over = self.retyped(node.inputs[0], activation_type(*part, grid))
        found = self.prepared(replace(node, inputs=(over, *node.inputs[1:])))
        said = f"over [{part[0]:.3g}, {part[1]:.3g}], outside of which it stands still: {error.message}"
        self.notes.append(Note(node.name, said, on_host=False))
        return found

    def narrowed(self, node: Node, operands: tuple[int, ...], error: Overflow) -> Node:
        """The node over narrower codes of its wide operands, as wide as its sums allow, each requantised."""
        types = [self.values[node.inputs[i]].quant for i in operands]
        widths = [q.bits for q in types if q is not None]
        if len(operands) < 2 or any(self.values[node.inputs[i]].const for i in operands):
            raise error
        excess = error.excess
        while excess > 0:
            for _ in range(excess):
                widest = max(range(len(widths)), key=lambda k: (widths[k], k))
                widths[widest] -= 1
            if max(widths) < NARROWEST or min(widths) < NARROWEST:
                raise error
            inputs = list(node.inputs)
            for i, quant, bits in zip(operands, types, widths, strict=True):
                assert quant is not None
                if bits < quant.bits:
                    inputs[i] = self.rescaled(node.inputs[i], quant, bits)
            try:
                found = self.prepared(replace(node, inputs=tuple(inputs)))
            except Overflow as again:
                excess = again.excess
                continue
            said = " and ".join(f"{bits} bits" for bits in widths)
            self.notes.append(
                Note(node.name, f"operands requantised to {said}: {error.message}", on_host=False)
            )
            return found
        raise error

    def retyped(self, value_id: str, quant: QuantType) -> str:
        """The same real numbers on other codes, which are stated."""
        name, count = f"{value_id}:as", 1
        while name in self.values and self.values[name].quant != quant:
            name, count = f"{value_id}:as{count + 1}", count + 1
        if name not in self.values:
            self.values[name] = Value(name, self.values[value_id].type, quant)
            self.nodes.append(self.prepared(Node(OPS["requantize"](), (value_id,), (name,), params=())))
        return name

    def rescaled(self, value_id: str, quant: QuantType, bits: int) -> str:
        """The same real range on fewer codes."""
        name, fresh = self.form(value_id, str(bits))
        if fresh:
            lo, hi = (float(quant.scale[0] * (end - quant.zero_point[0])) for end in (quant.lo, quant.hi))
            narrow = activation_type(lo, hi, activation_grid(self.config.activations, self.numerics, bits))
            self.values[name] = Value(name, self.values[value_id].type, narrow)
            self.nodes.append(self.prepared(Node(OPS["requantize"](), (value_id,), (name,), params=())))
        return name

    def site(self, node: Node) -> OpContext:
        view = Graph((), (), (), self.values, self.consts)
        return view.site(node)

    def param(self, value: int | Array) -> Param:
        if isinstance(value, (int, np.integer)):
            return int(value)
        _, found = constant("", value)
        self.consts.update(found)
        return next(iter(found))
