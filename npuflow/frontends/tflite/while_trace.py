"""Follows a WHILE of TFLite through its steps, as far as what it computes is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.frontends._nodes.loop import CannotLoopError
from npuflow.frontends.tflite.known import known
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.types import Array

WHOLE = ("int", "uint", "bool")
LONGEST = 1 << 20                         # operators of all steps that are followed


@dataclass(frozen=True)
class WhileTrace:
    """A WHILE whose end is known: its steps, and by tensor of the body what it is in each of them where that
    is known. `last`: of the states behind the loop, where known."""

    steps: int
    values: dict[int, list[Array]]
    last: tuple[Array | None, ...]

    def same(self, index: int) -> Array | None:
        """What a tensor of the body is in every step."""
        rows = self.values.get(index)
        if not rows or any(not np.array_equal(rows[0], row) for row in rows[1:]):
            return None
        return rows[0]


def followed(
    cond: TfliteNetwork, body: TfliteNetwork, states: Sequence[TfliteTensor], most: int = LONGEST
) -> WhileTrace:
    """The steps of a loop. What is carried in floats is not followed: a loop of the graph carries it."""
    stays = [a == b for a, b in zip(body.inputs, body.outputs, strict=True)]
    now = [
        one.data if fixed or (one.dtype.startswith(WHOLE) and one.codes is None) else None
        for one, fixed in zip(states, stays, strict=True)
    ]
    rows: dict[int, list[Array]] = {}
    steps = 0
    while _goes_on(cond, now):
        found = _run(body, now)
        for index, value in found.items():
            rows.setdefault(index, []).append(value)
        now = [_held(body, found, index) for index in body.outputs]
        steps += 1
        if steps * (len(body.operators) + len(cond.operators) + 1) > most:
            raise CannotLoopError(f"it has more than {steps - 1} steps")
    return WhileTrace(steps, {i: row for i, row in rows.items() if len(row) == steps}, tuple(now))


def _goes_on(cond: TfliteNetwork, now: Sequence[Array | None]) -> bool:
    held = _run(cond, now).get(cond.outputs[0])
    if held is None:
        raise CannotLoopError("its condition depends on data")
    return bool(held.reshape(-1)[0])


def _run(graph: TfliteNetwork, given: Sequence[Array | None]) -> dict[int, Array]:
    """What is known of the tensors of a subgraph, constants left out."""
    found = {i: value for i, value in zip(graph.inputs, given, strict=True) if value is not None}
    for operator in graph.operators:
        held = [_held(graph, found, i) for i in operator.inputs]
        if len(operator.outputs) != 1 or not held or any(one is None for one in held):
            continue
        if any(graph.tensors[i].codes is not None for i in operator.inputs if i >= 0):
            continue
        value = known(operator, [one for one in held if one is not None], graph.tensors[operator.outputs[0]])
        if value is not None:
            found[operator.outputs[0]] = value
    return found


def _held(graph: TfliteNetwork, found: dict[int, Array], index: int) -> Array | None:
    return found.get(index, graph.tensors[index].data) if index >= 0 else None


def makers(graph: TfliteNetwork) -> dict[int, Operator]:
    return {o: operator for operator in graph.operators for o in operator.outputs}
