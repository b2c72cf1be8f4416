"""SavedModels: their serving signature, by TensorFlow's loader of today, else by its old one."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.frontends.tensorflow.faults import damaged
from npuflow.frontends.tensorflow.model import TensorflowModel

SERVE, SIGNATURE = "serve", "serving_default"
INTERNAL = "__saved_model_"  # signatures of the loader's own


def saved(tf: Any, path: Path) -> TensorflowModel:
    """The default signature of a SavedModel. The loader of today makes all objects of the training program
    anew, and fails where one of them is of code that is not installed, such as an optimiser of Keras 2; the
    old loader runs the graph alone."""
    tags, old = _tags(path)
    try:
        return (_as_graph if old else _as_objects)(tf, path, tags)
    except ModelError:
        raise
    except Exception as fault:  # TensorFlow raises OSError, ValueError, KeyError and errors of its own
        try:
            return _as_graph(tf, path, tags)
        except ModelError:
            raise
        except Exception:
            raise damaged(path, fault) from fault


def _tags(path: Path) -> tuple[list[str] | None, bool]:
    """Of several graphs in the file the one for serving, None where there is no choice; and whether it holds
    variables of TensorFlow 1, which only the old loader makes constants."""
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        held = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    except Exception:  # the loader says what is wrong with the file
        return None, False
    fit = [graph for graph in held if SERVE in graph.meta_info_def.tags] if len(held) > 1 else held
    if not fit:
        return None, False
    graph = min(fit, key=lambda one: len(one.meta_info_def.tags))
    old = any(node.op in ("Variable", "VariableV2") for node in graph.graph_def.node)
    return sorted(graph.meta_info_def.tags), old


def _as_objects(tf: Any, path: Path, tags: list[str] | None) -> TensorflowModel:
    model = tf.saved_model.load(str(path.parent), tags=tags)
    signatures = dict(model.signatures)
    chosen = signatures[_chosen(path, signatures)]
    specs: dict[str, Any] = dict(chosen.structured_input_signature[1])

    def call(*tensors: Any) -> dict[str, Any]:
        given = chosen(**dict(zip(specs, tensors, strict=True)))
        return {name: given[name] for name in sorted(given)}

    call.model = model  # type: ignore[attr-defined]  # its variables live as long as it does
    return TensorflowModel(specs, call)


def _as_graph(tf: Any, path: Path, tags: list[str] | None) -> TensorflowModel:
    """The signature's graph with the variables of the file as constants."""
    from tensorflow.python.framework import convert_to_constants

    freeze = convert_to_constants.convert_variables_to_constants_from_session_graph
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        found = signatures_of(tf.compat.v1.saved_model.load(session, tags or [SERVE], str(path.parent)))
        signature = found[_chosen(path, found)]
        inputs, outputs = (
            {key: side[key] for key in sorted(side)} for side in (signature.inputs, signature.outputs)
        )
        ends = [info.name for info in outputs.values()]
        frozen = freeze(session, graph.as_graph_def(), [name.partition(":")[0] for name in ends])
    specs = {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype) for name, info in inputs.items()
    }
    fed = [info.name for info in inputs.values()]

    def call(*tensors: Any) -> dict[str, Any]:
        given = dict(zip(fed, tensors, strict=True))
        made = tf.graph_util.import_graph_def(frozen, input_map=given, return_elements=ends, name="")
        return dict(zip(outputs, made, strict=True))

    return TensorflowModel(specs, call)


signatures_of = attrgetter("signature_def")
"""The signatures of a MetaGraphDef by name."""


def _chosen(path: Path, names: Iterable[str]) -> str:
    """The name of the signature that is read."""
    usable = sorted(name for name in names if not name.startswith(INTERNAL))
    if not usable:
        raise ModelError(
            f'the SavedModel "{path.parent.name}" has no signature',
            hint="tf.saved_model.save(model, FOLDER, signatures=...) or, of Keras, model.export(FOLDER)",
            code="NF-MODEL-165",
        )
    return SIGNATURE if SIGNATURE in usable else usable[0]
