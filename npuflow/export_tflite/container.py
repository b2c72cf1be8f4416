"""The bytes of a .tflite file from plain data: the inverse of the front end's reader."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.frontends.tflite.schema import Codes, Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.types import Array

MARK = b"TFL3"
ALIGN = 16  # of constants, in bytes
# Versions of operators by width of their codes, as TensorFlow's own writer states them; the others have 1.
VERSIONS: dict[str, tuple[int, int]] = {
    "CONV_2D": (3, 4),
    "DEPTHWISE_CONV_2D": (3, 5),
    "FULLY_CONNECTED": (4, 7),
    "TRANSPOSE_CONV": (3, 3),
    "ADD": (2, 4),
    "SUB": (3, 5),
    "MUL": (2, 4),
    "MAXIMUM": (2, 3),
    "MINIMUM": (2, 3),
    "BATCH_MATMUL": (2, 3),
    "MAX_POOL_2D": (2, 3),
    "AVERAGE_POOL_2D": (2, 3),
    "MEAN": (2, 3),
    "REDUCE_MAX": (2, 3),
    "SOFTMAX": (2, 3),
    "LOGISTIC": (2, 3),
    "TANH": (2, 3),
    "RELU": (2, 2),
    "LEAKY_RELU": (2, 2),
    "CONCATENATION": (2, 3),
    "PAD": (2, 3),
    "PADV2": (2, 2),
    "TRANSPOSE": (2, 4),
    "STRIDED_SLICE": (2, 4),
    "QUANTIZE": (2, 3),
    "RESIZE_BILINEAR": (3, 4),
    "RESIZE_NEAREST_NEIGHBOR": (3, 4),
    "MIRROR_PAD": (2, 2),
    "SPACE_TO_DEPTH": (2, 2),
    "GATHER": (2, 4),
    "EXP": (2, 2),
    "LOG": (2, 2),
    "ABS": (2, 3),
    "GELU": (2, 2),
    "BROADCAST_TO": (2, 2),
    "ARG_MAX": (2, 2),
    "ARG_MIN": (2, 2),
    "TOPK_V2": (2, 3),
}
# Tables of options that are not named as their operator is.
OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "PADV2": "PadV2Options",
    "MINIMUM": "MaximumMinimumOptions",
    "MEAN": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "TOPK_V2": "TopKV2Options",
}
PLAIN = ("LOGISTIC", "TANH", "RELU", "LOG", "PRELU")  # operators that have no options


def written(network: TfliteNetwork, description: str = "") -> bytes:
    """The file: the network, the bodies of its loops behind it by number, and one signature
    `serving_default` with the tensors' own names."""
    with needs(
        "writing .tflite files needs the package tflite",
        kind=ModelError,
        hint="pip install 'npuflow[tflite]'",
        code="NF-PROGRAM-121",
    ):
        import flatbuffers
        import tflite
    return _Writer(flatbuffers.Builder(1 << 16), tflite, network).model(description)


