"""The float network with fake quantisation whose steps, ends and weights are inputs:
one session rates any mixture.

A quantiser stands behind every activation that the NPU reads or writes. Its step and its end codes are
run-time inputs, so that another clipping range or bit width is another row of a table and no new session.
Layer weights and biases are inputs, too. Where a group may be of a float type of the NPU, a factor c rounds
its significand: c x - (c x - x) with c = 2^s + 1 drops the last s bits of a float32 (Veltkamp's splitting),
and c = 0 changes nothing. Everything else is float: requantisation and table rounding are not modelled, and
the quantised graph stays the judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.mapped import spilled
from npuflow.base.processors import PROCESSORS
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import least_exponent
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.loops import seen
from npuflow.ir.op import Node
from npuflow.ir.types import Array, QuantType
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import FedModel, taken_apart
from npuflow.onnx.loops import scanned
from npuflow.onnx.types import value_info
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize, Weights
from npuflow.quantise.grouped import in_integers, lasting
from npuflow.quantise.rounded import at_width, chosen, real_bias, real_weight
from npuflow.quantise.scales import (
    ScaleGroups,
    activation_inputs,
    activation_types,
    join_recurrent,
    one_type,
    whole_types,
)
from npuflow.quantise.types import weight_type
from npuflow.rounders import RoundedWeight
from npuflow.run.as_stated import as_stated, stated_activations
from npuflow.run.floats import float_session
from npuflow.tune.walk import pass_bytes

Ranges = Mapping[str, tuple[float, float]]
# [groups, 4]: step, the end codes counted from the zero point, and the factor that cuts a significand
Table = npt.NDArray[np.float32]
Feed = Mapping[str, Array]
STEPS = ("fq:step", "fq:low", "fq:high")  # names of the table's columns as inputs
CUT = "fq:cut"                            # and of the last one, where groups may be floats
FINE = 100                                # bits of a quantiser that changes nothing in float32, however small


@dataclass(frozen=True)
class LayerWeight:
    """A constant weight of a layer that the NPU runs."""

    node: int
    operand: int
    value: str


@dataclass(frozen=True)
class FakeQuantNetwork:
    """What is quantised. `given`: those of the candidate's stated types that the model fixes, whose roundings
    are part of what the network computes."""

    candidate: Candidate
    given: Mapping[str, QuantType] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.candidate.graph

    @property
    def quantize(self) -> Quantize:
        return self.candidate.scheme

    @property
    def numerics(self) -> Numerics:
        return self.candidate.numerics

    def with_(self, **changes: Any) -> FakeQuantNetwork:
        """The same with other fields of the candidate."""
        return replace(self, candidate=self.candidate.with_(**changes))

    @cached_property
    def reference(self) -> Graph:
        """The graph with the roundings that the model states."""
        return as_stated(self.graph, self.given)

    def unrounded(self, table: Table) -> Table:
        """Quantisers over the spans of `table` that change nothing, but for what the model itself rounds."""
        found, given = unclipped_steps(table), stated_activations(self.graph, self.given)
        for k, group in enumerate(self.groups):
            quant = next((given[v] for v in group if v in given), None)
            if quant is not None:
                zero = quant.zero_point[0]
                found[k] = quant.scale[0], quant.lo - zero, quant.hi - zero, 0.0
        return found

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes that the NPU runs in integers, by the recipe."""
        on_npu = self.candidate.placed.on_npu
        return tuple(n for i, n in enumerate(self.graph.nodes) if on_npu(i) and not self._is_float(n))

    def _is_float(self, node: Node) -> bool:
        names, op = names_of(node), op_name(node)
        left = any(rule.float for rule in self.quantize.matching(names, op))
        return left or bool(self.quantize.number(names, op))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Values that share one type, set by set, in the order of the graph; constants in an
        activation's place included."""
        whole = whole_types(self.graph, self.nodes)
        joined = ScaleGroups(stated={**self.candidate.fixed, **whole})
        found: dict[str, None] = {}
        for node in self.nodes:
            ids = [value_id for _, value_id in activation_inputs(self.graph, node)]
            outputs = [o for o in node.outputs if o and self.graph.type(o).dtype == "float32"]
            found.update(dict.fromkeys((*ids, *outputs)))
            joined.join(one_type(self.graph, node, whole))
        join_recurrent(joined, self.graph, self.nodes, found)
        sets: dict[str, list[str]] = {}
        for value_id in found:
            sets.setdefault(joined.find(value_id), []).append(value_id)
        return tuple(map(tuple, sets.values()))

    @cached_property
    def beside(self) -> frozenset[str]:
        """Values of units that only layers of the NPU read as codes: other nodes, and the program's outputs,
        have the numbers from which the codes are made."""
        codes = {o for n in self.nodes for o in n.outputs} | set(self.given)
        if self.quantize.inputs == "integer":
            codes.update(self.graph.inputs)
        return frozenset(v for group in self.groups for v in group if v not in codes)

    @cached_property
    def weights(self) -> tuple[LayerWeight, ...]:
        """Constant weights, once each."""
        mine = {n.outputs for n in self.nodes}
        found: dict[str, LayerWeight] = {}
        for index, node in enumerate(self.graph.nodes):
            if node.outputs not in mine:
                continue
            for operand, value_id in enumerate(node.inputs):
                if value_id and node.op.role(operand) == "weight" and self.graph.const(value_id) is not None:
                    found.setdefault(value_id, LayerWeight(index, operand, value_id))
        return tuple(found.values())

    @cached_property
    def units(self) -> Mapping[str, int]:
        """Value -> its unit: the groups of activations, then the weights."""
        groups = {v: k for k, group in enumerate(self.groups) for v in group}
        first = len(self.groups)
        return {**groups, **{w.value: first + j for j, w in enumerate(self.weights)}}

    @cached_property
    def touched(self) -> tuple[tuple[int, ...], ...]:
        """By node the units that it reads, writes or multiplies by."""
        ends = ((*node.inputs, *node.outputs) for node in self.nodes)
        return tuple(tuple(dict.fromkeys(self.units[v] for v in ids if v in self.units)) for ids in ends)

    def types(self, ranges: Ranges, bits: int | None = None) -> dict[str, QuantType]:
        """The type of every activation, at the recipe's widths, or at `bits` where it has no exception."""
        scheme, own = self.quantize, self.candidate
        if bits is not None:
            wide = replace(scheme.activations, bits=bits)
            scheme = replace(scheme, activations=wide, constants=None)
        return activation_types(self.graph, self.nodes, own.spans(ranges), scheme, own.numerics, own.fixed)

    def table(self, ranges: Ranges, bits: int | None = None) -> Table:
        """Quantisers of all groups."""
        types = self.types(ranges, bits)
        rows = []
        for group in self.groups:
            quant = types[group[0]]
            zero = quant.zero_point[0]
            rows.append((max(quant.scale), quant.lo - zero, quant.hi - zero, 0.0))
        return np.array(rows, np.float32).reshape(-1, 4)

    def coded(self, weight: LayerWeight, bits: int | None = None) -> dict[str, Array]:
        """A weight as its codes give it back, by value id, and the bias that goes with it where it is not the
        float one; at the recipe's width, or at `bits` where the recipe has no exception."""
        real = self.graph.const(weight.value)
        assert real is not None
        known = self._rounded(weight, bits)
        if known is not None:
            bias = self.graph.const(known.bias) if known.bias else None
            shifted = {known.bias: np.ascontiguousarray(real_bias(known, bias))} if bias is not None else {}
            return {weight.value: self.kept(real_weight(known).astype(real.dtype)), **shifted}
        quant = self.weight_quant(weight, bits)
        found = decode(encode(real, quant), quant).reshape(real.shape).astype(real.dtype)
        return {weight.value: self.kept(found)}

    def kept(self, array: Array) -> Array:
        """Numbers of a weight as a session is fed them; of a network whose constants are fed, in a file."""
        own = np.ascontiguousarray(array)
        return spilled(own, self.graph.fed) if self.graph.fed else own

    def weight_quant(self, weight: LayerWeight, bits: int | None = None) -> QuantType:
        """The type of a weight's codes, at the recipe's width, or at `bits` where it has no exception."""
        if (known := self._rounded(weight, bits)) is not None:
            return known.quant
        stated, node = self.candidate.fixed.get(weight.value), self.graph.nodes[weight.node]
        site, real = self.graph.site(node), self.graph.const(weight.value)
        assert real is not None
        stated = in_integers(site, weight.operand, stated, self.quantize.activations.bits, self.numerics)
        if stated is not None and bits is None:
            return stated
        axes = (axis(site, weight.operand) for axis in (node.op.channel_axis, node.op.group_axis))
        return weight_type(real, next(axes), self._scheme(weight, bits), self.numerics, next(axes))

    def is_rounded(self, weight: LayerWeight) -> bool:
        """Whether a rounding method chose the weight's codes."""
        return self._rounded(weight, None) is not None

    def _scheme(self, weight: LayerWeight, bits: int | None) -> Weights:
        node = self.graph.nodes[weight.node]
        scheme = self.quantize.weights_of(names_of(node), op_name(node))
        pinned = any(r.weight_bits for r in self.quantize.matching(names_of(node), op_name(node)))
        return scheme if bits is None or pinned else scheme.with_(bits=bits)

    def _rounded(self, weight: LayerWeight, bits: int | None) -> RoundedWeight | None:
        """Codes that were chosen before, where there are such for the width."""
        if weight.value in lasting(self.candidate.stated, self.numerics):
            return None
        return chosen(self.candidate.weights, weight.value, self._scheme(weight, bits), self.numerics)


