"""Steps of a recurrent layer, written out one behind the other, as one operator over the whole sequence.

TensorFlow has no recurrent operator: Keras layers come as loops, or unrolled. Both are steps of the same
weights here, each of which starts from the state that the one before gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from npuflow.frontends.tflite.cells import CellStep, same, steps
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.frontends.tflite.terms import AffineSum, TensorTerms
from npuflow.ir.types import Array

LAYER = "RECURRENT_LAYER"
ACTIVE = ("TANH", "RELU", "LOGISTIC")


@dataclass(frozen=True)
class RecurrentChain:
    """A layer: its steps in order, the inputs of each, and the state before the first; -1: zeros."""

    steps: tuple[CellStep, ...]
    inputs: tuple[int, ...]
    h: int
    c: int
    weights: dict[str, Any]


def folded(network: TfliteNetwork) -> TfliteNetwork:
    """The network with recurrent layers as one operator each."""
    if sum(o.name in ACTIVE for o in network.operators) < 2:
        return network
    terms = TensorTerms(network)
    found = chains(terms)
    return _Writer(network, terms).rewritten(found) if found else network


def chains(terms: TensorTerms) -> list[RecurrentChain]:
    """The layers of a network."""
    known: dict[int, CellStep] = {}
    for step in steps(terms):
        known.setdefault(step.h, step)
    readers: dict[int, list[CellStep]] = {}
    for step in known.values():
        for source in step.sources if step.kind != "GRU" else {*step.sources, step.before}:
            readers.setdefault(source, []).append(step)
    taken: set[int] = set()
    found = []
    for first in sorted(known.values(), key=lambda step: step.kind == "RNN"):
        if first.h in taken or _is_later(first, known, readers):
            continue
        row = [first]
        while (after := _next(row[-1], readers, taken)) is not None:
            row.append(after)
        chain = layer(terms, row) if len(row) > 1 else None
        if chain is not None:
            taken.update(step.h for step in chain.steps)
            found.append(chain)
    return found


def _is_later(step: CellStep, known: dict[int, CellStep], readers: dict[int, list[CellStep]]) -> bool:
    """Whether another step comes before this one."""
    sources = step.sources | {step.before}
    return any(
        s in known and known[s].h != step.h and _next(known[s], readers, set()) is step for s in sources
    )


def _next(step: CellStep, readers: dict[int, list[CellStep]], taken: set[int]) -> CellStep | None:
    """The step that starts from the state which this one gives."""
    for other in readers.get(step.h, ()):
        if other.kind != step.kind or other.h in taken or other.h == step.h:
            continue
        if other.functions != step.functions or other.reset_first != step.reset_first:
            continue
        if step.kind == "LSTM" and other.before == step.c and len(other.sources) == 2:
            return other
        if step.kind == "GRU" and other.before == step.h:
            return other
        if step.kind == "RNN" and len(other.sources) == 2:
            return other
    return None


def layer(terms: TensorTerms, row: Sequence[CellStep]) -> RecurrentChain | None:
    """The layer of these steps, as far as they have the same weights; the first one may start from zeros."""
    made: list[dict[str, Any]] = []
    inputs: list[int] = []
    for before, step in pairwise(row):
        weights = _weights(step, before.h)
        others = step.sources - {before.h}
        if weights is None or len(others) != 1 or (made and not _equal(made[0], weights)):
            break
        made.append(weights)
        inputs.append(others.pop())
    if not made:
        return None
    first, kept = row[0], row[: len(made) + 1]
    begin = _first(first, made[0])
    if begin is None:  # a step of other weights gives the state before the rest
        if len(kept) < 3:
            return None
        return _checked(terms, RecurrentChain(tuple(kept[1:]), tuple(inputs), first.h, first.c, made[0]))
    x, h = begin
    c = first.before if first.kind == "LSTM" else -1
    return _checked(terms, RecurrentChain(tuple(kept), (x, *inputs), h, c, made[0]))


def _checked(terms: TensorTerms, chain: RecurrentChain) -> RecurrentChain | None:
    """The layer if its tensors have the shapes that one has."""
    r, w = chain.weights["r"], chain.weights["w"]
    hidden = r[0].shape[0]
    states = [s for step in chain.steps for s in (step.h, step.c) if s >= 0]
    states += [s for s in (chain.h, chain.c) if s >= 0]
    sizes = {int(np.prod(terms.shape(s))) for s in states}
    rows = {int(np.prod(terms.shape(x))) // max(w[0].shape[0], 1) for x in chain.inputs}
    fits = len(sizes) == 1 and sizes == {n * hidden for n in rows}
    fits = fits and all(terms.width(s) == hidden for s in states)
    fits = fits and all(one.shape == (hidden, hidden) for one in r)
    return chain if fits and all(one.shape == (w[0].shape[0], hidden) for one in w) else None


def _first(step: CellStep, weights: dict[str, Any]) -> tuple[int, int] | None:
    """Input and state of the first step, if it has these weights. A state of zeros has left no product."""
    for x in step.sources:
        rest = step.sources - {x}
        if not rest and step.before < 0:
            found = _weights(step, -1, x)
            if found is not None and _equal(weights, {**found, "r": weights["r"]}, from_zeros=True):
                return x, -1
        elif len(rest) == 1:
            (h,) = rest
            found = _weights(step, h)
            if found is not None and _equal(weights, found) and (step.kind != "GRU" or step.before == h):
                return x, h
    return None


def _weights(step: CellStep, h: int, x: int | None = None) -> dict[str, Any] | None:
    """Matrices [in, hidden] and biases by gate: of the input, of the state, and those that a GRU's reset gate
    multiplies."""
    if x is None:
        rest = step.sources - {h}
        if len(rest) != 1:
            return None
        (x,) = rest
    gates, hidden = step.gates, 0
    w = [gate.matrix(x) for gate in gates if x in gate.parts]
    if len(w) != len(gates):
        return None
    hidden = w[0].shape[1]
    b = [gate.offset(hidden) for gate in gates]
    recurrent: list[AffineSum] = list(gates)
    inner_bias = np.zeros(hidden)
    if step.inner is not None:
        if set(step.inner.parts) - {h} or set(gates[2].parts) != {x}:
            return None
        recurrent[2] = step.inner
        inner_bias = step.inner.offset(hidden)
    if h < 0:
        return {"w": w, "r": [], "b": b, "inner": inner_bias}
    if any(set(gate.parts) - {x, h} or h not in gate.parts for gate in recurrent):
        return None
    return {"w": w, "r": [gate.matrix(h) for gate in recurrent], "b": b, "inner": inner_bias}


def _equal(one: dict[str, Any], other: dict[str, Any], from_zeros: bool = False) -> bool:
    """Whether weights are the same. `from_zeros`: without those of the gate that multiplies a state of zeros,
    the forget gate of an LSTM or the reset gate of a GRU."""

    def alike(a: Sequence[Array], b: Sequence[Array]) -> bool:
        skip = {4: 2, 3: 1}.get(len(a), -1) if from_zeros and not one["inner"].any() else -1
        return len(a) == len(b) and all(
            same(p, q) for i, (p, q) in enumerate(zip(a, b, strict=True)) if i != skip
        )

    return all(alike(one[key], other[key]) for key in "wrb") and np.array_equal(one["inner"], other["inner"])


class _Writer:
    """Puts layers in the places of their steps."""

    def __init__(self, network: TfliteNetwork, terms: TensorTerms) -> None:
        self.network, self.terms = network, terms
        self.tensors = list(network.tensors)
        self.names = {t.name for t in network.tensors}
        self.made: list[Operator] = []
        self.replaced: dict[int, Operator] = {}
        self.sequences: dict[tuple[int, ...], int] = {}

    def rewritten(self, found: Sequence[RecurrentChain]) -> TfliteNetwork:
        for chain in found:
            self.add(chain)
        own = [self.replaced.get(o.outputs[0], o) for o in self.network.operators]
        self.joined(own)
        kept = ordered([*self.made, *own], self.network)
        return replace(self.network, tensors=tuple(self.tensors), operators=tuple(kept), bodies=())

    def new(self, shape: Sequence[int], name: str, data: Array | None = None, dtype: str = "float32") -> int:
        while name in self.names:
            name += "'"
        self.names.add(name)
        self.tensors.append(TfliteTensor(name, tuple(shape), dtype, data, None))
        return len(self.tensors) - 1

    def add(self, chain: RecurrentChain) -> None:
        """The operator of a layer, and each state that the rest of the network may read as a part of its
        result."""
        count, last = len(chain.steps), chain.steps[-1]
        weights, base = chain.weights, self.tensors[last.h].name.partition("#")[0]
        hidden = weights["r"][0].shape[0]
        batch = int(np.prod(self.terms.shape(last.h))) // hidden
        x = self.sequence(chain, batch, weights["w"][0].shape[0], base)
        y = self.new((count, batch, hidden), f"{base}:steps")
        ends = [self.new((1, batch, hidden), f"{base}:last")]
        ends += [self.new((1, batch, hidden), f"{base}:cell")] if last.c >= 0 else []
        options = {"Kind": last.kind, "Functions": last.functions, "ResetFirst": last.reset_first, **weights}
        self.made.append(Operator(LAYER, (x, chain.h, chain.c), (y, *ends), options))
        for i, step in enumerate(chain.steps):
            at = self.new((1,), f"{base}:at", np.array([i], np.int32), "int32")
            whole = self.new((1, batch, hidden), f"{base}:row")
            self.made.append(Operator("GATHER", (y, at), (whole,), {"Axis": 0}))
            self.replaced[step.h] = Operator("RESHAPE", (whole,), (step.h,), {})
        self.replaced[last.h] = Operator("RESHAPE", (ends[0],), (last.h,), {})
        if last.c >= 0:
            self.replaced[last.c] = Operator("RESHAPE", (ends[1],), (last.c,), {})
        self.sequences[tuple(step.h for step in chain.steps)] = y

    def sequence(self, chain: RecurrentChain, batch: int, width: int, base: str) -> int:
        """What the steps read, as one tensor [steps, batch, width]."""
        rows = [self.terms.row(x) for x in chain.inputs]
        count, source = len(rows), rows[0][0] if rows[0] is not None else -1
        whole = source >= 0 and self.terms.shape(source) == (count, batch, width)
        if whole and rows == [(source, i) for i in range(count)]:
            return source
        if chain.inputs in self.sequences:
            return self.sequences[chain.inputs]
        parts = []
        for x in chain.inputs:
            parts.append(self.new((1, batch, width), f"{base}:input"))
            self.made.append(Operator("RESHAPE", (x,), (parts[-1],), {}))
        joined = self.new((count, batch, width), f"{base}:inputs")
        options = {"Axis": 0, "FusedActivationFunction": 0}
        self.made.append(Operator("CONCATENATION", tuple(parts), (joined,), options))
        return joined

    def joined(self, operators: list[Operator]) -> None:
        """Joins of all states of a layer are the layer's result."""
        for i, operator in enumerate(operators):
            if operator.name not in ("CONCATENATION", "PACK"):
                continue
            y = self.sequences.get(tuple(self.terms.root(t) for t in operator.inputs))
            if y is None or operator.options.get("FusedActivationFunction"):
                continue
            shape, axis = self.tensors[operator.outputs[0]].shape, int(operator.options.get("Axis", 0))
            steps, batch, width = self.tensors[y].shape
            if axis == 0 and shape[0] * int(np.prod(shape[1:])) == steps * batch * width:
                operators[i] = Operator("RESHAPE", (y,), operator.outputs, {})
            elif axis == 1 and shape == (batch, steps, width):
                order = self.new((3,), "order", np.array([1, 0, 2], np.int32), "int32")
                operators[i] = Operator("TRANSPOSE", (y, order), operator.outputs, {})


def ordered(operators: Sequence[Operator], network: TfliteNetwork) -> list[Operator]:
    """Those that the outputs need, each behind what it reads."""
    calls = {o: operator for operator in operators for o in operator.outputs}
    place = {id(operator): i for i, operator in enumerate(operators)}
    done: set[int] = set()
    found: list[Operator] = []
    for output in network.outputs:
        stack = [calls[output]] if output in calls else []
        while stack:
            operator = stack[-1]
            missing = [calls[i] for i in operator.inputs if i in calls and place[id(calls[i])] not in done]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            if place[id(operator)] not in done:
                done.add(place[id(operator)])
                found.append(operator)
    return found
