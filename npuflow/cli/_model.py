"""What a model file says about its own inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npuflow.base.errors import ModelError
from npuflow.base.wording import first_line

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
    """The outside of a model."""

    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    opset: int
    nodes: int


def ports(path: Path) -> Ports:
    """Read a model's inputs (weights among them left out) and outputs; weights in
    other files are not read."""
    import onnx

    if path.suffix.lower() != ".onnx":
        return _read(path)
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
        tuple(_port(value) for value in model.graph.input if value.name not in weights),
        tuple(_port(value) for value in model.graph.output),
        opset,
        len(model.graph.node),
    )


def _read(path: Path) -> Ports:
    """Of other formats than ONNX: the ends of what the front end reads."""
    import onnx

    from npuflow.frontends import Bindings
    from npuflow.input.sources import gathered
    from npuflow.onnx.run import EXPORT_OPSET
    from npuflow.onnx.types import ELEMENTS

    _, reader, source = gathered(path)
    graph = reader.read(source, Bindings()).graph

    def port(name: str) -> ModelPort:
        kind = graph.type(name)
        dtype = onnx.TensorProto.DataType.Name(ELEMENTS[kind.dtype]).lower()
        return ModelPort(name, dtype, tuple(d if d >= 0 else None for d in kind.shape))

    kept = {name for pair in graph.state for name in pair}    # nobody feeds or reads these
    inputs, outputs = (
        tuple(port(name) for name in names if name not in kept) for names in (graph.inputs, graph.outputs)
    )
    return Ports(inputs, outputs, EXPORT_OPSET, len(graph.nodes))


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
