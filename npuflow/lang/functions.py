"""Functions derived from the operator registry: signatures and docs come from operator files and schemas."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npuflow.base.errors import ModelError, NpuflowError, UsageError, suggestion
from npuflow.base.registry import caption
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.ir.op import OPS, Op
from npuflow.lang.tensor import Call, Tensor, constant
from npuflow.onnx.run import EXPORT_OPSET

if TYPE_CHECKING:
    import onnx

Function = Callable[..., Any]
# kept nodes of other formats, and casts between codes that only the quantiser makes
HIDDEN = ("host", "requantize", "quantizelinear", "dequantizelinear")


def names() -> tuple[str, ...]:
    """The operators that a network may be written with."""
    return tuple(name for name in OPS.names() if name not in HIDDEN)


def onnx_operator(kind: str, *operands: Any, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
    """Any operator of ONNX's default domain by its name, with its attributes. Those without an operator file
    are spelled out by rules, or run on the host."""
    schema = schema_of(kind, "")
    if schema is None:
        raise UsageError(f'ONNX has no operator "{kind}"', code="NF-USAGE-092")
    return applied(Called(kind.lower(), kind, "", schema), operands, attributes, name, outputs)


@cache
def function(name: str) -> Function:
    """The function of an operator file."""
    op = OPS[name]
    kind, domain = op.onnx or op.__name__, op.domain
    schema = schema_of(kind, domain)
    signature = signature_of(op, schema)
    formal = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]

    def call(*operands: Any, **given: Any) -> Any:
        try:
            bound = signature.bind(*operands, **given)
        except TypeError as fault:
            wrong = next((k for k in given if k not in signature.parameters), "")
            raise UsageError(
                f"{name} does not take these arguments",
                because=str(fault),
                hint=suggestion(wrong, tuple(signature.parameters)) if wrong else f"{name}{signature}",
                code="NF-USAGE-093",
            ) from None
        found: list[Any] = []
        for parameter in formal:
            value = bound.arguments.get(parameter.name)
            found += _several(value) if parameter.kind is parameter.VAR_POSITIONAL else [value]
        own = {p.name for p in formal} | {"name"}
        attributes = {k: v for k, v in bound.arguments.items() if k not in own and v is not None}
        return applied(Called(name, kind, domain, schema), found, attributes, str(given.get("name", "")))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = documentation(name, op, schema)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__module__ = "npuflow.lang"
    return call


def _several(value: Any) -> list[Any]:
    """Operands of a function that takes any number: one by one, or as one list."""
    rows = list(value or ())
    return list(rows[0]) if len(rows) == 1 and isinstance(rows[0], list | tuple) else rows


def schema_of(kind: str, domain: str) -> Any:
    """ONNX's schema of an operator, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(kind, EXPORT_OPSET, domain)
    except onnx.defs.SchemaError:
        return None


def signature_of(op: type[Op], schema: Any) -> inspect.Signature:
    """Operands by position, then attributes by name with their defaults."""
    kinds = inspect.Parameter
    if schema is None:
        taken = [p for n, p in inspect.signature(op.infer).parameters.items() if n != "self"]
        operands = [
            p.replace(annotation=kinds.empty, name="inputs" if p.kind is p.VAR_POSITIONAL else p.name)
            for p in taken
        ]
        attributes = {n: f for n, f in inspect.signature(op).parameters.items() if n != "clip"}
        more = [kinds(n, kinds.KEYWORD_ONLY, default=_default(f)) for n, f in attributes.items()]
    else:
        operands = list(_operands(schema))
        more = [
            kinds(n, kinds.KEYWORD_ONLY, default=_schema_default(a))
            for n, a in sorted(schema.attributes.items())
        ]
    taken_names = {p.name for p in operands}
    keywords = [p for p in more if p.name not in taken_names]
    return inspect.Signature([*operands, *keywords, kinds("name", kinds.KEYWORD_ONLY, default="")])


def _operands(schema: Any) -> Iterator[inspect.Parameter]:
    kinds = inspect.Parameter
    for one in schema.inputs:
        if one.option == type(one.option).Variadic:
            yield kinds("inputs", kinds.VAR_POSITIONAL)
            return
        optional = one.option == type(one.option).Optional
        yield kinds(
            one.name.lower(), kinds.POSITIONAL_OR_KEYWORD, default=None if optional else kinds.empty
        )


def _default(parameter: inspect.Parameter) -> Any:
    return None if parameter.default is inspect.Parameter.empty else parameter.default


def _schema_default(attribute: Any) -> Any:
    import onnx

    given = attribute.default_value
    if not given.name:
        return None
    value = onnx.helper.get_attribute_value(given)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else round(value, 6) if isinstance(value, float) else value


