"""Small .tflite files written with LiteRT's own classes, and what LiteRT's reference kernels make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from npuflow.place.partition import is_npu
from tests.frontends.tflite_judged import integers, wide_multipliers

Quant = tuple[Sequence[float], Sequence[int], int]       # scales, zero points, axis
TYPES = {name.lower(): value for name, value in vars(schema.TensorType).items() if name.isupper()}


class Net:
    """A network in the making; tensors are known by name."""

    def __init__(self) -> None:
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        empty = schema.BufferT()
        self.model.version, self.model.buffers, self.model.operatorCodes = 3, [empty], []
        self.model.subgraphs, self.model.description = [self.graph], "test"
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.index: dict[str, int] = {"": -1}

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        quant: Quant | None = None,
        data: Any = None,
    ) -> str:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), TYPES[dtype], 0
        if data is not None:
            held = schema.BufferT()
            held.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(held)
        if quant is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = list(quant[0]), list(quant[1])
            made.quantization.quantizedDimension = quant[2]
        self.index[name] = len(self.graph.tensors)
        self.graph.tensors.append(made)
        return name

    def constant(self, name: str, values: Any, quant: Quant | None = None, dtype: str = "") -> str:
        held = np.asarray(values)
        return self.tensor(name, held.shape, dtype or held.dtype.name, quant, held)

    def op(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], options: str = "", **fields: Any
    ) -> None:
        """`raw`: the options of a custom operator."""
        code = schema.OperatorCodeT()
        custom = kind not in vars(schema.BuiltinOperator)
        code.builtinCode = schema.BuiltinOperator.CUSTOM if custom else getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), fields.pop("version", 1)
        code.customCode = kind if custom else None
        made = schema.OperatorT()
        made.opcodeIndex = len(self.model.operatorCodes)
        self.model.operatorCodes.append(code)
        made.inputs, made.outputs = [self.index[i] for i in inputs], [self.index[o] for o in outputs]
        if "raw" in fields:
            made.customOptions = np.frombuffer(fields.pop("raw"), np.uint8)
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for name, value in fields.items():
                assert hasattr(made.builtinOptions, name)
                setattr(made.builtinOptions, name, value)
        self.graph.operators.append(made)

    def done(self, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        self.graph.inputs, self.graph.outputs = (
            [self.index[i] for i in inputs],
            [self.index[o] for o in outputs],
        )
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def reference(data: bytes, feeds: Sequence[np.ndarray], plain: bool = True) -> list[np.ndarray]:
    """Outputs of the reference kernels, or of the default ones; inputs and outputs
    in the file's own types."""
    kernels = OpResolverType.BUILTIN_REF if plain else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    net = Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    net.allocate_tensors()
    for detail, value in zip(net.get_input_details(), feeds, strict=True):
        net.set_tensor(detail["index"], value)
    net.invoke()
    return [net.get_tensor(detail["index"]).copy() for detail in net.get_output_details()]


def per_layer(
    data: bytes, count: int, seed: int = 0, rounding: str = "half_away"
) -> dict[str, tuple[float, int]]:
    """Share of equal codes and largest difference of single layers, by kind."""
    found = apart_by_layer(data, count, seed, rounding)
    return {kind: (float((a == 0).mean()), int(a.max())) for kind, a in found.items()}


