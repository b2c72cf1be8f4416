"""Networks over pictures, with the normalisation that their inputs are trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from npuflow.frontends import FRONTENDS
from npuflow.input.pixels.pixels import Pixels
from npuflow.ir.types import Array
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import parsed

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
NORMALISATIONS: dict[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {
    "half": (1.0, (127.5,), (127.5,)),
    "lite": (1.0, (127.0,), (128.0,)),
    "unit": (1 / 255, (0.0,), (1.0,)),
    "imagenet": (1.0, MEAN, STD),
    "tf": (1 / 127.5, (1.0,), (1.0,)),
    "raw": (1.0, (0.0,), (1.0,)),
}
FIRST = ("padded", "bare", "depthwise", "nhwc")
SIZE = 10


def network(first: str) -> bytes:
    """Two convolutions; the first padded or not, depthwise, or behind a Transpose from channels last."""
    rng = np.random.default_rng(7)
    group, pads = (3 if first == "depthwise" else 1), [0, 0, 0, 0] if first == "bare" else [1, 1, 1, 1]
    channels = 3 if first == "depthwise" else 6
    tensors = [
        ("w", rng.normal(0, 0.3, (channels, 3 // group, 3, 3))), ("b", rng.normal(0, 0.1, channels)),
        ("w2", rng.normal(0, 0.3, (4, channels, 1, 1))), ("b2", rng.normal(0, 0.1, 4)),
    ]
    shape, nodes, x = [1, 3, SIZE, SIZE], [], "x"
    if first == "nhwc":
        shape, x = [1, SIZE, SIZE, 3], "t"
        nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
    nodes += [
        helper.make_node("Conv", [x, "w", "b"], ["c"], pads=pads, group=group),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in tensors],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()


def pictures(count: int = 24) -> Array:
    """Channels last; every byte occurs in every channel."""
    found = np.random.default_rng(1).integers(0, 256, (count, SIZE, SIZE, 3)).astype(np.uint8)
    found.reshape(-1, 3)[:256] = np.arange(256, dtype=np.uint8)[:, None]
    return found


def normalised(images: Array, name: str) -> Array:
    scale, mean, std = NORMALISATIONS[name]
    values = images.astype(np.float32) * np.float32(scale)
    return ((values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)).astype(np.float32)


def laid_out(images: Array, first: str) -> Array:
    return images if first == "nhwc" else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options)


def graph_of(first: str) -> Any:
    from npuflow.base.tables import FilePath

    return parsed(network(first), FRONTENDS["onnx"](), ModelTable(FilePath("net.onnx", Path())))


def pixels_of(name: str, first: str) -> Pixels:
    scale, mean, std = (np.asarray(v, np.float64) for v in NORMALISATIONS[name])
    axis = None if mean.size == 1 else -1 if first == "nhwc" else -3
    zero = int(np.clip(np.rint((mean / scale).mean()), 0, 255))
    scale, shift = np.broadcast_arrays(scale / std, -mean / std)
    return Pixels(tuple(scale.reshape(-1).tolist()), tuple(shift.reshape(-1).tolist()), axis, zero)
