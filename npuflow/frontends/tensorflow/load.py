"""Runs in a process of its own: a TensorFlow model as a frozen function, then as a TFLite file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.base.tables_write import key
from npuflow.frontends.tensorflow.faults import line
from npuflow.frontends.tensorflow.frozen import frozen
from npuflow.frontends.tensorflow.keras_file import keras_file
from npuflow.frontends.tensorflow.model import TensorflowModel
from npuflow.frontends.tensorflow.names import INPUT, ends_of, named
from npuflow.frontends.tensorflow.saved import saved

called_functions = attrgetter("library.function")
"""The functions that nodes of a GraphDef call."""


def converted(
    path: Path, inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[str]
) -> tuple[bytes, tuple[str, ...]]:
    """The model as a TFLite file, and notes. `inputs`: shapes that the recipe gives; `outputs`: its cut
    points."""
    tf = _tensorflow()
    if path.name == "saved_model.pb":
        opened = saved(tf, path)
    elif path.suffix.lower() == ".pb":
        opened = TensorflowModel(*frozen(tf, path, inputs, outputs))
    else:
        opened = keras_file(tf, path)
    specs = fixed(tf, path, opened.specs, inputs)
    called: list[str] = []

    def run(*tensors: Any) -> list[Any]:
        given = opened.call(*tensors)
        called[:] = given
        # each output is a tensor of its own, also where the model gives one twice
        return [tf.identity(one) for one in given.values()]

    data = _lite(tf, tf.function(run, input_signature=specs))
    return _renamed(data, list(opened.specs), called, opened.layers), opened.notes


def _renamed(data: bytes, inputs: Sequence[str], outputs: Sequence[str], layers: frozenset[str]) -> bytes:
    """A TFLite file with other names of its tensors."""
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(data))
    for i, graph in enumerate(model.subgraphs):
        old = [(tensor.name or b"").decode(errors="replace") for tensor in graph.tensors]
        ends = ends_of(old, graph.inputs, graph.outputs, inputs, outputs) if i == 0 else {}
        for tensor, name in zip(graph.tensors, named(old, ends, layers), strict=True):
            tensor.name = name.encode()
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    with needs(
        "reading TensorFlow models needs the package tensorflow",
        kind=ModelError,
        hint="pip install 'npuflow[tensorflow]'",
        code="NF-MODEL-164",
    ):
        import tensorflow as tf
    return tf


def fixed(tf: Any, path: Path, specs: Mapping[str, Any], inputs: Mapping[str, tuple[int, ...]]) -> list[Any]:
    """The inputs in fixed shapes: those that the recipe gives; a free first size is a batch of one."""
    found: list[Any] = []
    free: dict[str, list[int | None] | None] = {}
    for name, spec in specs.items():
        stated = spec.shape.as_list() if spec.shape.rank is not None else None
        shape = inputs.get(name) or stated
        if name not in inputs and shape and shape[0] is None:
            shape = [1, *shape[1:]]
        if shape is None or None in shape:
            free[name] = stated
        else:
            found.append(tf.TensorSpec(tuple(shape), spec.dtype, name=f"{INPUT}{len(found)}"))
    if free:
        lines = ", ".join(
            f"{key(name)} = {_open([1, *sizes[1:]]) if sizes else '[?]'}" for name, sizes in free.items()
        )
        raise ModelError(
            "the model leaves sizes of its inputs free",
            because="; ".join(f"{name} is {_open(sizes)}" for name, sizes in free.items()),
            hint=f"[model] inputs = {{ {lines} }} with a size for each ?",
            code="NF-MODEL-167",
        ).at(file=str(path))
    return found


def _open(sizes: Sequence[int | None] | None) -> str:
    if sizes is None:
        return "of any rank"
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def _lite(tf: Any, function: Any) -> bytes:
    """The function with its variables as constants, by TensorFlow's own converter."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        concrete = convert_variables_to_constants_v2(
            function.get_concrete_function(), lower_control_flow=False
        )
        converter = tf.lite.TFLiteConverter.from_concrete_functions([_folded(tf, concrete)])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
        converter.allow_custom_ops = True
        return bytes(converter.convert())
    except Exception as fault:  # ConverterError, ValueError, errors of tracing
        raise ModelError(
            "TensorFlow does not convert the model",
            because=line(fault),
            hint="tf.lite.TFLiteConverter says more; export the part without it, or export the model to ONNX",
            code="NF-MODEL-168",
        ) from fault


def _folded(tf: Any, concrete: Any) -> Any:
    """A frozen function whose shapes are all constants: what was traced with free sizes computes them."""
    from tensorflow.lite.python.util import get_grappler_config, run_graph_optimizations

    if all(
        output.shape.is_fully_defined() for op in concrete.graph.get_operations() for output in op.outputs
    ):
        return concrete
    graph = _with_batch(
        tf, concrete.graph.as_graph_def(), int((concrete.inputs[0].shape.as_list() or [1])[0])
    )
    wrapped = _function(tf, graph, concrete)
    config = get_grappler_config(["constfold", "function"])
    ends = wrapped.inputs, wrapped.outputs
    folded = run_graph_optimizations(wrapped.graph.as_graph_def(), *ends, config, wrapped.graph)
    return _function(tf, folded, wrapped)


def _function(tf: Any, graph: Any, like: Any) -> Any:
    """A graph as a function with the inputs and outputs of another; shapes are inferred anew."""
    from tensorflow.python.eager import context

    for node in graph.node:
        node.attr.pop("_output_shapes", None)
    for function in called_functions(graph):  # one of the same name with other shapes is in the way
        while context.context().has_function(function.signature.name):
            context.context().remove_function(function.signature.name)
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    inputs, outputs = (
        [wrapped.graph.as_graph_element(one.name) for one in side] for side in (like.inputs, like.outputs)
    )
    return wrapped.prune(inputs, outputs)


def _with_batch(tf: Any, graph: Any, batch: int) -> Any:
    """Gives lists of tensors, such as the steps of a recurrent layer, the batch that their elements lack."""
    for nodes in (graph.node, *(function.node_def for function in called_functions(graph))):
        shapes = {
            name.partition(":")[0]
            for node in nodes
            if node.op.startswith("TensorList")
            for name in node.input
        }
        for node in nodes:
            if node.op != "Const" or node.name not in shapes:
                continue
            held = np.array(tf.make_ndarray(node.attr["value"].tensor))
            if held.ndim == 1 and (held[:1] == -1).all() and (held[1:] >= 0).all():
                held[:1] = batch
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(held))
    return graph
