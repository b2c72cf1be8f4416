"""ONNX models, opset 7 to the newest: every valid one becomes a graph."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, CodePlace, Reading, Source
from npuflow.frontends._nodes.traces import line_of
from npuflow.onnx.fed import MOST, FedModel, SessionModel
from npuflow.onnx.nodes import ordered
from npuflow.onnx.types import from_proto

if TYPE_CHECKING:
    import onnx

EXPORTER = "pkg.torch.onnx"               # begins what PyTorch's exporter says of a node


@FRONTENDS.entry
class Onnx:
    """`.onnx` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".onnx",)

    def files(self, path: Path) -> tuple[Path, ...]:
        from npuflow.frontends.onnx.load import external_files

        return (path, *external_files(path))

    def gather(self, path: Path) -> Source:
        from npuflow.frontends.onnx.load import gather

        return gather(path)

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends._nodes import ends
        from npuflow.frontends._nodes.build import NodeBuilder
        from npuflow.frontends._nodes.linear_models import spread
        from npuflow.frontends.onnx.load import parse
        from npuflow.frontends.onnx.quantized import lifted

        given = _source(source)
        parsed = parse(given.data)
        tables = spread(parsed)
        float_ = lifted(parsed, given.tensors)
        model = float_.model
        names = {o for node in model.graph.node for o in node.output}
        builder = NodeBuilder({o.domain: o.version for o in model.opset_import}, names, given.tensors)
        builder.notes += [*float_.notes, *tables]
        stored = _stored(model)
        declared = [i for i in model.graph.input if i.name not in stored or i.name in bindings.constants]
        made = [*(i.name for i in model.graph.input), *stored, *names]
        inputs, faults = ends.inputs(builder, declared, made, bindings)
        for name, tensor in stored.items():
            builder.tensor(name, tensor)
        nodes = ordered(model.graph.node, builder.values)
        if nodes is None:
            raise ModelError(
                "the nodes of the model form a cycle, or one reads a value that nothing produces",
                code="NF-MODEL-007",
            )
        try:
            builder.add_all(nodes)
        except ModelError as fault:
            raise ends.together([*faults, fault]) from None
        outputs = ends.outputs(builder, [o.name for o in model.graph.output], inputs, bindings, faults)
        types = {o.name: from_proto(o.type).dtype for o in model.graph.output}
        return ends.reading(builder, inputs, outputs, types, float_.stated)

    def places(self, source: Source, bindings: Bindings) -> dict[str, CodePlace]:
        """Of models that torch.onnx has exported from a program: their nodes keep modules and lines."""
        from npuflow.frontends.onnx.load import parse

        found = {}
        for node in parse(_source(source).data).graph.node:
            said = {one.key: one.value for one in node.metadata_props}
            path = _words(said.get(f"{EXPORTER}.name_scopes", ""))
            kinds = _words(said.get(f"{EXPORTER}.class_hierarchy", ""))
            trace = line_of(said.get(f"{EXPORTER}.stack_trace", ""))
            name = node.name or next((o for o in node.output if o), node.op_type)
            inner = (path[-2], kinds[-2].rpartition(".")[2]) if min(len(path), len(kinds)) > 1 else ("", "")
            place = CodePlace(*inner, *trace)
            if place != CodePlace():
                found[name] = place
        return found

    def runnable(self, source: Source | bytes, bindings: Bindings, most: int = MOST) -> SessionModel:
        import onnx

        from npuflow.frontends._nodes.inputs import fixed as held
        from npuflow.frontends._nodes.linear_models import spread
        from npuflow.frontends.onnx.load import parse, whole
        from npuflow.frontends.onnx.quantized import lifted

        given = _source(source)
        parsed = parse(given.data)
        changed = bool(spread(parsed))
        plain = lifted(parsed, given.tensors)
        if not (changed or plain.changed or bindings.outputs or bindings.constants or given.tensors):
            return given.data
        model, fed = whole(plain.model, given.tensors, most)
        inputs = [i for i in model.graph.input if i.name not in bindings.constants]
        fixed = {i.name: held(i, bindings) for i in model.graph.input if i.name in bindings.constants}
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()
        )
        if bindings.outputs:
            del model.graph.output[:]
            model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in bindings.outputs)
        proto = bytes(model.SerializeToString())
        return FedModel(proto, fed) if fed else proto

    def rounding(self, source: Source | bytes) -> float:
        from npuflow.frontends._nodes.floats import rounding
        from npuflow.frontends.onnx.load import parse

        return rounding(parse(_source(source).data).graph)


def _words(text: str) -> list[str]:
    """The texts of a list as Python writes it; the last one of the exporter's lists is the operator's own."""
    try:
        found = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def _source(given: Source | bytes) -> Source:
    return given if isinstance(given, Source) else Source(given)


def _stored(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Initialisers by name; sparse ones made dense."""
    import numpy as np
    import onnx

    from npuflow.frontends._nodes.tensors import array

    stored = {t.name: t for t in model.graph.initializer}
    for sparse in model.graph.sparse_initializer:
        values, places = array(sparse.values), array(sparse.indices)
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        try:
            if places.ndim == 1:
                dense.reshape(-1)[places] = values
            else:
                dense[tuple(places.T)] = values
        except IndexError as fault:
            raise ModelError(
                f'sparse tensor "{sparse.values.name}" is damaged', because=str(fault), code="NF-MODEL-009",
            ) from fault
        stored[sparse.values.name] = onnx.numpy_helper.from_array(dense, sparse.values.name)
    return stored