def unclipped_steps(table: Table) -> Table:
    """Quantisers over the same spans that change nothing: what "float" is to a mixture."""
    spans = table[:, 0].astype(np.float64) * (table[:, 2].astype(np.float64) - table[:, 1])
    steps = np.maximum(spans / 2.0**FINE, 1e-36)
    ends = np.full_like(steps, 2.0**125)
    return np.stack([steps, -ends, ends, np.zeros_like(steps)], axis=1).astype(np.float32)


def float_steps(table: Table, number: str) -> Table:
    """Quantisers that round to a float type: what is too small for `table` is a multiple of its smallest
    number, and what is too large is infinite in the quantised graph alone."""
    made, row = unclipped_steps(table), ELEMENTS[number]
    made[:, 0] = np.maximum(made[:, 0], 2.0 ** (least_exponent(number) - row.fraction))
    made[:, 3] = 2.0 ** (ELEMENTS["float32"].fraction - row.fraction) + 1.0
    return made


@dataclass(frozen=True)
class Section:
    """Some consecutive nodes: what they read from outside, and of what they make what is read behind them."""

    nodes: tuple[Node, ...]
    fed: tuple[str, ...]
    made: tuple[str, ...]


class FakeQuant:
    """A network's session. `run` takes a quantiser table and the weights that differ from the float ones.
    `probes`: values that it shows instead of the graph's outputs where it is asked for them. `floats`: groups
    may be of float types. `section`: of these nodes alone, whose results are shown as nodes made them, before
    a quantiser."""

    def __init__(
        self,
        network: FakeQuantNetwork,
        probes: Sequence[str] = (),
        floats: bool = False,
        section: Section | None = None,
    ) -> None:
        self.network, self.probes, self.section = network, tuple(probes), section
        self.columns = (*STEPS, CUT) if floats else STEPS
        self._session, fed = self._start()
        self._bytes = pass_bytes(network.graph)
        self._plain = {v: np.ascontiguousarray(network.graph.const(v)) for v in self._given() if v in fed}
        self.fed = fed

    def run(
        self,
        feeds: Sequence[Feed],
        table: Table,
        weights: Mapping[str, Array] | None = None,
        probes: bool = False,
    ) -> list[list[Array]]:
        """Per output of the graph (or per probe) its values, sample by sample."""
        columns = {
            name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(self.columns) if name in self.fed
        }
        given = {**self._plain, **{k: v for k, v in (weights or {}).items() if k in self._plain}, **columns}
        shown, session = self._probed if probes else self._outputs, self._session
        inputs = [{k: v for k, v in feed.items() if k in self.fed} for feed in feeds]
        rows = PROCESSORS.all_of(lambda one: session.run(shown, {**one, **given}), inputs, self._bytes)
        return [[row[k] for row in rows] for k in range(len(rows[0]) if rows else 0)]

    def _given(self) -> list[str]:
        """Constants that are inputs here: weights, and biases that differ with how their weight is rounded,
        at the recipe's width or at another that a search may choose."""
        network, rounded = self.network, self.network.candidate.weights
        weights = [w.value for w in network.weights]
        widths = network.numerics.weight_bits
        names = (name for v in weights for name in (v, *(at_width(v, bits) for bits in widths)))
        biases = (rounded[name].bias for name in names if name in rounded)
        own = (b for b in biases if b and network.graph.const(b) is not None)
        return list(dict.fromkeys((*weights, *own)))

    def _start(self) -> tuple[Any, set[str]]:
        import onnx

        graph, part = self.network.graph, self.section
        ends: tuple[Any, Any, Any] = (None,) * 3 if part is None else (part.made, part.nodes, part.fed)
        model, constants = taken_apart(session_model(graph, *ends, flat=True))
        proto = model.graph
        members = {v: k for k, group in enumerate(self.network.groups) for v in group}
        stored = {i.name: i for i in proto.initializer}
        nodes: list[onnx.NodeProto] = []
        quantised: dict[str, str] = {}

        def quantiser(value_id: str) -> None:
            for op, operands, made in _chain(value_id, members[value_id], CUT in self.columns):
                nodes.append(onnx.helper.make_node(op, operands, [made]))
                quantised[value_id] = made

        def named(value_id: str, coded: bool = False) -> str:
            """What a layer of the NPU reads, `coded`, or another node."""
            beside = value_id in self.network.beside and not coded
            return value_id if beside else quantised.get(value_id, value_id)

        count = len(self.network.groups)
        for name in self.columns if count else ():
            proto.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [count]))
            parts = [f"{name}{k}" for k in range(count)]
            nodes.append(onnx.helper.make_node("Split", [name], parts, num_outputs=count))
        for value_id in (*(i.name for i in proto.input), *stored):
            if value_id in members:
                quantiser(value_id)
        for value_id in [v for v in self._given() if v not in quantised]:
            held = stored.get(value_id)
            constants.pop(value_id, None)
            if held is not None:
                proto.initializer.remove(held)
                proto.input.append(onnx.helper.make_tensor_value_info(value_id, held.data_type, held.dims))
        for node, coded in self._by_place(proto.node):
            node.input[:] = [named(v, coded) for v in node.input]
            nodes.append(node)
            for value_id in node.output:
                if value_id in members:
                    quantiser(value_id)
        for output in proto.output:
            output.name = output.name if part is not None else named(output.name)
        self._outputs = [named(o) for o in graph.outputs] if part is None else list(part.made)
        self._probed, bodies = [named(v) for v in self.probes], seen(graph)
        for value_id in dict.fromkeys(self.probes):
            if named(value_id) not in self._outputs:
                kind = bodies.get(value_id) or graph.type(value_id)
                proto.output.append(value_info(named(value_id), kind))
        del proto.node[:]
        proto.node.extend(nodes)
        types = {made: graph.type(v) for v, made in quantised.items()}
        scanned(model, {v: graph.type(v) for v in graph.values} | types)
        proto_bytes = bytes(model.SerializeToString())
        made = float_session(FedModel(proto_bytes, constants) if constants else proto_bytes)
        return made, {i.name for i in made.get_inputs()}

    def _by_place(self, written: Sequence[Any]) -> list[tuple[Any, bool]]:
        """The nodes of the model, each with whether a layer of the NPU was written as it: those of a layer
        follow each other, and the last one makes what the layer makes."""
        mine = {o for node in self.network.nodes for o in node.outputs if o}
        made = {o for node in self.network.graph.nodes for o in node.outputs if o}
        found, coded = list[tuple[Any, bool]](), False
        for node in reversed(written):
            own = [o for o in node.output if o in made]
            coded = own[0] in mine if own else coded
            found.append((node, coded))
        return found[::-1]


def _chain(value_id: str, unit: int, floats: bool) -> Iterator[tuple[str, list[str], str]]:
    """The nodes of a quantiser: operator, operands, result."""
    last, (step, low, high, cut) = value_id, (f"{name}{unit}" for name in (*STEPS, CUT))
    for op, other in (("Div", step), ("Round", ""), ("Max", low), ("Min", high), ("Mul", step)):
        made = f"{value_id}:fq{op}"
        yield op, [last, other] if other else [last], made
        last = made
    if floats:
        scaled, rest = f"{value_id}:fqScaled", f"{value_id}:fqRest"
        yield "Mul", [last, cut], scaled
        yield "Sub", [scaled, last], rest
        yield "Sub", [scaled, rest], f"{value_id}:fqCut"
