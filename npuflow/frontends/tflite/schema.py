"""A TFLite file as plain data: tensors, operators and their options. Only this file
knows the parser's package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.frontends.tflite.sparse import Level, Sparsity, dense, places
from npuflow.ir.types import Array

CUSTOM_OPTIONS = "CustomOptions"                # bytes of an operator that is not of the schema
COMPLEX = "complex64"                           # of tensors between operators alone
TYPES = {
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "FLOAT64": "float64",
    "BOOL": "bool",
    "INT4": "int4",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT16": "int16",
    "UINT16": "uint16",
    "INT32": "int32",
    "UINT32": "uint32",
    "INT64": "int64",
    "UINT64": "uint64",
}


@dataclass(frozen=True)
class Codes:
    """How integers stand for real numbers: real = scale * (code - zero), per tensor or along an axis."""

    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int | None


@dataclass(frozen=True)
class TfliteTensor:
    """A value; `data` for a constant. int4 constants are held as int8. `dtype` is ""
    for types that ONNX lacks."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array | None
    codes: Codes | None
    refused: str = ""                         # why no network can use it
    open: bool = False                        # the converter did not know all of its sizes


@dataclass(frozen=True)
class Operator:
    """`name` as the schema spells it (CONV_2D); a custom one has its own name in
    `custom`. -1: an absent input."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    custom: str = ""


@dataclass(frozen=True)
class TfliteNetwork:
    """The main subgraph of a file; `bodies`: all subgraphs by number, where there are others. `states`:
    names of outputs, each with that of the input that takes its value in the next call."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: tuple[TfliteNetwork, ...] = ()
    states: tuple[tuple[str, str], ...] = ()


def parsed(data: bytes) -> TfliteNetwork:
    """The network in the bytes of a .tflite file."""
    with needs(
        "reading .tflite files needs the package tflite",
        kind=ModelError,
        hint="pip install 'npuflow[tflite]'",
        code="NF-MODEL-062",
    ):
        import tflite
    if data[4:8] != b"TFL3":
        raise ModelError(
            "not a TFLite model",
            because=f"the file ({len(data)} bytes) lacks the mark TFL3 of its format",
            hint="is the file whole? (a download cut short, or a pointer that git-lfs left)",
            code="NF-MODEL-063",
        )
    try:
        return _network(tflite, data)
    except ModelError:
        raise
    except Exception as fault:  # struct.error, IndexError, TypeError, ValueError, by kind of damage
        raise ModelError(
            "the TFLite model is damaged",
            because=f"{type(fault).__name__}: {fault}",
            hint="is the file whole?",
            code="NF-MODEL-064",
        ) from fault


def _network(tflite: ModuleType, data: bytes) -> TfliteNetwork:
    model = tflite.Model.GetRootAs(data, 0)
    if model.Version() != 3:
        raise ModelError(
            f"version {model.Version()} of the TFLite schema is unknown",
            hint="version 3 is read",
            code="NF-MODEL-065",
        )
    if not model.SubgraphsLength():
        raise ModelError("the TFLite model holds no subgraph", code="NF-MODEL-064")
    codes = [_code(tflite, model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())]
    graphs = [_subgraph(tflite, model, i, codes, data) for i in range(model.SubgraphsLength())]
    return replace(graphs[0], bodies=tuple(graphs)) if len(graphs) > 1 else graphs[0]


def _subgraph(
    tflite: ModuleType, model: Any, number: int, codes: list[tuple[str, str]], data: bytes
) -> TfliteNetwork:
    graph = model.Subgraphs(number)
    types = _names(tflite.TensorType)
    sparse = partial(_sparsity, tflite)
    tensors: list[TfliteTensor] = []
    taken: set[str] = set()
    for i in range(graph.TensorsLength()):
        tensors.append(_tensor(graph.Tensors(i), i, model, data, types, taken, sparse))
        taken.add(tensors[-1].name)
    operators = [_operator(tflite, graph.Operators(i), codes) for i in range(graph.OperatorsLength())]
    inputs, outputs = _ints(graph, "Inputs"), _ints(graph, "Outputs")
    used = [*inputs, *outputs, *(t for o in operators for t in (*o.inputs, *o.outputs))]
    if any(not -1 <= t < len(tensors) for t in used) or -1 in (*inputs, *outputs):
        raise ModelError("the TFLite model refers to a tensor that it lacks", code="NF-MODEL-064")
    operators = [o for o in operators if not _made_dense(o, tensors)]
    return TfliteNetwork(tuple(tensors), tuple(operators), inputs, outputs)


def _made_dense(operator: Operator, tensors: list[TfliteTensor]) -> bool:
    """Whether an operator only makes a constant dense, which it was as soon as it was read."""
    if operator.name != "DENSIFY" or not operator.inputs or len(operator.outputs) != 1:
        return False
    held, result = tensors[operator.inputs[0]].data, operator.outputs[0]
    if held is None:
        return False
    tensors[result] = replace(tensors[result], data=held)
    return True


def _names(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if not name.startswith("_")}


def _code(tflite: ModuleType, code: Any) -> tuple[str, str]:
    """Name and custom name of an operator; files of before 2020 state it in another field."""
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _names(tflite.BuiltinOperator).get(number, f"number {number}")
    return name, (code.CustomCode() or b"").decode(errors="replace") if name == "CUSTOM" else ""


