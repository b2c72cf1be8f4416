"""ONNX models as backends, on onnxruntime; quantised ones, and what front ends read, as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.errors import DataError, ModelError
from npuflow.base.wording import first_line
from npuflow.frontends import Reading
from npuflow.input.given import array_of, converted
from npuflow.input.pixels.pixels import given, pixel_inputs
from npuflow.ir.types import QuantType
from npuflow.onnx.export import export_model
from npuflow.onnx.session import opened
from npuflow.run.state import Pairs, metadata, rings_of, state_of
from npuflow.runner.backend import Dump, Exact
from npuflow.runner.nan import FLOATS
from npuflow.runner.ports import Array, Port, Sample

if TYPE_CHECKING:
    import onnx


NUMBERS = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "float16", "float32", "float64"
}
_SATURATES = "onnxruntime's 8-bit kernels saturate on CPUs without VNNI"


class OnnxModel:
    """A model in a file, or its bytes. `dump`: every tensor is an output."""

    exact: Exact = "onnxruntime"

    def __init__(self, source: Path | bytes, name: str, threads: int = 1, dump: bool = False) -> None:
        self.name = name
        self.preparation: Mapping[str, Any] | None = None
        self.notes: tuple[str, ...] = ()
        quantised = _quantised(source)
        if quantised:
            self.notes = (
                f"{name} runs in floats between its roundings (session.disable_quant_qdq = 1): {_SATURATES}",
            )
        try:
            own, loaded = _exposed(source) if dump else (None, source)
            self.session = opened(loaded, threads=threads, float_codes=quantised)
        except Exception as error:  # onnxruntime's errors share no public base class
            raise ModelError(
                f'"{name}" does not load',
                because=first_line(error),
                code="NF-MODEL-004",
            ) from error
        self.pixels = pixel_inputs(self.session)
        self._zeros = state_of(self.session)
        self.state: Pairs = tuple(self._zeros)
        self.rings = rings_of(self.session.get_modelmeta().custom_metadata_map)
        self.inputs = tuple(self._port(i.name, i.type, i.shape) for i in self.session.get_inputs())
        self.own = own  # outputs of the model's own; the others are dumped
        self.outputs = tuple(
            Port(o.name, _numpy(o.type), tuple(map(_dim, o.shape))) for o in self.session.get_outputs()
        )

    @property
    def start(self) -> Mapping[str, Array]:
        """What the inputs that hold state have at first."""
        ports = {port.name: port for port in self.inputs}
        zeros = {name: zero for (_, name), zero in self._zeros.items()}
        return {name: np.full(ports[name].shape, zero, ports[name].dtype) for name, zero in zeros.items()}

    def fed(self, sample: Sample) -> dict[str, Array]:
        found = {}
        for port in self.inputs:
            if port.name not in sample:
                raise DataError(
                    f'no data for the input "{port.name}"',
                    because=f"given: {', '.join(sample) or 'nothing'}",
                    code="NF-DATA-012",
                )
            array = array_of(port.name, sample[port.name], port.dtype)
            if not port.holds(array):
                raise DataError(
                    f'the input "{port.name}" has shape {array.shape}; the model expects {port.shape}',
                    code="NF-DATA-014",
                )
            if port.name in self.pixels:
                one, dtype = self.pixels[port.name]
                array = given(array, one, dtype, port.name)
            elif port.dtype in NUMBERS:
                array = converted(port.name, array, port.dtype)
            found[port.name] = array
        return found

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        names = [o.name for o in self.outputs]
        if dump is not True:
            also = set(dump or ())
            names = [n for i, n in enumerate(names) if self.own is None or i < self.own or n in also]
        try:
            return [dict(zip(names, self.session.run(names, dict(one)), strict=True)) for one in samples]
        except Exception as error:  # as above
            raise DataError(
                "onnxruntime rejects the inputs of the model",
                because=first_line(error),
                code="NF-DATA-011",
            ) from error

    def _port(self, name: str, kind: str, shape: Sequence[Any]) -> Port:
        pixels = name in self.pixels
        dtype = "float32" if pixels else _numpy(kind)
        loses = pixels or (bool(self.notes) and dtype in FLOATS)
        return Port(name, dtype, tuple(map(_dim, shape)), codes=pixels, pixels=pixels, loses_nan=loses)


def _quantised(source: Path | bytes) -> bool:
    """Whether a model rounds with QuantizeLinear; one that does not load is left to the session's message."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = (
            onnx.load_model_from_string(source)
            if isinstance(source, bytes)
            else onnx.load(str(source), load_external_data=False)
        )
    except (DecodeError, OSError, ValueError):
        return False
    return any(node.op_type == "QuantizeLinear" for node in model.graph.node)


def _exposed(source: Path | bytes) -> tuple[int, bytes]:
    """How many outputs a model has, and the model with every tensor that a node makes as an output; types
    are left to onnxruntime."""
    import onnx

    model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
    own = len(model.graph.output)
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    return own, bytes(model.SerializeToString())


def _numpy(kind: str) -> str:
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64", "string": "str"}.get(inner, inner)


def _dim(d: Any) -> int:
    return d if isinstance(d, int) else -1


def stated_model(reading: Reading) -> bytes:
    """QuantizeLinear and back around every activation whose codes are stated. Constants hold the values of
    their codes already. The model's metadata have the state that the source itself states."""
    import onnx

    model = onnx.load_model_from_string(export_model(reading.graph, metadata=metadata(reading.graph)))
    made = {o for node in reading.graph.nodes for o in node.outputs}
    stated = {n: q for n, q in reading.stated.items() if n in made or n in reading.graph.inputs}
    nodes: list[onnx.NodeProto] = []
    fed = {name for name in stated if name in reading.graph.inputs}
    for name in fed:
        nodes += _rounding(model.graph, name, name, f"{name}:rounded", stated[name])
    for node in model.graph.node:
        node.input[:] = [f"{name}:rounded" if name in fed else name for name in node.input]
        own = [name for name in node.output if name in stated]
        node.output[:] = [f"{name}:exact" if name in stated else name for name in node.output]
        nodes.append(node)
        for name in own:
            nodes += _rounding(model.graph, f"{name}:exact", name, name, stated[name])
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copied)
    return bytes(model.SerializeToString())


def _rounding(
    graph: onnx.GraphProto, source: str, name: str, result: str, quant: QuantType
) -> list[onnx.NodeProto]:
    """The pair of nodes from `source` to `result`; scale and zero point are stored under `name`."""
    from onnx import helper, numpy_helper

    width = next(w for w in (8, 16, 32) if quant.bits <= w)
    dtype = f"int{width}" if quant.signed else f"uint{width}"
    scale, zero = np.array(quant.scale, np.float32), np.array(quant.zero_point, dtype)
    if quant.per_tensor:
        scale, zero = scale.reshape(()), zero.reshape(-1)[:1].reshape(())
    else:
        zero = np.broadcast_to(zero, scale.shape).copy()
    parameters = [f"{name}:scale", f"{name}:zero"]
    graph.initializer.extend(
        numpy_helper.from_array(a, n) for a, n in zip((scale, zero), parameters, strict=True)
    )
    codes = f"{name}:codes"
    pair = [
        helper.make_node("QuantizeLinear", [source, *parameters], [codes]),
        helper.make_node("DequantizeLinear", [codes, *parameters], [result]),
    ]
    for node in pair if quant.axis is not None else ():
        node.attribute.append(helper.make_attribute("axis", quant.axis))
    return pair
