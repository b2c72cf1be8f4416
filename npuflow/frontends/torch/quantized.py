"""Programs of PyTorch's pt2e quantisation: their roundings in ONNX's form, which becomes stated codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchNetwork, TorchOperatorError, TorchValue
from npuflow.onnx.types import value_info

LIBRARY = "quantized_decomposed"
WIDTHS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32}


def registered() -> None:
    """Declares the operators of the library, where this torch has it."""
    try:
        import torch.ao.quantization.fx._decomposed  # noqa: F401
    except ImportError:
        return


def rounding(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """quantize_per_tensor and _per_channel. Fewer codes than the type has are a Clip of what is rounded."""
    scale, zero, axis, (low, high, dtype) = _parameters(net, node, args)
    x, bits = args[0], WIDTHS[dtype]
    first = 0 if dtype.startswith("u") else -(1 << (bits - 1))
    if (low, high) != (first, first + (1 << bits) - 1):
        if scale.size > 1:
            raise TorchOperatorError("fewer codes than the type has, with a scale for each channel")
        ends = ((np.float64(code) - zero) * scale for code in (low, high))
        x = net.apply("Clip", x, *(net.constant(end.astype(np.float32).reshape(())) for end in ends))
    return net.apply("QuantizeLinear", x, *_constants(net, scale, zero, dtype), **axis)


def back(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    scale, zero, axis, (_, _, dtype) = _parameters(net, node, args)
    return net.apply("DequantizeLinear", args[0], *_constants(net, scale, zero, dtype), **axis)


def _parameters(net: TorchNetwork, node: Any, args: list[Any]) -> tuple[Any, Any, dict[str, int], Any]:
    """Scale, zero point, the axis as an attribute, and lowest code, highest code and type."""
    scale, zero, *rest = args[1:]
    channels = "per_channel" in str(node.target)
    if any(isinstance(one, TorchValue) for one in (scale, zero)):
        raise TorchOperatorError("a scale that the network computes")
    held = np.asarray(net.array(scale) if hasattr(scale, "detach") else scale, np.float32)
    zeros = np.asarray(net.array(zero) if hasattr(zero, "detach") else zero)
    axis = {"axis": int(rest[0])} if channels else {}
    low, high, kind = rest[1:4] if channels else rest[:3]
    dtype = str(kind).removeprefix("torch.")
    if dtype not in WIDTHS:
        raise TorchOperatorError(f"codes of {dtype}")
    shape = (-1,) if channels else ()
    return held.reshape(shape), zeros.astype(np.int64).reshape(shape), axis, (int(low), int(high), dtype)


def _constants(net: TorchNetwork, scale: Any, zero: Any, dtype: str) -> list[str]:
    return [net.constant(scale), net.constant(zero.astype(dtype))]


def reading(net: TorchNetwork, fed: Sequence[str], wanted: Sequence[str]) -> Reading:
    """The network as its nodes in ONNX's form, whose reader knows what pairs of roundings mean."""
    import onnx

    made = {name for node in net.nodes for name in node.output}
    held = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in net.graph.arrays.items()
        if name not in made
    ]
    inputs, outputs = ([value_info(name, net.graph.type(name)) for name in names] for names in (fed, wanted))
    graph = onnx.helper.make_graph(net.nodes, "torch", inputs, outputs, held)
    version = onnx.helper.make_opsetid("", net.newest)
    model = onnx.helper.make_model(graph, opset_imports=[version])
    found: Reading = FRONTENDS["onnx"]().read(bytes(model.SerializeToString()), Bindings())
    return found


QUANTIZED: dict[str, Converter] = {
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel"), rounding),
    **dict.fromkeys(("dequantize_per_tensor", "dequantize_per_channel"), back),
}
