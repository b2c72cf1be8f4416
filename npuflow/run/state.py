"""Named program state: outputs of one run that are inputs of the next one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from npuflow.base.errors import ModelError, meant
from npuflow.base.forked import renewed_in_children
from npuflow.input.given import mapping

if TYPE_CHECKING:
    import onnxruntime

    from npuflow.ir.graph import Graph
    from npuflow.ir.rings import Ring
    from npuflow.ir.types import Array

METADATA, RINGS = "npuflow.state", "npuflow.rings"
Pairs = tuple[tuple[str, str], ...]
"""An output and the input that takes its value."""


Step = Callable[[Mapping[str, Any], bool | Iterable[str]], "dict[str, Array]"]


class SampleModel(Protocol):
    """Something that runs samples: a program's runner, an interpreter, an onnxruntime session."""

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]: ...


def with_state(graph: Graph, stated: Mapping[str, str]) -> Graph:
    """The graph with the state that a recipe names: output = input. Each must exist once, with one type."""
    taken: dict[str, str] = {}
    for output, given in stated.items():
        _known(output, graph.outputs, "output", "[model] outputs, where the recipe has it, must list it")
        _known(given, graph.inputs, "input", "[model] constants makes inputs constant: these keep no state")
        if given in taken:
            raise ModelError(
                f'the input "{given}" is the state of two outputs',
                because=f'"{taken[given]}" and "{output}" both name it',
                hint="one output for each input", code="NF-MODEL-067",
            ).at(value=given)
        taken[given] = output
        made, need = graph.type(output), graph.type(given)
        if made != need:
            raise ModelError(
                f'the output "{output}" cannot be the next run\'s "{given}"',
                because=f"the output is {made.dtype} {list(made.shape)}, the input {need.dtype} "
                f"{list(need.shape)}",
                hint="a state keeps its shape: [model] inputs fixes free sizes; a cache that grows by a step "
                "must be cut to its size in the model",
                code="NF-MODEL-068",
            ).at(value=output)
        if not need.is_static or need.dtype == "string":
            raise ModelError(
                f'the state "{given}" has no fixed type',
                because=f"it is {need.dtype} {list(need.shape)}",
                hint="[model] inputs fixes free sizes", code="NF-MODEL-069",
            ).at(value=given)
    return graph.replaced(state=tuple(sorted(stated.items())))


def _known(name: str, names: Sequence[str], what: str, hint: str) -> None:
    if name not in names:
        raise ModelError(
            f'a state names "{name}", which is no {what} of the model',
            because=f"its {what}s are {', '.join(names) or 'none'}",
            hint=meant(name, names) or hint, code="NF-MODEL-070",
        )


def zeros(graph: Graph) -> dict[str, Array]:
    """What a sequence begins with."""
    return {given: np.zeros(graph.type(given).shape, graph.type(given).dtype) for _, given in graph.state}


class Steps:
    """One sequence of runs: what the state holds between them. Threads take turns."""

    def __init__(self, run: Step, state: Pairs, start: Mapping[str, Array]) -> None:
        self._run, self._state, self._start = run, state, dict(start)
        self._lock = threading.Lock()
        self.held = dict(start)
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: the step that a thread of the parent was in is the parent's."""
        self._lock = threading.Lock()

    def reset(self, **start: Array) -> None:
        """Forget what came before: the state is as at first, but for what is given."""
        with self._lock:
            self.held = {**self._start, **start}

    def run(self, sample: Mapping[str, Any], dump: bool | Iterable[str] = False) -> dict[str, Array]:
        """One step. State that the sample itself has replaces what is kept."""
        with self._lock:
            found = self._run({**self.held, **mapping(sample)}, dump)
            self.held = {name: np.array(found[output]) for output, name in self._state}
            return found


class Following:
    """A model whose samples follow each other: a sample without the inputs that hold state gets what the last
    one left. One that has them begins a sequence. State is left out of the outputs.
    """

    def __init__(self, model: SampleModel, state: Pairs, start: Mapping[str, Array]) -> None:
        self.model, self.state = model, state
        self.kept = dict(start)

    def run_many(self, samples: Iterable[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = []
        for sample in samples:
            (made,) = self.model.run_many([{**self.kept, **sample}])
            self.kept = {given: made.pop(output) for output, given in self.state}
            found.append(made)
        return found


def metadata(graph: Graph) -> dict[str, str]:
    """What an exported ONNX model remembers of its state: pairs, and the code of zero; and what rings are."""
    quants = [graph.values[given].quant for _, given in graph.state]
    rows = [
        [output, given, 0 if quant is None else quant.zero_point[0]]
        for (output, given), quant in zip(graph.state, quants, strict=True)
    ]
    found = {METADATA: json.dumps(rows)} if rows else {}
    if rows and graph.rings:
        from npuflow.ir.rings import told  # the simulator loads nothing of the graph

        found[RINGS] = json.dumps(told(graph.rings))
    return found


def state_of(session: onnxruntime.InferenceSession) -> dict[tuple[str, str], int]:
    """The state of an exported model: pairs with the code of zero."""
    text = session.get_modelmeta().custom_metadata_map.get(METADATA)
    return {(output, given): zero for output, given, zero in json.loads(text)} if text else {}


def rings_of(told_: Mapping[str, str]) -> tuple[Ring, ...]:
    """What an exported model says of its rings. `told_`: its metadata."""
    from npuflow.ir.rings import Ring

    return tuple(Ring.of(one) for one in json.loads(told_.get(RINGS, "[]")))


def pairs(rows: Iterable[Any]) -> Pairs:
    """State as JSON holds it."""
    return tuple((str(output), str(given)) for output, given in rows)
