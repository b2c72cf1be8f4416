"""A TFLite file as an ONNX model: every operator by its converter, codes as pairs of
QuantizeLinear and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from onnx import helper

from npuflow.base.errors import ModelError
from npuflow.frontends.tflite.elements import ELEMENTS
from npuflow.frontends.tflite.network import OPSET, Builder, UnsupportedError
from npuflow.frontends.tflite.products import PRODUCTS
from npuflow.frontends.tflite.schema import Network, Operator, parsed
from npuflow.frontends.tflite.shapes import SHAPES
from npuflow.frontends.tflite.spatial import SPATIAL

CONVERTERS: dict[str, Callable[[Builder, Operator], None]] = {**ELEMENTS, **PRODUCTS, **SHAPES, **SPATIAL}


def converted(path: Path) -> bytes:
    """The ONNX model of a .tflite file."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read", because=fault.strerror or str(fault), code="NF-MODEL-001",
        ) from fault
    return model(data)


def model(data: bytes) -> bytes:
    """The ONNX model of a .tflite file's bytes."""
    network = parsed(data)
    try:
        return _built(network)
    except ModelError:
        raise
    # options and shapes of a damaged file fit nothing, in as many ways as there are operators
    except Exception as fault:
        raise ModelError(
            "the TFLite model is damaged",
            because=f"{type(fault).__name__}: {fault}",
            hint="is the file whole?",
            code="NF-MODEL-064",
        ) from fault


def _built(network: Network) -> bytes:
    builder = Builder(network)
    inputs = [builder.port(index) for index in network.inputs]
    refused: Counter[str] = Counter()
    lost: set[int] = set()                    # what refused operators would have given
    for operator in network.operators:
        reason = _convert(builder, operator, lost)
        if reason:
            refused[reason] += 1
        if reason is not None:
            lost.update(operator.outputs)
    if refused:
        listed = [f"{name} ({count} times)" if count > 1 else name for name, count in refused.items()]
        raise ModelError(
            f"{sum(refused.values())} operators of the TFLite model cannot be converted",
            because="; ".join(listed),
            hint="export the part without them, or export the model to ONNX",
            code="NF-MODEL-066",
        )
    for index in network.outputs:
        if builder.data(index) is not None:
            builder.node("Identity", [builder.value(index)], builder.tensor(index).name)
    outputs = [builder.info(index) for index in network.outputs]
    graph = helper.make_graph(builder.nodes, "tflite", inputs, outputs, list(builder.constants.values()))
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10, producer_name="npuflow"
    )
    try:
        return bytes(made.SerializeToString(deterministic=True))
    except ValueError as fault:
        raise ModelError("the model exceeds 2 GiB", because=str(fault), code="NF-MODEL-027") from fault


def _convert(builder: Builder, operator: Operator, lost: set[int]) -> str | None:
    """Adds an operator; else why not, and "" where that is another operator's fault."""
    name = f"{operator.name} {operator.custom}".rstrip()
    broken = [
        builder.tensor(t).refused
        for t in (*operator.inputs, *operator.outputs)
        if t >= 0 and builder.tensor(t).refused
    ]
    if operator.name not in CONVERTERS:
        return name
    if broken:
        return f"{name}: {broken[0]}"
    if lost.intersection(operator.inputs):
        return ""
    missing = next(
        (t for t in operator.inputs if t >= 0 and builder.data(t) is None and t not in builder.forms), None
    )
    if missing is not None:
        raise ModelError(f'nothing produces tensor "{builder.tensor(missing).name}"', code="NF-MODEL-064")
    builder.origin = builder.tensor(operator.outputs[0]).name
    try:
        CONVERTERS[operator.name](builder, operator)
        builder.finish()
    except UnsupportedError as fault:
        return f"{name}: {fault}"
    return None
