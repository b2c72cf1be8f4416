"""From a network and a recipe to a module for training, and from that to QDQ ONNX."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import npuflow
from npuflow.base.errors import ModelError, UsageError
from npuflow.cli._compiled import Compiled
from npuflow.flow.recipe import load
from npuflow.frontends import Reading
from npuflow.frontends.torch.convert import packed
from npuflow.frontends.torch.load import exported
from npuflow.ir.graph import Graph
from npuflow.ir.packed import unpack
from npuflow.run.qdq import to_qdq
from npuflow.torch.prepared import PreparedNetwork
from npuflow.torch.target_graph import target_graph

# what a recipe may have and training makes no use of: tables of programs and of judgement, and those that
# change the network's own numbers, which are the parameters
LEFT_OUT = ("evaluate", "equalize", "program", "simulate", "build", "model", "data", "extends", "name")
CALM = {"precision": {"strategy": "none"}, "correct": {"bias": "off"}}


def prepare(
    model: Any,
    recipe: str | Path | Mapping[str, Any],
    example_inputs: Any,
    *,
    learn_scales: bool = True,
    cache: Path | None = None,
    jobs: int | None = None,
) -> PreparedNetwork:
    """The network with the target's integers, ready to be trained.

    `model`: a module of PyTorch, or anything that `npuflow.compile` takes. `recipe`: the path of one, or its
    tables, `target` among them; data, evaluation, and what changes weights before quantisation are left
    out of it. `example_inputs`: an array or tensor of samples (a dictionary of them by input, or a sequence
    in the inputs' order) that ranges start from; a recipe with `[ranges]` takes them from there.
    `learn_scales`: LSQ; else the scales stay where they start, and weights are trained with straight-through
    gradients.
    """
    tables = _tables(recipe)
    target = tables.pop("target")
    source, origin, given = None, None, model
    if isinstance(model, torch.nn.Module):
        source = copy.deepcopy(model).eval()
        origin, given = reading(source, _examples(example_inputs))
    data = _data(example_inputs, origin)
    build = npuflow.compile(given, target, data=data, cache=cache, jobs=jobs, until="quantize", **tables)
    return prepared_from(build, source, origin, learn_scales)


def prepared_from(
    build: Compiled, source: Any = None, origin: Graph | None = None, learn_scales: bool = True
) -> PreparedNetwork:
    """The network of a build."""
    made = PreparedNetwork(target_graph(build), source, origin, learn_scales)
    made.train()
    return made


def convert(prepared: PreparedNetwork, path: str | Path | None = None) -> bytes:
    """The network with its integers as QDQ ONNX, written to `path` if there is one. Compiled for the same
    target it keeps these scales and codes; `[correct] bias = "off"` keeps the biases as well."""
    made = to_qdq(prepared.integer_graph().replaced(fed=0)).model
    if not isinstance(made, bytes):
        because = f"its constants take {made.nbytes / (1 << 30):.2f} GiB; protobuf ends at 2 GiB"
        hint = "a build of the network writes model.qdq.onnx with its tensors in a file beside it"
        raise ModelError(
            "the network does not fit one ONNX model", because=because, hint=hint, code="NF-MODEL-005",
        )
    if path is not None:
        Path(path).write_bytes(made)
    return made


def _tables(recipe: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    given = dict(recipe) if isinstance(recipe, Mapping) else dict(load(Path(recipe), lenient=True).tables)
    if "target" not in given:
        raise UsageError(
            "the recipe names no target",
            because=f"its tables: {', '.join(given) or 'none'}",
            hint='target = "edge-4t"',
            code="NF-USAGE-201",
        )
    kept = {name: table for name, table in given.items() if name not in LEFT_OUT}
    for name, table in CALM.items():
        kept[name] = {**table, **kept.get(name, {})}
    return kept


def _examples(inputs: Any) -> tuple[Any, ...]:
    """One sample of every input, in order."""
    held = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    several = held if isinstance(held, Sequence) else [held]
    return tuple(torch.as_tensor(np.asarray(one))[:1] for one in several)


def _data(inputs: Any, origin: Graph | None) -> Any:
    """Samples by the names of the inputs."""
    if isinstance(inputs, Mapping):
        return {name: np.asarray(array) for name, array in inputs.items()}
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        return inputs if isinstance(inputs, str) else np.asarray(inputs)
    if len(inputs) == 1:
        return np.asarray(inputs[0])
    names = origin.inputs if origin is not None else ()
    if len(names) != len(inputs):
        raise UsageError(
            f"{len(inputs)} example inputs without names",
            hint="a dictionary of arrays by input",
            code="NF-USAGE-202",
        )
    return {name: np.asarray(array) for name, array in zip(names, inputs, strict=True)}


def reading(source: Any, example: tuple[Any, ...]) -> tuple[Graph, Reading]:
    """The module's graph, with constants under the names of parameters."""
    data, notes = packed(exported(torch, source, example))
    graph, stated = unpack(data)
    return graph, Reading(graph, notes, stated)