class _Writer:
    """Tables are written from the innermost out, as FlatBuffers wants them."""

    def __init__(self, builder: Any, tflite: ModuleType, network: TfliteNetwork) -> None:
        self.b, self.tflite, self.network = builder, tflite, network
        self.buffers = [self.table("Buffer")]  # the first is that of no constant

    def model(self, description: str) -> bytes:
        nets = (self.network, *self.network.bodies[1:])
        codes = list(dict.fromkeys((o.name, version(net, o)) for net in nets for o in net.operators))
        graphs = [self.subgraph(net, codes, f"body{k}" if k else "main") for k, net in enumerate(nets)]
        kinds = [self.code(name, number) for name, number in codes]
        model = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.tables("Model", "OperatorCodes", kinds),
            Subgraphs=self.tables("Model", "Subgraphs", graphs),
            Description=self.b.CreateString(description),
            Buffers=self.tables("Model", "Buffers", self.buffers),
            SignatureDefs=self.tables("Model", "SignatureDefs", [self.signature()]),
        )
        self.b.Finish(model, file_identifier=MARK)
        return bytes(self.b.Output())

    # --- tables
    def table(self, form: str, **given: int) -> int:
        """A table of scalars and of what is written already."""
        getattr(self.tflite, f"{form}Start")(self.b)
        for name, value in given.items():
            getattr(self.tflite, f"{form}Add{name}")(self.b, value)
        return int(getattr(self.tflite, f"{form}End")(self.b))

    def tables(self, form: str, name: str, made: Sequence[int]) -> int:
        getattr(self.tflite, f"{form}Start{name}Vector")(self.b, len(made))
        for one in reversed(made):
            self.b.PrependUOffsetTRelative(one)
        return int(self.b.EndVector())

    def numbers(self, values: Sequence[float], dtype: Any) -> int:
        return int(self.b.CreateNumpyVector(np.asarray(values, dtype)))

    # --- parts of a model
    def subgraph(self, net: TfliteNetwork, codes: Sequence[tuple[str, int]], name: str) -> int:
        tensors = [self.tensor(t) for t in net.tensors]
        operators = [self.operator(o, codes.index((o.name, version(net, o)))) for o in net.operators]
        return self.table(
            "SubGraph",
            Tensors=self.tables("SubGraph", "Tensors", tensors),
            Inputs=self.numbers(net.inputs, np.int32),
            Outputs=self.numbers(net.outputs, np.int32),
            Operators=self.tables("SubGraph", "Operators", operators),
            Name=self.b.CreateString(name),
        )

    def tensor(self, tensor: TfliteTensor) -> int:
        shape, name = self.numbers(tensor.shape, np.int32), self.b.CreateString(tensor.name)
        given = {"Shape": shape, "Name": name, "HasRank": True}
        if tensor.codes is not None:
            given["Quantization"] = self.quantization(tensor.codes)
        if tensor.data is not None:
            given["Buffer"] = len(self.buffers)
            self.buffers.append(self.buffer(tensor.data))
        return self.table("Tensor", Type=getattr(self.tflite.TensorType, tensor.dtype.upper()), **given)

    def quantization(self, codes: Codes) -> int:
        scale, zero = self.numbers(codes.scale, np.float32), self.numbers(codes.zero, np.int64)
        more = {} if codes.axis is None else {"QuantizedDimension": codes.axis}
        return self.table("QuantizationParameters", Scale=scale, ZeroPoint=zero, **more)

    def buffer(self, data: Array) -> int:
        body = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).tobytes()
        self.b.StartVector(1, len(body), ALIGN)
        self.b.head -= len(body)
        self.b.Bytes[self.b.head : self.b.head + len(body)] = body
        return self.table("Buffer", Data=int(self.b.EndVector()))

    def operator(self, operator: Operator, kind: int) -> int:
        inputs, outputs = self.numbers(operator.inputs, np.int32), self.numbers(operator.outputs, np.int32)
        given = {"OpcodeIndex": kind, "Inputs": inputs, "Outputs": outputs}
        form = options_of(operator.name)
        if form:
            made = {k: self.option(v) for k, v in operator.options.items()}
            given["BuiltinOptions"] = self.table(form, **made)
            given["BuiltinOptionsType"] = getattr(self.tflite.BuiltinOptions, form)
        return self.table("Operator", **given)

    def option(self, value: Any) -> int:
        return self.numbers(value, np.int32) if isinstance(value, tuple) else value

    def code(self, name: str, stated: int) -> int:
        number = getattr(self.tflite.BuiltinOperator, name)
        return self.table(
            "OperatorCode", DeprecatedBuiltinCode=min(number, 127), Version=stated, BuiltinCode=number
        )

    def signature(self) -> int:
        net = self.network
        ports = {}
        for side, indices in (("Inputs", net.inputs), ("Outputs", net.outputs)):
            made = []
            for index in indices:
                name = self.b.CreateString(net.tensors[index].name)
                made.append(self.table("TensorMap", Name=name, TensorIndex=index))
            ports[side] = self.tables("SignatureDef", side, made)
        key = self.b.CreateString("serving_default")
        return self.table("SignatureDef", **ports, SignatureKey=key)


def version(net: TfliteNetwork, operator: Operator) -> int:
    """Of an operator, by the width of its codes."""
    wide = any(net.tensors[i].dtype == "int16" for i in (*operator.inputs, *operator.outputs) if i >= 0)
    return VERSIONS.get(operator.name, (1, 1))[wide]


def options_of(name: str) -> str:
    """The table that holds an operator's options."""
    if name in OPTIONS or name in PLAIN:
        return OPTIONS.get(name, "")
    return "".join(word.capitalize() for word in name.split("_")) + "Options"