def _operator(tflite: ModuleType, operator: Any, codes: list[tuple[str, str]]) -> Operator:
    name, custom = codes[operator.OpcodeIndex()]
    options: dict[str, Any] = {}
    if operator.CustomOptionsLength():
        options[CUSTOM_OPTIONS] = operator.CustomOptionsAsNumpy().tobytes()
    for table, kind, enumeration in (
        (operator.BuiltinOptions(), operator.BuiltinOptionsType(), tflite.BuiltinOptions),
        (operator.BuiltinOptions2(), operator.BuiltinOptions2Type(), tflite.BuiltinOptions2),
    ):
        form = getattr(tflite, _names(enumeration).get(kind, ""), None)
        if table is not None and form is not None:
            options |= _options(form, table)
    return Operator(name, _ints(operator, "Inputs"), _ints(operator, "Outputs"), options, custom)


def _options(form: Any, table: Any) -> dict[str, Any]:
    """Every field of an options table by its name in the generated class."""
    read = form()
    read.Init(table.Bytes, table.Pos)
    given: dict[str, Any] = {}
    for name in vars(form):
        if name[0].isupper() and not name.endswith(("AsNumpy", "Length", "IsNone")) and "GetRoot" not in name:
            if name == "Init" or name.endswith("BufferHasIdentifier"):
                continue
            given[name] = _list(read, name) if f"{name}Length" in vars(form) else getattr(read, name)()
    return given


def _ints(table: Any, name: str) -> tuple[int, ...]:
    return tuple(int(v) for v in _list(table, name))


def _list(table: Any, name: str) -> tuple[Any, ...]:
    return tuple(getattr(table, name)(i) for i in range(getattr(table, f"{name}Length")()))


def _tensor(
    tensor: Any,
    index: int,
    model: Any,
    data: bytes,
    types: Mapping[int, str],
    taken: set[str],
    sparse: Callable[[Any], Sparsity],
) -> TfliteTensor:
    kind = types.get(tensor.Type(), f"number {tensor.Type()}")
    name = (tensor.Name() or b"").decode() or f"tensor{index}"
    name = name if name not in taken else f"{name}#{index}"
    shape = _ints(tensor, "Shape")
    free = any(size < 0 for size in _ints(tensor, "ShapeSignature"))
    if tensor.IsVariable():
        return TfliteTensor(name, shape, "", None, None, "a variable")
    if kind == "COMPLEX64" and _buffer(model.Buffers(tensor.Buffer()), data) is None:
        return TfliteTensor(name, shape, COMPLEX, None, None, open=free)
    if kind not in TYPES:
        return TfliteTensor(name, shape, "", None, None, f"the type {kind}")
    held = _buffer(model.Buffers(tensor.Buffer()), data)
    if held is None:
        values = None
    elif tensor.Sparsity() is None:
        values = _values(held, TYPES[kind], shape)
    else:
        where = places(sparse(tensor.Sparsity()), shape)
        values = dense(_values(held, TYPES[kind], where.shape), where, shape)
    return TfliteTensor(
        name, shape, TYPES[kind], values, _quantised(tensor.Quantization(), TYPES[kind], shape), open=free
    )


def _sparsity(tflite: ModuleType, stated: Any) -> Sparsity:
    levels = []
    for i in range(stated.DimMetadataLength()):
        level = stated.DimMetadata(i)
        if level.Format() == tflite.DimensionType.DENSE:
            levels.append(Level(level.DenseSize()))
            continue
        kinds = level.ArraySegmentsType(), level.ArrayIndicesType()
        segments, indices = (
            _indices(tflite, kind, table)
            for kind, table in zip(kinds, (level.ArraySegments(), level.ArrayIndices()), strict=True)
        )
        levels.append(Level(0, segments, indices))
    return Sparsity(_ints(stated, "TraversalOrder"), _ints(stated, "BlockMap"), tuple(levels))


def _indices(tflite: ModuleType, kind: int, table: Any) -> Array:
    vector = getattr(tflite, _names(tflite.SparseIndexVector)[kind])()
    vector.Init(table.Bytes, table.Pos)
    return np.array(_list(vector, "Values"), np.int64)


def _buffer(buffer: Any, data: bytes) -> Array | None:
    """The bytes of a constant; those of a large file lie behind its tables."""
    if buffer.Offset() > 1:
        return np.frombuffer(data, np.uint8, buffer.Size(), buffer.Offset())
    return buffer.DataAsNumpy() if buffer.DataLength() else None


def _values(held: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if dtype != "int4":
        return (
            np.frombuffer(held.tobytes(), np.dtype(dtype).newbyteorder("<"), count)
            .astype(dtype)
            .reshape(shape)
        )
    pairs = np.stack([held & 15, held >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    return np.where(pairs > 7, pairs - 16, pairs).astype(np.int8).reshape(shape)


def _quantised(stated: Any, dtype: str, shape: tuple[int, ...]) -> Codes | None:
    if (
        stated is None
        or not stated.ScaleLength()
        or dtype not in ("int4", "int8", "uint8", "int16", "int32", "int64")
    ):
        return None
    scale = tuple(float(stated.Scale(i)) for i in range(stated.ScaleLength()))
    zero = _ints(stated, "ZeroPoint") or (0,) * len(scale)
    axis = stated.QuantizedDimension() if len(scale) > 1 else None
    if len(zero) == 1:
        zero *= len(scale)
    if len(zero) != len(scale) or (
        axis is not None and (not 0 <= axis < len(shape) or shape[axis] != len(scale))
    ):
        raise ModelError("scales and zero points of a tensor do not fit its shape", code="NF-MODEL-064")
    return Codes(scale, zero, axis)
