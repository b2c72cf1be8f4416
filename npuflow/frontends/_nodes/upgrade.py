"""Old nodes in today's words: a node whose operator changed since its opset is converted on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import onnx

from npuflow.base.errors import ModelError
from npuflow.base.wording import first_line
from npuflow.frontends._nodes.forms import rewritten
from npuflow.frontends._nodes.linear_models import arithmetic
from npuflow.frontends._nodes.microsoft import spelled
from npuflow.frontends._nodes.recurrent import sequence_first
from npuflow.ir.types import TensorType
from npuflow.onnx.nodes import subgraphs
from npuflow.onnx.run import EXPORT_OPSET, newest_opset
from npuflow.onnx.types import is_tensor, value_info

# Same signature, other meaning: never taken for compatible.
_CHANGED = {"GroupNormalization": 21, "RoiAlign": 16, "Split": 18}     # since these opsets
_RENAMED = {"BatchNormalization"}     # inputs got other names, no more


@cache
def schema(op_type: str, version: int, domain: str) -> Any:
    """The operator's schema at that opset, or None."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def compatible(op_type: str, old: int, new: int) -> bool:
    """Whether a node written for opset `old` means the same at `new`: only types and
    inert attributes were added."""
    before, after = schema(op_type, old, ""), schema(op_type, new, "")
    if before is None or after is None or after.deprecated:
        return False
    if before.since_version == after.since_version:
        return True
    if before.since_version < _CHANGED.get(op_type, 0) <= after.since_version:
        return False
    old_names, new_names = ([i.name.lower() for i in s.inputs] for s in (before, after))
    same_inputs = op_type in _RENAMED or old_names == new_names[: len(old_names)]
    optional = onnx.defs.OpSchema.FormalParameterOption.Single
    extra = any(i.option == optional for i in after.inputs[len(before.inputs) :])
    kept = all(
        name in after.attributes and _default(a) == _default(after.attributes[name])
        for name, a in before.attributes.items()
    )
    return same_inputs and not extra and kept


def _default(attribute: Any) -> bytes:
    return bytes(attribute.default_value.SerializeToString(deterministic=True))


def upgraded(
    node: onnx.NodeProto, version: int, types: Mapping[str, TensorType], prefix: str
) -> tuple[list[onnx.NodeProto], int]:
    """The node as one or more nodes of the newest opset that runs, and their opset."""
    target = max(newest_opset(), 21)
    if node.domain not in ("", "ai.onnx"):
        plain = spelled(node, types, prefix) or arithmetic(node, types, prefix)
        return ([node], version) if plain is None else (plain, target)
    _upgrade_subgraphs(node, version, types, prefix)
    sequence = sequence_first(node, prefix)
    if sequence is not None:
        return sequence, target if version <= target else _runnable(node, version, target)
    if version > target:
        return [node], _runnable(node, version, target)
    if compatible(node.op_type, version, target):
        return [node], target
    own = rewritten(node, version, prefix)
    if own is not None:
        return own, target
    converted = _convert(node, version, target, types, prefix)
    if node.op_type in ("Upsample", "Resize") and version < 11:
        for part in converted:
            if part.op_type == "Resize":  # the converter leaves out what changed with opset 11
                part.attribute.append(
                    onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric")
                )
                part.attribute.append(onnx.helper.make_attribute("nearest_mode", "floor"))
    return converted, target


def _runnable(node: onnx.NodeProto, version: int, target: int) -> int:
    """The opset by which a node newer than onnxruntime is run: an older one if it
    says all that the node says."""
    now, before = schema(node.op_type, version, ""), schema(node.op_type, target, "")
    if now is None or now.since_version <= target:
        return target
    if (
        before is None
        or before.deprecated
        or len(node.input) > before.max_input
        or len(node.output) > before.max_output
    ):
        return int(now.since_version)
    return target if _has_attributes(node, before, now) else int(now.since_version)


def _has_attributes(node: onnx.NodeProto, before: Any, now: Any) -> bool:
    """Whether an older form of the operator has the attributes that the node states,
    with the same defaults."""
    return all(
        a.name in before.attributes
        and _default(before.attributes[a.name]) == _default(now.attributes[a.name])
        for a in node.attribute
    )


