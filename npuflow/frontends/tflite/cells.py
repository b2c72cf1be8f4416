"""One step of a recurrent layer, recognised among the operators of a written-out network.

LSTM: c' = s(f) * c + s(i) * a(g), h' = s(o) * a(c'). GRU: h' = s(z) * h + (1 - s(z)) * a(n), the reset gate
before or behind the product. RNN: h' = a(n). Each of f, i, g, o, z, n is affine in the input and the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npuflow.frontends.tflite.terms import AffineSum, TensorTerms, place_of
from npuflow.ir.types import Array

FUNCTIONS = {"TANH": "Tanh", "RELU": "Relu", "LOGISTIC": "Sigmoid"}


@dataclass(frozen=True)
class CellStep:
    """A step that gives the state `h` (and `c`). `gates`: their affine sums in ONNX's order; `before`: states
    that it starts from, by what it tells of them: `c` of an LSTM, `h` of a GRU; -1 where it tells nothing or
    there is none. `inner`: the sum that a GRU's reset gate multiplies."""

    kind: str
    h: int
    c: int
    gates: tuple[AffineSum, ...]
    functions: tuple[str, ...]
    before: int
    inner: AffineSum | None = None
    reset_first: bool = False

    @property
    def sources(self) -> set[int]:
        """Tensors that the gates read."""
        return {s for gate in self.gates for s in gate.parts}


def steps(terms: TensorTerms) -> Iterator[CellStep]:
    """All that could be steps, whose kinds with more operators come first."""
    calls = [o for o in terms.network.operators if len(o.outputs) == 1]
    for call in calls:
        found = None
        if call.name == "MUL":
            found = lstm(terms, call.outputs[0]) or first_gru(terms, call.outputs[0])
        elif call.name == "ADD":
            found = gru(terms, call.outputs[0])
        elif call.name in ("TANH", "RELU", "LOGISTIC"):
            found = rnn(terms, call.outputs[0])
        if found is not None:
            yield found


def gate(terms: TensorTerms, index: int, *names: str) -> tuple[AffineSum, str] | None:
    """The sum behind an activation function, and the function."""
    call = terms.call(index, *names)
    if call is None:
        return None
    found = terms.affine(call.inputs[0])
    return (found, FUNCTIONS[call.name]) if found.parts and not found.others else None


def factors(terms: TensorTerms, index: int) -> Iterator[tuple[int, int]]:
    """Both orders of the factors of a product."""
    call = terms.call(index, "MUL")
    if call is not None and terms.plain(call.outputs):
        one, other = call.inputs
        yield one, other
        yield other, one


def scaled(terms: TensorTerms, index: int) -> Iterator[tuple[AffineSum, int]]:
    """A product with a logistic gate: the gate's sum, and the other factor."""
    for one, other in factors(terms, index):
        found = gate(terms, one, "LOGISTIC")
        if found is not None:
            yield found[0], other


def addends(terms: TensorTerms, index: int) -> Iterator[tuple[int, int]]:
    call = terms.call(index, "ADD")
    if call is not None:
        one, other = call.inputs
        yield one, other
        yield other, one


def lstm(terms: TensorTerms, h: int) -> CellStep | None:
    for o, state in scaled(terms, h):
        squashed = terms.call(state, "TANH", "RELU")
        if squashed is None:
            continue
        c = terms.root(squashed.inputs[0])
        for i, f, g, before, function in updates(terms, c):
            if FUNCTIONS[squashed.name] == function:
                gates = (i, o, f, g) if f is not None else (i, o, o, g)
                return CellStep("LSTM", terms.root(h), c, gates, ("Sigmoid", function, function), before)
    return None


def updates(terms: TensorTerms, c: int) -> Iterator[tuple[AffineSum, AffineSum | None, AffineSum, int, str]]:
    """Input gate, forget gate, new values, old state and function of a cell state."""
    for kept, new in ((-1, c), *addends(terms, c)):
        for i, value in scaled(terms, new):
            found = gate(terms, value, "TANH", "RELU")
            if found is None:
                continue
            if kept < 0:
                yield i, None, found[0], -1, found[1]
            for f, old in scaled(terms, kept) if kept >= 0 else ():
                yield i, f, found[0], state_of(terms, old), found[1]


def gru(terms: TensorTerms, h: int) -> CellStep | None:
    for kept, new in addends(terms, h):
        for z, old in scaled(terms, kept):
            z_value = next(one for one, other in factors(terms, kept) if other == old)
            found = candidate(terms, new, terms.root(z_value))
            if found is not None:
                r, n, inner, function, reset_first = found
                before = state_of(terms, old)
                if reset_first and before >= 0 and before not in r.parts:
                    continue
                gates = (z, r, n)
                return CellStep(
                    "GRU", terms.root(h), -1, gates, ("Sigmoid", function), before, inner, reset_first
                )
    return None


def first_gru(terms: TensorTerms, h: int) -> CellStep | None:
    """A step from a state of zeros, which converters leave out."""
    for one, _ in factors(terms, h):
        less = terms.call(one, "SUB")
        if less is not None and (z := gate(terms, less.inputs[1], "LOGISTIC")) is not None:
            found = candidate(terms, h, terms.root(less.inputs[1]))
            if found is not None:
                r, n, inner, function, reset_first = found
                return CellStep(
                    "GRU", terms.root(h), -1, (z[0], r, n), ("Sigmoid", function), -1, inner, reset_first
                )
    return None


def candidate(
    terms: TensorTerms, index: int, z: int
) -> tuple[AffineSum, AffineSum, AffineSum, str, bool] | None:
    """(1 - z) * a(n): reset gate, the part of n that it does not touch, the part that it does, a, and whether
    it multiplies the state and not the product."""
    for one, other in factors(terms, index):
        less = terms.call(one, "SUB")
        whole = None if less is None else terms.held(less.inputs[0])
        if less is None or whole is None or not np.all(whole == 1.0) or terms.root(less.inputs[1]) != z:
            continue
        call = terms.call(other, "TANH", "RELU")
        if call is None:
            continue
        n, function = terms.affine(call.inputs[0]), FUNCTIONS[call.name]
        if len(n.others) == 1:  # a(x W + b + r * (h U + d))
            for r, inner in scaled(terms, n.others[0]):
                product = terms.affine(inner)
                if not product.others:
                    return r, AffineSum(n.parts, n.bias), product, function, False
        if not n.others:  # a(x W + b + (r * h) U); of a state of zeros nothing is left, not even r
            for source, matrices in n.parts.items():
                for r, state in scaled(terms, source):
                    rest = {k: v for k, v in n.parts.items() if k != source}
                    before = state_of(terms, state)
                    product = AffineSum({before: matrices} if before >= 0 else {}, [])
                    return r, AffineSum(rest, n.bias), product, function, True
            if len(n.parts) == 1:
                return n, n, AffineSum({}, []), function, True
    return None


def state_of(terms: TensorTerms, index: int) -> int:
    """The tensor of a state; -1 where it is zero."""
    return -1 if terms.zero(index) else terms.root(index)


def rnn(terms: TensorTerms, h: int) -> CellStep | None:
    call = terms.call(h, "TANH", "RELU", "LOGISTIC")
    if call is None:
        return None
    found = terms.affine(call.inputs[0])
    if found.others or not 1 <= len(found.parts) <= 2:
        return None
    return CellStep("RNN", terms.root(h), -1, (found,), (FUNCTIONS[call.name],), -1)


def same(one: Array, other: Array) -> bool:
    return place_of(one) == place_of(other) or np.array_equal(one, other)
