"""An ONNX model of a program's inputs and outputs alone: what onnxruntime describes the program by.

Each output is made of zeros. It is loaded and asked for names, types, shapes and metadata; it is never run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuflow.program.container import Program
from npuflow.runner.ports import Port

OPSET, IR = 17, 8


def shell(program: Program, inputs: Sequence[Port], outputs: Sequence[Port]) -> bytes:
    """The model's bytes."""
    nodes, stored = [], []
    for port in outputs:
        size = [1 if d < 0 else d for d in port.shape] if port.ranked else [1]
        stored.append(numpy_helper.from_array(np.array(size, np.int64), f"{port.name}/shape"))
        if inputs and min(port.shape, default=0) < 0:
            # a shape of constants would be that of the output, whatever is said of it
            ends = ("least", "sizes", "total", "shape")
            least, sizes, total, made = (f"{port.name}/{end}" for end in ends)
            stored[-1].name = least
            nodes.append(helper.make_node("Shape", [inputs[0].name], [sizes]))
            nodes.append(helper.make_node("ReduceSum", [sizes], [total], keepdims=1))
            nodes.append(helper.make_node("Mul", [least, total], [made]))
        zero = numpy_helper.from_array(np.zeros(1, port.dtype))
        nodes.append(helper.make_node("ConstantOfShape", [f"{port.name}/shape"], [port.name], value=zero))
    name = str(program.meta.get("name") or "program")
    graph = helper.make_graph(nodes, name, [_end(p) for p in inputs], [_end(p) for p in outputs], stored)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="npuflow",
        doc_string="the inputs and outputs of a compiled program",
    )
    facts = {
        "npuflow.target": program.target_fingerprint,
        "npuflow.layers": str(len(program.meta["nodes"])),
        "npuflow.graph": str(bool(program.graph_bytes)).lower(),
    }
    helper.set_model_props(model, facts)
    return bytes(model.SerializeToString())


def _end(port: Port) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype("object" if port.dtype == "str" else port.dtype))
    shape = [f"{port.name}_{i}" if d < 0 else d for i, d in enumerate(port.shape)] if port.ranked else None
    return helper.make_tensor_value_info(port.name, kind, shape)
