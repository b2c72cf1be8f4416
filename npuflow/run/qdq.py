"""The quantised graph as QDQ ONNX: float operators between QuantizeLinear and
DequantizeLinear, for any ONNX runtime.

Every integer value keeps its id as a tensor name, so tools can compare it with the reference bit by
bit. Weights and biases are stored as integers behind DequantizeLinear. What ONNX cannot say
(rounding modes, multipliers) is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from npuflow.hw.numerics import dequantize
from npuflow.input.pixels.pixels import Pixels, metadata
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, GroupedType, QuantType, TensorType, Value
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import FedModel, SessionModel
from npuflow.onnx.serialised import serialised
from npuflow.onnx.types import ELEMENTS as ONNX_TYPES
from npuflow.place.partition import boundary, is_npu
from npuflow.run.state import metadata as state_metadata

OPSET = 21                                # the first with 16-bit QuantizeLinear
# onnxruntime puts a kernel in their place that fails where a DequantizeLinear before it has blocks
BLOCKLESS = ("MatMul",)
STORABLE = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True)
class QdqModel:
    """The model, and what the format or onnxruntime cannot express of this graph. Large constants of a
    network whose weights are fed are apart."""

    model: SessionModel
    notes: tuple[str, ...]


def to_qdq(
    graph: Graph, pixels: Mapping[str, Pixels] = MappingProxyType({}), shown: Sequence[str] = ()
) -> QdqModel:
    """The whole quantised graph as one ONNX model (opset 21); its metadata say which inputs take `pixels`
    and which hold state. `shown`: its outputs, those of the graph where there are none."""
    builder = QdqBuilder(graph)
    for node in graph.nodes:
        builder.node(node)
    outputs = tuple(shown or graph.outputs)        # integer outputs stay integer
    for value_id in graph.inputs:
        if graph.values[value_id].quant is not None:
            builder.coded_input(value_id)
    known = {**metadata(pixels), **state_metadata(graph)}
    made = session_model(builder.graph(graph.inputs, outputs), metadata=known)
    if isinstance(made, FedModel):
        return QdqModel(replace(made, proto=without_functions(made.proto)), tuple(builder.notes))
    return QdqModel(without_functions(made), tuple(builder.notes))


def without_functions(model: bytes) -> bytes:
    """The model with its local functions in place of their calls: not every runtime knows functions."""
    import onnx
    from onnx import inliner

    held = onnx.load_from_string(model)
    if not held.functions:
        return model
    # the inliner copies its model several times, so it gets tensors without their bytes
    bare = onnx.ModelProto(ir_version=held.ir_version, opset_import=held.opset_import)
    bare.functions.extend(held.functions)
    bare.graph.name = held.graph.name
    for part in ("node", "input", "output", "value_info"):
        getattr(bare.graph, part).extend(getattr(held.graph, part))
    for tensor in held.graph.initializer:
        bare.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    plain = inliner.inline_local_functions(bare)
    used = {node.domain for node in plain.graph.node}
    kept = [opset for opset in plain.opset_import if not opset.domain or opset.domain in used]
    del held.functions[:], held.opset_import[:], held.graph.node[:], held.graph.value_info[:]
    held.opset_import.extend(kept)
    held.graph.node.extend(plain.graph.node)
    held.graph.value_info.extend(plain.graph.value_info)
    return serialised(held)


def isolated(graph: Graph) -> tuple[SessionModel, dict[str, str]]:
    """A model that feeds every node of the NPU with given codes and shows its own: ONNX
    bytes, and {value id: output name}.

    Its inputs are the values by id; numbers of float types are float32, in and out. It judges one
    node at a time: errors do not add up along the graph.
    """
    builder, shown = QdqBuilder(graph), {}
    fed: dict[str, None] = {}
    for node in graph.nodes:
        if is_npu(node):
            fresh = [i for i in dict.fromkeys(node.inputs) if i and graph.const(i) is None and i not in fed]
            fed.update(dict.fromkeys(fresh))
            for value_id in fresh:
                if graph.values[value_id].number:
                    builder.number_input(value_id)
            own = [o for o in node.outputs if o and graph.values[o].quant is not None]
            shown.update({o: builder.named(f"{o}:own") for o in own})
            builder.node(node, rename=shown)
    shown = {k: v for k, v in shown.items() if v in builder.values}
    for value_id in fed:
        if not graph.values[value_id].number:
            builder.coded_input(value_id)
    for value_id in [o for o in shown if graph.values[o].number]:
        shown[value_id] = builder.as_float32(shown[value_id])
    return session_model(builder.graph(tuple(fed), tuple(shown.values()))), shown


@dataclass
class QdqBuilder:
    """Collects the nodes of the float graph that stands for the integer one."""

    source: Graph
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def graph(self, inputs: Iterable[str], outputs: Iterable[str]) -> Graph:
        for value_id in inputs:
            self.values.setdefault(value_id, self.source.values[value_id])
        values, consts = MappingProxyType(self.values), MappingProxyType(self.consts)
        return Graph(tuple(inputs), tuple(outputs), tuple(self.nodes), values, consts, fed=self.source.fed)

    def named(self, name: str) -> str:
        """A name for a tensor made here, which no value of the network has."""
        while name in self.source.values:
            name += "'"
        return name

    def coded_input(self, value_id: str) -> None:
        """An integer value as a graph input."""
        value = self.source.values[value_id]
        self.values[value_id] = Value(value_id, TensorType(value.type.shape, value.dtype))

    def as_float32(self, name: str) -> str:
        """A tensor of a float type as float32."""
        made = self.named(f"{name}:float32")
        self._cast(name, made, TensorType(self.values[name].type.shape))
        return made

    def number_input(self, value_id: str) -> None:
        """A value of a float type as a graph input of float32, which holds all its numbers."""
        kind = TensorType(self.source.values[value_id].type.shape)
        self.values[value_id] = Value(value_id, kind)
        same = OPS["host"](op_type="Identity", version=OPSET, types=(kind,))
        self._add(same, (value_id,), (self.named(f"{value_id}:dq"),), ())

    def node(self, node: Node, rename: dict[str, str] | None = None) -> None:
        names = rename or {}
        blocks = node.op.onnx not in BLOCKLESS
        inputs = tuple(self.real(i, blocks) if i else "" for i in node.inputs)
        quantised = [bool(o) and self.source.values[o].quant is not None for o in node.outputs]
        if boundary(self.source, node) is not None:
            if quantised[0]:
                self.quantise(
                    inputs[0],
                    names.get(node.outputs[0], node.outputs[0]),
                    self.source.values[node.outputs[0]],
                )
            else:
                self._add(
                    OPS["host"](
                        op_type="Identity", version=OPSET, types=(self.source.type(node.outputs[0]),)
                    ),
                    inputs,
                    node.outputs,
                    node.origin,
                )
            return
        outputs = tuple(
            self.named(f"{names.get(o, o)}:real") if q else o
            for o, q in zip(node.outputs, quantised, strict=True)
        )
        for out, o in zip(outputs, node.outputs, strict=True):
            if o:
                self.values[out] = Value(
                    out, TensorType(self.source.type(o).shape, self.source.type(o).dtype)
                )
        self.nodes.append(Node(node.op, inputs, outputs, node.origin))
        for out, o, q in zip(outputs, node.outputs, quantised, strict=True):
            if q:
                self.quantise(out, names.get(o, o), self.source.values[o])

    def real(self, value_id: str, blocks: bool = True) -> str:
        """The float tensor of a value: itself, or behind DequantizeLinear, which may have `blocks`."""
        value = self.source.values[value_id]
        if value.quant is None:
            self._keep(value)
            return value_id
        name = self.named(f"{value_id}:dq")
        if name in self.values:
            return name
        q, stored = value.quant, self.source.const(value_id)
        if stored is not None and (value.number or isinstance(q, GroupedType)):
            self._constant(name, decode(stored, q))
            return name
        if value.number:
            self._cast(value_id, name, TensorType(value.type.shape))
            return name
        storable = stored is not None and stored.dtype.name in STORABLE and (blocks or q.group is None)
        if stored is not None and not storable:
            floats = dequantize(stored, *q.spread(stored.shape))
            why = f"{stored.dtype.name} constants" if blocks else "weights with scales by groups of a MatMul"
            self.notes.append(f"{value_id}: {why} stored as float32")
            self._constant(name, floats)
            return name
        if stored is not None:
            self._constant(value_id, stored)
        inputs = (value_id, *self._scale(value_id, q, value.dtype, value.type.shape))
        self._add(self._linear("DequantizeLinear", q, value.type), inputs, (name,), ())
        return name

    def quantise(self, source: str, out: str, value: Value) -> None:
        """QuantizeLinear into `out`, after a Clip where the codes do not fill their container."""
        q = value.quant
        assert q is not None
        if value.number:
            self._cast(source, out, TensorType(value.type.shape, value.number))
            return
        info = np.iinfo(q.dtype)
        if (q.lo, q.hi) != (info.min, info.max):
            bounds = [np.float32(q.scale[0] * (c - q.zero_point[0])) for c in (q.lo, q.hi)]
            ends = [self.named(f"{out}:{end}") for end in ("lo", "hi")]
            for end, bound in zip(ends, bounds, strict=True):
                self._constant(end, np.array(bound, np.float32))
            clip = OPS["host"](op_type="Clip", version=OPSET, types=(value.type,))
            clipped = self.named(f"{out}:clipped")
            self._add(clip, (source, *ends), (clipped,), ())
            source = clipped
        kind = TensorType(value.type.shape, q.dtype)
        self._add(
            self._linear("QuantizeLinear", q, kind), (source, *self._scale(out, q, q.dtype)), (out,), ()
        )

    def _cast(self, source: str, out: str, kind: TensorType) -> None:
        """The same numbers in another type; constants of floats are stored as float32."""
        to = (("to", ONNX_TYPES[kind.dtype]),)
        cast = OPS["host"](op_type="Cast", version=OPSET, attributes=to, types=(kind,))
        self._add(cast, (source,), (out,), ())

    def _linear(self, op_type: str, q: QuantType, kind: TensorType) -> Op:
        attributes: tuple[tuple[str, int | None], ...] = (("axis", q.axis),) if q.axis is not None else ()
        if q.group is not None:
            attributes = (("axis", q.group_axis), ("block_size", q.group))
        made: Op = OPS["host"](op_type=op_type, version=OPSET, attributes=attributes, types=(kind,))
        return made

    def _scale(self, name: str, q: QuantType, dtype: str, shape: tuple[int, ...] = ()) -> tuple[str, str]:
        scale: Array = np.array(q.scale, np.float32)
        zero: Array = np.broadcast_to(np.array(q.zero_point), scale.shape).astype(dtype)
        if q.group is not None:                    # by block: of the tensor's own rank
            first = tuple(slice(None, None, q.group if d == q.group_axis else 1) for d in range(len(shape)))
            scale, zero = (np.broadcast_to(one, shape)[first] for one in q.spread(shape))
            scale, zero = np.ascontiguousarray(scale, np.float32), np.ascontiguousarray(zero, dtype)
        if q.axis is None:
            scale, zero = scale[0], zero[0]
        of_scale, of_zero = self.named(f"{name}:scale"), self.named(f"{name}:zero")
        self._constant(of_scale, np.asarray(scale))
        self._constant(of_zero, np.asarray(zero))
        return of_scale, of_zero

    def _constant(self, value_id: str, array: Array) -> None:
        value, stored = constant(value_id, array)
        self.values[value_id] = value
        self.consts.update(stored)

    def _keep(self, value: Value) -> None:
        self.values.setdefault(value.id, value)
        stored = self.source.const(value.id)
        if stored is not None and value.const is not None:
            self.consts[value.const] = stored

    def _add(
        self, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...], origin: tuple[str, ...]
    ) -> None:
        for out, kind in zip(outputs, op.infer(), strict=True):
            self.values[out] = Value(out, kind)
        self.nodes.append(Node(op, inputs, outputs, origin))