def stated_opset(node: onnx.NodeProto, version: int, known: Mapping[str, TensorType]) -> int:
    """The opset that a node of the default domain needs in an exported model: the
    lowest if it means the same there.

    Not every runtime has a kernel for the newest form of each operator, where only its types were widened.
    `known`: types of the node's values, as far as they are known.
    """
    now, before = schema(node.op_type, version, ""), schema(node.op_type, EXPORT_OPSET, "")
    inner = [
        stated_opset(n, version, {})
        for graph in subgraphs(node)
        for n in graph.node
        if n.domain in ("", "ai.onnx")
    ]
    if now is None or now.since_version <= EXPORT_OPSET:
        return max([EXPORT_OPSET, *inner])
    same = (
        before is not None and not before.deprecated and compatible(node.op_type, EXPORT_OPSET, version)
        and len(node.input) <= before.max_input and len(node.output) <= before.max_output
        and _has_attributes(node, before, now) and _takes(before, node, known)
    )
    return max([EXPORT_OPSET if same else int(now.since_version), *inner])


def _takes(found: Any, node: onnx.NodeProto, known: Mapping[str, TensorType]) -> bool:
    """Whether the schema allows the element types of the node's tensors."""
    for names, formal in ((node.input, found.inputs), (node.output, found.outputs)):
        for i, name in enumerate(names):
            kind = known.get(name)
            if kind is None or not is_tensor(kind) or not formal:
                continue
            word = {"float32": "float", "float64": "double"}.get(kind.dtype, kind.dtype)
            if f"tensor({word})" not in formal[min(i, len(formal) - 1)].types:
                return False
    return True


def newer_functions(nodes: Iterable[onnx.NodeProto], version: int) -> list[str]:
    """Operators that onnxruntime does not know yet but onnx defines by others."""
    found = []
    for op_type in sorted({n.op_type for n in nodes if n.domain in ("", "ai.onnx")}):
        now = schema(op_type, version, "")
        if (
            now is None
            or now.since_version <= newest_opset()
            or schema(op_type, newest_opset(), "") is not None
        ):
            continue
        if now.has_function or now.has_context_dependent_function:
            found.append(op_type)
    return found


def _upgrade_subgraphs(
    node: onnx.NodeProto, version: int, types: Mapping[str, TensorType], prefix: str
) -> None:
    for k, graph in enumerate(subgraphs(node)):
        known = dict(types)
        body: list[onnx.NodeProto] = []
        for n, inner in enumerate(graph.node):
            body.extend(upgraded(inner, version, known, f"{prefix}/{k}.{n}")[0])
        if len(body) != len(graph.node) or any(a is not b for a, b in zip(body, graph.node, strict=True)):
            fresh = [onnx.NodeProto.FromString(n.SerializeToString()) for n in body]
            del graph.node[:]
            graph.node.extend(fresh)


def _convert(
    node: onnx.NodeProto, version: int, target: int, types: Mapping[str, TensorType], prefix: str
) -> list[onnx.NodeProto]:
    """By onnx's version converter, on a model of this one node."""
    graph = onnx.GraphProto(name="one", node=[node])
    for name in dict.fromkeys(i for i in node.input if i):
        graph.input.append(value_info(name, types.get(name, TensorType((), "float32"))))
    for name in node.output:
        if name:
            graph.output.append(value_info(name, TensorType((-2,), "float32")))
    model = onnx.ModelProto(ir_version=8, graph=graph)
    model.opset_import.add(version=version)
    try:
        result = onnx.version_converter.convert_version(model, target).graph
    except Exception as fault:  # RuntimeError, ConvertError: no adapter, or one that does not like the node
        name = next((o for o in node.output if o), node.op_type)
        raise ModelError(
            f"{node.op_type} of opset {version} has no form in opset {target}",
            because=first_line(fault), code="NF-MODEL-032",
        ).at(node=node.name or name) from fault
    ours = {i.name for i in graph.input} | {o.name for o in graph.output} | {""}
    nodes = [
        onnx.helper.make_node("Constant", [], [t.name], value=t)
        for t in result.initializer
        if t.name not in ours
    ]
    nodes += list(result.node)
    for new in nodes:
        for names in (new.input, new.output):
            for index, name in enumerate(names):
                if name not in ours:
                    names[index] = f"{prefix}/{name}"
    nodes[-1].name = node.name
    return nodes