def apart_by_layer(
    data: bytes, count: int, seed: int = 0, rounding: str = "half_away", plain: bool = True
) -> dict[str, np.ndarray]:
    """How many steps apart the codes of every integer layer are, by kind: each alone, fed with the codes that
    the reference kernels (`plain`), or the default ones, make of random inputs."""
    target = wide_multipliers(rounding)
    numerics, graph = target.numerics, integers(data, target)
    net = Interpreter(
        model_content=data,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF
        if plain
        else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    net.allocate_tensors()
    rounded = [
        d for d in net.get_tensor_details() if np.dtype(d["dtype"]).kind in "iu" and d["quantization"][0]
    ]
    details = {d["name"]: d["index"] for d in rounded}
    found: dict[str, list[np.ndarray]] = {}
    for row in range(count):
        rng = np.random.default_rng((seed, row))
        for one in net.get_input_details():
            if one["dtype"] is np.float32:
                net.set_tensor(one["index"], rng.uniform(-1, 1, one["shape"]).astype(np.float32))
                continue
            info = np.iinfo(one["dtype"])
            net.set_tensor(
                one["index"], rng.integers(info.min, info.max + 1, one["shape"]).astype(one["dtype"])
            )
        net.invoke()
        codes = {}
        for name, value in graph.values.items():
            tensor = name.removesuffix(":q").removesuffix(":nchw").removesuffix(":nhwc")
            if value.quant is not None and value.const is None and tensor in details:
                held = net.get_tensor(details[tensor]).astype(np.int64)
                codes[name] = held if held.shape == value.type.shape else held.transpose(0, 3, 1, 2)
        for node in graph.nodes:
            inputs = [
                graph.const(i) if graph.const(i) is not None else codes.get(i) for i in node.inputs if i
            ]
            if not is_npu(node) or node.outputs[0] not in codes or any(i is None for i in inputs):
                continue
            given = [i.astype(graph.values[n].quant.dtype) if n in codes else i
                     for i, n in zip(inputs, (n for n in node.inputs if n), strict=True)]
            (mine,) = node.op.integer(graph.site(node), given, numerics)
            apart = np.abs(mine.astype(np.int64) - codes[node.outputs[0]])
            found.setdefault(type(node.op).__name__, []).append(apart.reshape(-1))
    return {kind: np.concatenate(rows) for kind, rows in found.items()}


def mobile(rng: np.random.Generator, codes: Mapping[str, tuple[float, int]] | None = None) -> bytes:
    """Convolution, depthwise, addition, pooling, dense, softmax; int8 where codes are
    given (scale, zero by tensor)."""
    net = Net()

    def value(name: str, shape: Sequence[int]) -> str:
        if codes is None:
            return net.tensor(name, shape)
        return net.tensor(name, shape, "int8", ([codes[name][0]], [codes[name][1]], 0))

    def layer(
        kind: str, x: str, y: str, shape: Sequence[int], axis: int, options: str, **fields: Any
    ) -> None:
        w, count = rng.standard_normal(shape).astype(np.float32) * 0.4, shape[axis]
        b = rng.standard_normal(count).astype(np.float32) * 0.2
        if codes is None:
            net.constant(f"{y}.w", w), net.constant(f"{y}.b", b)
        else:
            other = tuple(a for a in range(len(shape)) if a != axis)
            scale = (np.abs(w).max(other) / 127).astype(np.float32)
            along = scale.reshape([-1 if a == axis else 1 for a in range(len(shape))])
            net.constant(f"{y}.w", np.rint(w / along).astype(np.int8), (scale.tolist(), [0] * count, axis))
            wide = scale * np.float32(codes[x][0])
            net.constant(f"{y}.b", np.rint(b / wide).astype(np.int32), (wide.tolist(), [0] * count, 0))
        net.op(kind, [x, f"{y}.w", f"{y}.b"], [y], options, version=3, **fields)

    image = {"strideH": 1, "strideW": 1, "padding": 0, "fusedActivationFunction": 0}
    value("x", (1, 9, 9, 3)), value("c", (1, 5, 5, 8)), value("d", (1, 5, 5, 8)), value("s", (1, 5, 5, 8))
    value("p", (1, 1, 1, 8)), value("f", (1, 8)), value("l", (1, 6)), value("y", (1, 6))
    halved = image | {"strideH": 2, "strideW": 2, "fusedActivationFunction": 3}
    layer("CONV_2D", "x", "c", (8, 3, 3, 3), 0, "Conv2DOptions", **halved)
    layer(
        "DEPTHWISE_CONV_2D", "c", "d", (1, 3, 3, 8), 3, "DepthwiseConv2DOptions", **image, depthMultiplier=1
    )
    net.op("ADD", ["c", "d"], ["s"], "AddOptions", version=2, fusedActivationFunction=1)
    net.op(
        "AVERAGE_POOL_2D",
        ["s"],
        ["p"],
        "Pool2DOptions",
        version=2,
        **image | {"padding": 1},
        filterHeight=5,
        filterWidth=5,
    )
    net.constant("shape", np.array([1, 8], np.int32))
    net.op("RESHAPE", ["p", "shape"], ["f"], "ReshapeOptions", newShape=[1, 8])
    layer("FULLY_CONNECTED", "f", "l", (6, 8), 0, "FullyConnectedOptions", fusedActivationFunction=0)
    net.op("SOFTMAX", ["l"], ["y"], "SoftmaxOptions", version=2, beta=1.0)
    return net.done(["x"], ["y"])


MOBILE = {
    "x": (0.031, -5),
    "c": (0.0235, -128),
    "d": (0.05, 3),
    "s": (0.045, -128),
    "p": (0.045, -128),
    "f": (0.045, -128),
    "l": (0.02, 7),
    "y": (1 / 256, -128),
}
