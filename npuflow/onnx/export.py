"""Writes a graph, or a part of it, as an ONNX model.
Value ids become tensor names, fused clips become nodes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.digest import digest_array
from npuflow.base.errors import InternalError, ModelError
from npuflow.ir.graph import Graph
from npuflow.ir.loops import seen
from npuflow.ir.op import Bound, Node, OnnxCall, bound_array
from npuflow.ir.types import UNRANKED, Array, TensorType
from npuflow.onnx.fed import MOST, FedModel, SessionModel, fed_from
from npuflow.onnx.loops import scanned
from npuflow.onnx.run import EXPORT_OPSET, finished
from npuflow.onnx.serialised import serialised
from npuflow.onnx.types import value_info

if TYPE_CHECKING:
    import onnx


def export_model(
    graph: Graph,
    outputs: Sequence[str] | None = None,
    nodes: Sequence[Node] | None = None,
    inputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
    most: int = MOST,
) -> bytes:
    """The float graph as ONNX bytes. `outputs`: value ids to expose (default: the
    graph's own); `nodes` and `inputs`:
    only these nodes, fed by these values. Bytes depend on nothing but these. A ModelError where the constants
    take more than `most` bytes.
    """
    exporter = _Exporter(graph, most=most)
    wanted = tuple(graph.outputs if outputs is None else outputs)
    for node in graph.nodes if nodes is None else nodes:
        exporter.node(node)
    return exporter.model(tuple(graph.inputs if inputs is None else inputs), wanted, metadata)


def session_model(
    graph: Graph,
    outputs: Sequence[str] | None = None,
    nodes: Sequence[Node] | None = None,
    inputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
    flat: bool = False,
) -> SessionModel:
    """The same to be run by a session here. Where the graph says so, or its constants are more than one model
    holds, large constants are inputs, which the session is given with every feed. `flat`: loops as nodes
    between borders, for `npuflow.onnx.loops.scanned`."""
    listed = graph.nodes if nodes is None else nodes
    exporter = _Exporter(graph, graph.fed or fed_from(_held(graph, listed)))
    for node in listed:
        exporter.node(node)
    wanted = tuple(graph.outputs if outputs is None else outputs)
    proto = exporter.model(tuple(graph.inputs if inputs is None else inputs), wanted, metadata, flat)
    return FedModel(proto, exporter.fed, exporter.digests) if exporter.fed else proto


def _held(graph: Graph, nodes: Sequence[Node]) -> int:
    """Bytes of the constants that nodes read."""
    named = {graph.values[i].const for node in nodes for i in node.inputs if i}
    return sum(graph.consts[digest].nbytes for digest in named if digest is not None)


def unclipped(value_id: str) -> str:
    """The tensor before the fused clip that makes a value."""
    return f"{value_id}:unclipped"




class _Exporter:
    def __init__(self, graph: Graph, fed_from: int = 0, most: int = MOST) -> None:
        import onnx

        self.graph, self.fed_from, self.most = graph, fed_from, most
        self.fed: dict[str, Array] = {}
        self.digests: dict[str, str] = {}
        self.whole = onnx.ModelProto()
        self.proto = self.whole.graph         # filled in place: a copy of all constants takes its time
        self.proto.name = "npuflow"
        self.opsets: dict[str, int] = {"": EXPORT_OPSET}
        self.functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self.stored: set[str] = set()
        self.names: set[str] = set()
        self.nested = False
        self.bytes = 0

    def node(self, node: Node) -> None:
        import onnx

        call = node.op.to_onnx(self.graph.site(node))
        for value_id in node.inputs:
            self.store(value_id)
        self.nested |= any(
            isinstance(a, onnx.AttributeProto) and a.type in (a.GRAPH, a.GRAPHS)
            for a in call.attributes.values()
        )
        clip = node.op.clip
        outputs = list(node.outputs)
        if clip is not None:
            outputs[0] = unclipped(outputs[0])
        proto = onnx.NodeProto(
            op_type=call.op_type,
            domain=call.domain,
            name=self.name(node),
            input=self.inputs(call, node),
            output=outputs,
        )
        proto.attribute.extend(attributes(call))
        self.proto.node.append(proto)
        if call.body:
            self.function(call)
        lowest = EXPORT_OPSET if call.domain == "" else 1
        self.opsets[call.domain] = max(self.opsets.get(call.domain, lowest), call.version, lowest)
        if clip is not None:
            self.clip(node, clip, outputs[0])

    def function(self, call: OnnxCall) -> None:
        """The body of an operator of a package, once; onnxruntime computes that."""
        import onnx

        key = call.domain, call.op_type
        if key in self.functions:
            return
        head = f'<domain: "{call.domain}", opset_import: ["": {EXPORT_OPSET}]>'
        try:
            self.functions[key] = onnx.parser.parse_function(f"{head}\n{call.body}")
        except onnx.parser.ParseError as fault:
            raise InternalError(
                f"{call.domain}::{call.op_type}: the body in to_onnx is no ONNX function",
                because=str(fault).strip(), code="NF-INTERNAL-060",
            ) from fault

    def name(self, node: Node) -> str:
        """The name in the source model; further nodes that a rule made of the same one get a number."""
        name = node.name if node.name not in self.names else f"{node.name}:{len(self.names)}"
        self.names.add(name)
        return name

    def clip(self, node: Node, clip: tuple[Bound, Bound], source: str) -> None:
        """A Clip, or Max and Min where a bound differs from channel to channel."""
        out = node.outputs[0]
        if clip == (0.0, inf):
            self.proto.node.add(op_type="Relu", name=f"{out}:clip", input=[source], output=[out])
            return
        kind = self.graph.type(out)
        bounds = [bound_array(bound, len(kind.shape)).astype(kind.dtype) for bound in clip]
        ends = [
            "" if np.isinf(b).all() else self.array(f"{out}:{end}", b)
            for end, b in zip(("lo", "hi"), bounds, strict=True)
        ]
        if not any(bound.ndim for bound in bounds):
            self.proto.node.add(op_type="Clip", name=f"{out}:clip", input=[source, *ends], output=[out])
            return
        between = f"{out}:above" if all(ends) else out
        if clip[0] == 0.0:                   # onnxruntime fuses this one
            self.proto.node.add(op_type="Relu", name=f"{out}:relu", input=[source], output=[between])
        elif ends[0]:
            self.proto.node.add(op_type="Max", name=f"{out}:max", input=[source, ends[0]], output=[between])
        if ends[1]:
            last = between if ends[0] else source
            self.proto.node.add(op_type="Min", name=f"{out}:min", input=[last, ends[1]], output=[out])

    def inputs(self, call: OnnxCall, node: Node) -> list[str]:
        """Names of the ONNX node's inputs, trailing absent ones left out."""
        if call.inputs is None:
            names = list(node.inputs)
        else:
            names = [self.input(i, k, node) for k, i in enumerate(call.inputs)]
        while names and not names[-1]:
            names.pop()
        return names

    def input(self, source: int | Array | None, index: int, node: Node) -> str:
        if source is None:
            return ""
        if isinstance(source, int):
            return node.inputs[source] if source < len(node.inputs) else ""
        return self.array(f"{next(o for o in node.outputs if o)}:in{index}", np.asarray(source))

    def array(self, name: str, values: Array) -> str:
        import onnx

        if self.fed_from and values.nbytes >= self.fed_from and values.dtype.kind in "biuf":
            return self.feed(name, values)
        self.bytes += values.nbytes
        if self.bytes > self.most:
            said = f"its constants take {self.bytes / (1 << 30):.2f} GiB and more; protobuf ends at 2 GiB"
            hint = "[model] outputs cuts the network into parts that are built one by one"
            raise ModelError(
                "the network does not fit one ONNX model", because=said, hint=hint, code="NF-MODEL-005",
            )
        if values.dtype.kind not in "biuf":
            self.proto.initializer.append(onnx.numpy_helper.from_array(values, name))
            return name
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        stored = self.proto.initializer.add(name=name, dims=values.shape, raw_data=little.tobytes())
        stored.data_type = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        return name

    def feed(self, name: str, values: Array) -> str:
        """A constant as an input."""
        value = self.graph.values.get(name)
        self.fed[name] = np.ascontiguousarray(values).reshape(values.shape)
        self.digests[name] = (value and value.const) or digest_array(values)
        self.proto.input.append(value_info(name, TensorType(tuple(values.shape), values.dtype.name)))
        return name

    def store(self, value_id: str) -> None:
        values = self.graph.const(value_id)
        if values is not None and value_id not in self.stored:
            self.stored.add(value_id)
            self.array(value_id, values)

    def model(
        self, inputs: Sequence[str], outputs: Sequence[str], metadata: Mapping[str, str], flat: bool = False
    ) -> bytes:
        for value_id in outputs:
            self.store(value_id)
        for i in inputs:
            if i not in self.stored:
                # A subgraph may hold branches that do not fit the shapes that reach
                # them and are never taken: with
                # shapes unsaid, onnxruntime judges them only when they run.
                kind = self.graph.type(i)
                self.proto.input.append(
                    value_info(i, TensorType(UNRANKED, kind.dtype) if self.nested else kind)
                )
        shown = seen(self.graph)
        self.proto.output.extend(
            value_info(o, shown.get(o) or self.graph.type(o)) for o in dict.fromkeys(outputs)
        )
        model = finished(self.whole, self.opsets)
        if not flat:
            scanned(model, {name: value.type for name, value in self.graph.values.items()})
        model.functions.extend(self.functions.values())
        for key, text in sorted(metadata.items()):
            model.metadata_props.add(key=key, value=text)
        try:
            return serialised(model)
        except ValueError as fault:
            raise ModelError(
                "the model exceeds 2 GiB as one ONNX file", because=str(fault), code="NF-MODEL-006",
            ) from fault


def attributes(call: OnnxCall) -> list[onnx.AttributeProto]:
    """Attribute protos by name. None is left out; an empty list keeps the list type of the schema."""
    import onnx

    kinds: Mapping[str, Any] = {}
    if onnx.defs.has(call.op_type, domain=call.domain):
        kinds = onnx.defs.get_schema(call.op_type, call.domain).attributes
    found = []
    for name, value in sorted(call.attributes.items()):
        if value is None:
            continue
        if isinstance(value, onnx.AttributeProto):
            found.append(value)
            continue
        plain = list(value) if isinstance(value, tuple) else value
        kind = int(kinds[name].type) if name in kinds else None
        if kind == onnx.AttributeProto.FLOAT:
            plain = float(value)
        elif isinstance(plain, np.ndarray):
            plain = onnx.numpy_helper.from_array(plain)
        try:
            found.append(onnx.helper.make_attribute(name, plain, attr_type=kind))
        except (TypeError, ValueError) as fault:
            raise InternalError(
                f"{call.op_type}: attribute {name} = {value!r} does not export",
                because=str(fault), code="NF-INTERNAL-020",
            ) from fault
    return found
