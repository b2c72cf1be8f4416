"""Follows a WHILE of TFLite through its steps, as far as what it computes is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends.tflite.known import known
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.types import Array

WHOLE = ("int", "uint", "bool")
NUMBERS = ("int32", "int64")              # of whole numbers that a loop may carry
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


def is_whole(tensor: TfliteTensor) -> bool:
    """Whether a tensor holds whole numbers that stand for themselves."""
    return tensor.dtype in NUMBERS and tensor.codes is None


def followed(
    cond: TfliteNetwork, body: TfliteNetwork, states: Sequence[TfliteTensor], most: int = LONGEST
) -> WhileTrace:
    """The steps of a loop. What is carried in floats is not followed: a loop of the graph carries it."""
    now = _first(body, states)
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


def counting(
    cond: TfliteNetwork, body: TfliteNetwork, states: Sequence[TfliteTensor], most: int
) -> WhileTrace:
    """As `followed`, of a loop whose end depends on data: as many steps as stated, or as conditions let run
    that data do not decide."""
    if most * (len(body.operators) + len(cond.operators) + 1) > LONGEST:
        raise CannotLoopError(f"{most} steps are more than can be followed")
    now, rows, known = _first(body, states), dict[int, list[Array]](), list[list[bool]]()
    leaves = conditions(cond)
    for _ in range(most):
        found = _run(body, now)
        for index, value in found.items():
            rows.setdefault(index, []).append(value)
        now = [_held(body, found, index) for index in body.outputs]
        ends = _run(cond, now)
        known.append([bool(ends[leaf].all()) for leaf in leaves if leaf in ends])
        if not all(known[-1]):
            break
    return WhileTrace(len(known), {i: row for i, row in rows.items() if len(row) == len(known)}, tuple(now))


def conditions(cond: TfliteNetwork) -> list[int]:
    """The truth values that all have to hold for another step."""
    makes, found, waiting = makers(cond), list[int](), [cond.outputs[0]]
    while waiting:
        maker = makes.get(waiting[-1])
        if maker is not None and maker.name == "LOGICAL_AND":
            waiting[-1:] = maker.inputs
        else:
            found.append(waiting.pop())
    return list(dict.fromkeys(found))


def _first(body: TfliteNetwork, states: Sequence[TfliteTensor]) -> list[Array | None]:
    """What is known of the states before the first step."""
    stays = [a == b for a, b in zip(body.inputs, body.outputs, strict=True)]
    return [
        one.data if fixed or (one.dtype.startswith(WHOLE) and one.codes is None) else None
        for one, fixed in zip(states, stays, strict=True)
    ]


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