def documentation(name: str, op: type[Op], schema: Any) -> str:
    """What the operator's file says of itself, and its operands and attributes."""
    lines = [caption(sys.modules[OPS.source(name).module].__doc__ or op.__doc__), ""]
    if schema is not None:
        for one in schema.inputs:
            lines.append(f"{one.name.lower()}: {_sentence(one.description)}")
        for key, attribute in sorted(schema.attributes.items()):
            lines.append(f"{key}: {_sentence(attribute.description)}")
    return "\n".join(lines).rstrip()


def _sentence(text: str) -> str:
    return caption(" ".join(text.split()).replace(". ", ".\n", 1)) or "see ONNX"


class Called(NamedTuple):
    """The operator that a function stands for: the function's name, and ONNX's; no schema: ONNX has none."""

    shown: str
    kind: str
    domain: str
    schema: Any


def applied(
    called: Called, operands: Sequence[Any], attributes: Mapping[str, Any], name: str, outputs: int = 0
) -> Any:
    """An operator applied to tensors and plain values: its results, with their types."""
    shown, kind, domain, schema = called
    rows = list(operands)
    while rows and rows[-1] is None:
        rows.pop()
    tensors = [_tensor(row, i, rows, schema, shown) for i, row in enumerate(rows)]
    ids = [f"i{i}" if t is not None else "" for i, t in enumerate(tensors)]
    builder = NodeBuilder({"": EXPORT_OPSET, domain: EXPORT_OPSET if not domain else 1})
    for own, tensor in zip(ids, tensors, strict=True):
        if tensor is not None and tensor.array is not None:
            builder.constant(own, tensor.array)
        elif tensor is not None:
            builder.input(own, tensor.type)
    count = outputs or _results(shown, attributes, tensors)
    made = [f"o{i}" for i in range(count)]
    node = _node(kind, domain, ids, made, attributes, shown)
    try:
        builder.node(node, builder.version(domain))
    except NpuflowError as fault:
        raise _faulty(shown, fault.because or fault.message, tensors) from fault
    except (ValueError, IndexError, TypeError, KeyError, AssertionError) as fault:
        raise _faulty(shown, f"{type(fault).__name__}: {fault}", tensors) from fault
    values = {k: v for k, v in builder.values.items() if k not in ids}
    inputs = {own: t for own, t in zip(ids, tensors, strict=True) if t is not None}
    call = Call(name, shown, tuple(builder.nodes), values, builder.arrays, inputs)
    results = tuple(
        Tensor(builder.type(one), name if count == 1 else "", builder.arrays.get(one), call, one)
        for one in made
    )
    return results[0] if len(results) == 1 else results


def _node(
    kind: str, domain: str, ids: list[str], made: list[str], attributes: Mapping[str, Any], shown: str
) -> onnx.NodeProto:
    import onnx

    plain: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()}
    try:
        return onnx.helper.make_node(kind, ids, made, domain=domain, **plain)
    except (TypeError, ValueError) as fault:
        raise UsageError(
            f"{shown}: an attribute has a value that ONNX has no form for",
            because=str(fault),
            code="NF-USAGE-100",
        ) from fault


def _results(shown: str, attributes: Mapping[str, Any], tensors: Sequence[Tensor | None]) -> int:
    """How many results an operator gives."""
    if shown != "split":
        return 1
    sizes = tensors[1] if len(tensors) > 1 else None
    if sizes is not None:
        return int(sizes.shape[0])
    return int(attributes.get("num_outputs", 2))


def _tensor(value: Any, index: int, operands: Sequence[Any], schema: Any, shown: str) -> Tensor | None:
    """An operand; plain values become constants of the type that the operator wants there."""
    if value is None or isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise UsageError(
            f"{shown}: operand {index + 1} is {type(value).__name__}",
            hint="a tensor of lang.input or of another function, numbers, or an array", code="NF-USAGE-094",
        )
    if isinstance(value, np.ndarray):
        return constant(array)
    return constant(array, dtype=_wanted(array, index, operands, schema))


def _wanted(array: Any, index: int, operands: Sequence[Any], schema: Any) -> str:
    """The element type of a plain value: that of a tensor that must have the same one, else what the
    operator takes."""
    formal = list(schema.inputs) if schema is not None else []

    def kind(i: int) -> str:
        return str(formal[min(i, len(formal) - 1)].type_str) if formal else "T"

    for i, other in enumerate(operands):
        if isinstance(other, Tensor) and kind(i) == kind(index):
            return other.dtype
    allowed = formal[min(index, len(formal) - 1)].types if formal else set()
    if "tensor(float)" not in allowed and formal:
        return "int64" if "tensor(int64)" in allowed else str(array.dtype)
    return "float32" if array.dtype.kind == "f" or formal else "int64"


def _faulty(shown: str, because: str, tensors: Sequence[Tensor | None]) -> ModelError:
    given = ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors if t is not None)
    return ModelError(
        f"{shown} cannot be applied to {given or 'nothing'}", because=because, code="NF-MODEL-080",
    )


def apply(name: str, *operands: Any) -> Any:
    """What Python's own operators do with tensors."""
    return function(name)(*operands)
