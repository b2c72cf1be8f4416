"""What a model file says about its own inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from npuflow.base.errors import ModelError
from npuflow.base.wording import first_line

if TYPE_CHECKING:
    from npuflow.ir.types import TensorType

FORMATS = "is the file whole? its suffix names its format; others are exported to ONNX first"


@dataclass(frozen=True)
class ModelPort:
    """An input or output: its name, element type, and shape with names or None for free dimensions."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}, any shape"
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Ports:
    """The outside of a model. `about`: what it is, in a line; `sizes`: of free dimensions that the recipe
    states by name; `checkpoint`: of a language model; `text`: whether texts become its inputs, by a tokenizer
    of its own; `sequences`: whether its file states what is kept from run to run, so that a sample may be
    several."""

    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    about: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    checkpoint: bool = False
    text: bool = False
    sequences: bool = False


def ports(path: Path, sizes: Mapping[str, int] = MappingProxyType({})) -> Ports:
    """Read a model's inputs (weights among them left out) and outputs; weights in
    other files are not read. `sizes`: of free dimensions by their names."""
    import onnx

    if path.suffix.lower() != ".onnx":
        return _read(path, sizes)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(
            f'"{path}" cannot be read',
            because=error.strerror or str(error),
            code="NF-MODEL-001",
        ) from None
    except Exception as error:  # protobuf's errors share no base class
        raise ModelError(
            f'"{path}" is not an ONNX model',
            because=first_line(error),
            hint=FORMATS,
            code="NF-MODEL-002",
        ) from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(
            f'"{path}" is not an ONNX model', because="it has no graph", hint=FORMATS, code="NF-MODEL-002"
        )
    weights = {tensor.name for tensor in model.graph.initializer}
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    return Ports(
        tuple(_sized(_port(value), sizes) for value in model.graph.input if value.name not in weights),
        tuple(_sized(_port(value), sizes) for value in model.graph.output),
        f"{len(model.graph.node)} nodes, opset {opset}",
        sizes,
    )


def _sized(port: ModelPort, sizes: Mapping[str, int]) -> ModelPort:
    """The port with the sizes of dimensions that have such names."""
    if port.shape is None:
        return port
    return ModelPort(port.name, port.dtype, tuple(sizes.get(d, d) if isinstance(d, str) else d
                                                  for d in port.shape))


def _read(path: Path, sizes: Mapping[str, int]) -> Ports:
    """Of other formats than ONNX: what the model tells of itself, or the ends of what the front end reads."""
    from npuflow.frontends import Bindings, Outlined
    from npuflow.input.sources import gathered
    from npuflow.onnx.run import EXPORT_OPSET

    _, reader, source = gathered(path)
    if isinstance(reader, Outlined):
        told = reader.outline(source, sizes)
        inputs, outputs = (
            tuple(port(*one) for one in side.items()) for side in (told.inputs, told.outputs)
        )
        about = f"{told.facts['family']}, {told.facts['layers']} layers"
        text = told.facts.get("tokenizer", "none") != "none"
        return Ports(inputs, outputs, about, told.sizes, checkpoint=True, text=text)
    graph = reader.read(source, Bindings(dims=sizes)).graph
    kept = {name for pair in graph.state for name in pair}    # nobody feeds or reads these
    inputs, outputs = (
        tuple(port(name, graph.type(name)) for name in names if name not in kept)
        for names in (graph.inputs, graph.outputs)
    )
    about = f"{len(graph.nodes)} nodes, opset {EXPORT_OPSET}"
    return Ports(inputs, outputs, about, sizes, sequences=bool(graph.state))


def port(name: str, kind: TensorType) -> ModelPort:
    import onnx

    from npuflow.onnx.types import ELEMENTS

    dtype = onnx.TensorProto.DataType.Name(ELEMENTS[kind.dtype]).lower()
    return ModelPort(name, dtype, tuple(d if d >= 0 else None for d in kind.shape))


def _port(value: object) -> ModelPort:
    import onnx

    assert isinstance(value, onnx.ValueInfoProto)
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return ModelPort(value.name, value.type.WhichOneof("value") or "unknown", None)
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return ModelPort(value.name, dtype, None)
    dims = [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]
    return ModelPort(value.name, dtype, tuple(dims))
