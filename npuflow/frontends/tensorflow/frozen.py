"""Frozen graphs: a GraphDef whose weights are constants, with inputs of fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.frontends.tensorflow.faults import damaged

VARIABLES = ("VariableV2", "Variable", "VarHandleOp", "VarIsInitializedOp", "RestoreV2")
NO_OUTPUT = ("NoOp", "Assert", "Placeholder", "Const", "SaveV2", "MergeV2Checkpoints", "CheckNumerics")


def frozen(
    tf: Any, path: Path, inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[str]
) -> tuple[dict[str, Any], Callable[..., Mapping[str, Any]]]:
    """The inputs (`Placeholder`) by name, and the graph as a function. Its outputs are the cut points of the
    recipe where these are nodes, else the nodes that no other reads."""
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
    except Exception as fault:  # DecodeError of protobuf, OSError
        raise damaged(path, fault) from fault
    nodes = {node.name: node for node in graph.node}
    variables = [node.name for node in graph.node if node.op in VARIABLES]
    read = {_node(name) for node in graph.node for name in node.input}
    fed = [node for node in graph.node if node.op == "Placeholder" and node.name in read]
    if variables or not fed:
        raise ModelError(
            f'"{path.name}" is no frozen graph',
            because=f"it holds the variable {variables[0]}"
            if variables
            else "it has no inputs (Placeholder)",
            hint="save it as a SavedModel, or freeze its variables to constants",
            code="NF-MODEL-170",
        ).at(file=str(path))
    specs = {node.name: tf.TensorSpec(_shape(tf, node), node.attr["dtype"].type) for node in fed}
    for node in graph.node:
        if node.op == "PlaceholderWithDefault":  # what it holds unless fed
            node.op = "Identity"
            dtype = node.attr["dtype"].type
            node.attr.clear()
            node.attr["T"].type = dtype
    wanted = _wanted(graph, nodes, outputs)

    def call(*tensors: Any) -> dict[str, Any]:
        given = dict(zip(specs, tensors, strict=True))
        ends = list(wanted.values())
        found = tf.graph_util.import_graph_def(graph, input_map=given, return_elements=ends, name="")
        return dict(zip(wanted, found, strict=True))

    return specs, call


def _shape(tf: Any, node: Any) -> Any:
    stated = node.attr["shape"].shape
    return tf.TensorShape(None if stated.unknown_rank or "shape" not in node.attr else stated)


def _wanted(graph: Any, nodes: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, str]:
    """Tensors of the graph by the names that they get as outputs."""
    if outputs and all(_node(name) in nodes for name in outputs):
        return {name: name if ":" in name else f"{name}:0" for name in outputs}
    read = {_node(name.lstrip("^")) for node in graph.node for name in node.input}
    ends = [node.name for node in graph.node if node.name not in read and node.op not in NO_OUTPUT]
    return {name: f"{name}:0" for name in ends}


def _node(name: str) -> str:
    return name.partition(":")[0]
