"""ONNX models, opset 7 to the newest: every valid one becomes a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from npuflow.base.errors import ModelError, NpuflowError, RecipeError, suggestion
from npuflow.base.tables_toml import dotted
from npuflow.frontends import FRONTENDS, Bindings, Reading, Source, finished
from npuflow.onnx.nodes import ordered
from npuflow.onnx.types import from_proto

if TYPE_CHECKING:
    import onnx

    from npuflow.frontends.onnx.build import OnnxBuilder


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
        from npuflow.frontends.onnx.build import OnnxBuilder
        from npuflow.frontends.onnx.floats import is_other, said
        from npuflow.frontends.onnx.load import parse
        from npuflow.frontends.onnx.quantized import lifted

        given = _source(source)
        float_ = lifted(parse(given.data), given.tensors)
        model = float_.model
        names = {o for node in model.graph.node for o in node.output}
        builder = OnnxBuilder({o.domain: o.version for o in model.opset_import}, names, given.tensors)
        builder.notes += float_.notes
        stored = _stored(model)
        inputs, faults = self._inputs(builder, model, stored, bindings)
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
            raise together([*faults, fault]) from None
        if bindings.constants and not inputs:
            faults.append(
                ModelError(
                    "the model has no inputs left",
                    because="every input is held constant", hint="[model] constants has too many entries",
                    code="NF-MODEL-008",
                )
            )
        outputs = bindings.outputs or tuple(o.name for o in model.graph.output)
        faults += _absent(outputs, list(builder.values), "value", "outputs")
        if faults:
            raise together(faults)
        for info in model.graph.output:
            builder.give(info.name, from_proto(info.type).dtype)
        if builder.counts:
            ports = [n for n in (*inputs, *outputs) if is_other(builder.type(n).dtype)]
            builder.notes.append(said(builder.counts, ports))
        for name, quant in float_.stated.items():
            builder.state(builder.singles.get(name, name), quant)
        return finished(builder, inputs, outputs)

    def _inputs(
        self,
        builder: OnnxBuilder,
        model: onnx.ModelProto,
        stored: Mapping[str, Any],
        bindings: Bindings,
    ) -> tuple[list[str], list[NpuflowError]]:
        """Defines the model's inputs; the names of those that are fed, and faults of the
        names that the recipe gives."""
        from npuflow.frontends.onnx.inputs import fixed, input_types

        fed = [i for i in model.graph.input if i.name not in stored and i.name not in bindings.constants]
        declared = [i.name for i in model.graph.input]
        faults: list[NpuflowError] = [
            *_absent(bindings.inputs, declared, "input", "inputs"),
            *_absent(bindings.constants, declared, "input", "constants"),
        ]
        try:
            for name, kind in input_types(fed, bindings, builder.notes):
                builder.port(name, kind)
            for info in model.graph.input:
                if info.name in bindings.constants:
                    builder.constant(info.name, fixed(info, bindings))
        except NpuflowError as fault:
            # A name that the model lacks is why a dimension is free: both need not be said.
            wrong = [
                one for one in fault.faults() if not faults or one.where.key != dotted(("model", "inputs"))
            ]
            made = [*declared, *stored, *(o for node in model.graph.node for o in node.output)]
            raise together([*faults, *wrong, *_absent(bindings.outputs, made, "value", "outputs")]) from None
        return [info.name for info in fed], faults

    def runnable(self, source: Source | bytes, bindings: Bindings) -> bytes:
        import onnx

        from npuflow.frontends.onnx.inputs import fixed as held
        from npuflow.frontends.onnx.load import parse, whole
        from npuflow.frontends.onnx.quantized import lifted

        given = _source(source)
        plain = lifted(parse(given.data), given.tensors)
        if not (plain.stated or plain.blocked or bindings.outputs or bindings.constants or given.tensors):
            return given.data
        model = whole(plain.model, given.tensors)
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
        return bytes(model.SerializeToString())

    def rounding(self, source: Source | bytes) -> float:
        from npuflow.frontends.onnx.floats import rounding
        from npuflow.frontends.onnx.load import parse

        return rounding(parse(_source(source).data).graph)


def _source(given: Source | bytes) -> Source:
    return given if isinstance(given, Source) else Source(given)


def _stored(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Initialisers by name; sparse ones made dense."""
    import numpy as np
    import onnx

    from npuflow.frontends.onnx.load import array

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


def _absent(
    asked: Mapping[str, Any] | tuple[str, ...], known: list[str], what: str, table: str
) -> Iterator[ModelError]:
    """Names that the recipe's [model] gives and the model lacks; a fault points at the key that has it."""
    for name in asked:
        if name not in known:
            fault = ModelError(
                f'the model has no {what} "{name}"', hint=suggestion(name, known), code="NF-MODEL-010",
            )
            fault.at(key=dotted(("model", table, *((name,) if isinstance(asked, Mapping) else ()))))
            yield fault


def together(faults: Sequence[NpuflowError]) -> NpuflowError:
    """One fault, or all of them as one error."""
    return faults[0] if len(faults) == 1 else RecipeError(faults)
