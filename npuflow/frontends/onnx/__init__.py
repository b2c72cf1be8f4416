"""ONNX models, opset 7 to the newest: every valid one becomes a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from npuflow.base.errors import ModelError, NpuflowError, RecipeError, suggestion
from npuflow.base.tables_toml import dotted
from npuflow.ir.contracts import FRONTENDS, Bindings, Reading
from npuflow.ir.graph import prune
from npuflow.ir.onnx_nodes import ordered
from npuflow.ir.onnx_types import PLAIN, UNRANKED, from_proto, is_tensor
from npuflow.ir.op import OPS
from npuflow.ir.types import UNKNOWN, TensorType, Value

if TYPE_CHECKING:
    import onnx


@FRONTENDS.entry
class Onnx:
    """`.onnx` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".onnx",)

    def files(self, path: Path) -> tuple[Path, ...]:
        from npuflow.frontends.onnx.load import external_files

        return (path, *external_files(path))

    def gather(self, path: Path) -> bytes:
        from npuflow.frontends.onnx.load import gather

        return gather(path)

    def operators(self, data: bytes) -> tuple[str, ...]:
        from npuflow.frontends.onnx.load import parse
        from npuflow.frontends.onnx.quantized import lifted
        from npuflow.frontends.onnx.upgrade import words

        model = lifted(parse(data)).model
        made = words(model.graph.node, {o.domain: o.version for o in model.opset_import})
        if made is None:                 # what onnx's converter makes shows only when it has the types
            return OPS.names()
        return tuple(sorted({"host"} | {name for name in map(str.lower, made) if name in OPS}))

    def read(self, data: bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends.onnx.build import Builder
        from npuflow.frontends.onnx.load import parse
        from npuflow.frontends.onnx.quantized import lifted

        source = lifted(parse(data))
        model, notes = source.model, list(source.notes)
        builder = Builder({o.domain: o.version for o in model.opset_import})
        stored = _stored(model)
        inputs, faults = [], list(_unknown(bindings, [i.name for i in model.graph.input]))
        for info in model.graph.input:
            try:
                if info.name in bindings.constants:
                    builder.constant(info.name, _fixed(info, bindings))
                elif info.name not in stored:
                    builder.define(Value(info.name, _bound(info, bindings, notes)))
                    inputs.append(info.name)
            except ModelError as fault:          # what else is wrong shows with the input as the model has it
                faults.append(fault)
                builder.define(Value(info.name, _bound(info, Bindings(dims=bindings.dims), notes)))
                inputs.append(info.name)
        for name, tensor in stored.items():
            builder.tensor(name, tensor)
        nodes = ordered(model.graph.node, builder.values)
        if nodes is None:
            raise ModelError("the nodes of the model form a cycle, or one reads a value that nothing produces")
        try:
            builder.add_all(nodes)
        except ModelError as fault:
            raise together([*faults, fault]) from None
        if bindings.constants and not inputs:
            faults.append(
                ModelError("no input is left", because="every input is held constant", hint="[model] constants holds too many")
            )
        outputs = bindings.outputs or tuple(o.name for o in model.graph.output)
        faults += _absent(outputs, list(builder.values), "value", "outputs")
        if faults:
            raise together(faults)
        graph = prune(builder.graph(inputs, outputs))
        return Reading(graph, tuple(notes), {name: q for name, q in source.stated.items() if name in graph.values})


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
            raise ModelError(f'sparse tensor "{sparse.values.name}" is damaged', because=str(fault)) from fault
        stored[sparse.values.name] = onnx.numpy_helper.from_array(dense, sparse.values.name)
    return stored


def _bound(info: onnx.ValueInfoProto, bindings: Bindings, notes: list[str]) -> TensorType:
    """An input's type with the recipe's sizes; a free first dimension is the batch, 1 unless the recipe says other."""
    kind = from_proto(info.type)
    wanted, place = bindings.inputs.get(info.name), dotted(("model", "inputs", info.name))
    if not is_tensor(kind):
        if wanted is not None:
            raise ModelError(f'input "{info.name}" is no tensor and takes no shape').at(value=info.name, key=place)
        return kind
    if wanted is not None:
        empty = [d == 0 for d in kind.shape] if len(kind.shape) == len(wanted) else [False] * len(wanted)
        if any(d < 1 and not (d == 0 and own) for d, own in zip(wanted, empty, strict=True)):
            message = f'input "{info.name}" cannot have the shape {list(wanted)}'
            because = "every dimension holds at least 1, unless the model itself says 0"
            raise ModelError(message, because=because).at(value=info.name, key=place)
        if kind.shape != UNRANKED and not _fits(kind.shape, wanted):
            raise ModelError(
                f'input "{info.name}" cannot have the shape {list(wanted)}', because=f"the model declares {_shown(info)}"
            ).at(value=info.name, key=place)
        return TensorType(tuple(wanted), kind.dtype)
    if kind.shape == UNRANKED:
        notes.append(f'the rank of input "{info.name}" is free; [model] inputs binds it')
        return kind
    names = [d.dim_param for d in info.type.tensor_type.shape.dim]
    shape = [bindings.dims.get(n, d) if d < 0 else d for n, d in zip(names, kind.shape, strict=True)]
    for index, size in enumerate(shape):
        if size < 0 and index == 0:
            shape[0] = 1
            notes.append(f'dimension 0 ({names[0] or "?"}) of input "{info.name}" is free and taken as 1')
        elif size < 0:
            notes.append(f'dimension {index} ({names[index] or "?"}) of input "{info.name}" is free; [model] inputs binds it')
    return TensorType(tuple(shape), kind.dtype)


def _fits(declared: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(wanted) == len(declared) and all(d in (w, UNKNOWN) for d, w in zip(declared, wanted, strict=True))


def _fixed(info: onnx.ValueInfoProto, bindings: Bindings) -> Any:
    """The array of an input that the recipe holds constant."""
    import numpy as np

    kind = from_proto(info.type)
    shape = bindings.inputs.get(info.name, kind.shape)
    if kind.dtype not in PLAIN or any(d < 0 for d in shape):
        message = f'input "{info.name}" cannot be held constant'
        raise ModelError(message, because=f"it is declared {_shown(info)}").at(
            value=info.name, key=dotted(("model", "constants", info.name))
        )
    return np.full(shape, bindings.constants[info.name], kind.dtype)


def _shown(info: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in info.type.tensor_type.shape.dim]


def _unknown(bindings: Bindings, declared: list[str]) -> Iterator[ModelError]:
    for key, asked in (("inputs", bindings.inputs), ("constants", bindings.constants)):
        yield from _absent(asked, declared, "input", key)


def _absent(asked: Mapping[str, Any] | tuple[str, ...], known: list[str], what: str, table: str) -> Iterator[ModelError]:
    """Names that the recipe's [model] gives and the model lacks; a fault points at the key that has it."""
    for name in asked:
        if name not in known:
            fault = ModelError(f'the model has no {what} "{name}"', hint=suggestion(name, known))
            fault.at(key=dotted(("model", table, *((name,) if isinstance(asked, Mapping) else ()))))
            yield fault


def together(faults: Sequence[NpuflowError]) -> NpuflowError:
    """One fault, or all of them as one error."""
    return faults[0] if len(faults) == 1 else RecipeError(faults)
