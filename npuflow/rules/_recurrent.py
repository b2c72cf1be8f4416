"""What LSTM, GRU and RNN share: steps written one after another, input products as one Gemm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from npuflow.ir.types import Array
from npuflow.rules._masks import opposite
from npuflow.rules._numbers import INTEGERS, number
from npuflow.rules._parts import Parts

# steps of all directions that are written out; each takes some ten operators
MOST_STEPS = 2048
MAKES = (
    "gemm",
    "add",
    "sub",
    "mul",
    "split",
    "slice",
    "reshape",
    "transpose",
    "concat",
    "clip",
    "relu",
    "tanh",
    "sigmoid",
    "leakyrelu",
    "thresholdedrelu",
    "hardsigmoid",
    "elu",
    "softsign",
    "softplus",
    "lookup",
    "host",
)

# Name -> operator, and its attributes for alpha and beta with their defaults.
_FUNCTIONS: dict[str, tuple[str, dict[str, float]]] = {
    "relu": ("relu", {}),
    "tanh": ("tanh", {}),
    "sigmoid": ("sigmoid", {}),
    "softsign": ("softsign", {}),
    "softplus": ("softplus", {}),
    "leakyrelu": ("leakyrelu", {"alpha": 0.01}),
    "elu": ("elu", {"alpha": 1.0}),
    "thresholdedrelu": ("thresholdedrelu", {"alpha": 1.0}),
    "hardsigmoid": ("hardsigmoid", {"alpha": 0.2, "beta": 0.5}),
}


@dataclass(frozen=True)
class Activation:
    """A function of a gate: an operator with its attributes."""

    op: str
    fields: tuple[tuple[str, float], ...] = ()

    def __call__(self, parts: Parts, x: str, what: str) -> str:
        return parts.op(self.op, (x,), what, **dict(self.fields))


@dataclass(frozen=True)
class Direction:
    """One direction's weights ([gates * hidden, ...]), functions, initial states (""
    for zeros) and order of steps."""

    w: Array
    r: Array
    bias: Array                           # of the input and of the state, [2, gates * hidden]
    peepholes: Array | None
    functions: tuple[Activation, ...]
    h: str
    c: str
    steps: range


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent node: its input as rows of all steps, and its directions. `valid`: by step, 1 for sequences
    that have it and 0 for those that ended before, [batch, 1]; "" where all have it."""

    parts: Parts
    rows: str                             # [steps * batch, inputs]
    steps: int
    batch: int
    hidden: int
    clip: float
    directions: tuple[Direction, ...]
    valid: tuple[str, ...]

    def held(self, t: int, new: str, old: str) -> tuple[str, str]:
        """A step's result, 0 behind the end of a sequence, and its state, which stays there as it was."""
        mask, parts = self.valid[t], self.parts
        if not mask:
            return new, new
        given = parts.array(mask)
        if given is not None and not np.any(given):
            return parts.const(np.zeros((self.batch, self.hidden)), "ended"), old
        row = parts.mul(new, mask, "row")
        return row, parts.add(row, parts.mul(old, opposite(parts, mask), "stays"), "held") if old else row

    def products(self, weights: Array, bias: Array, what: str) -> tuple[str, ...]:
        """The input's part of some gates, for every step: one Gemm."""
        found = self.gemm(self.rows, self.matrix(weights, f"{what}_w"), bias, what)
        if self.steps == 1:
            return (found,)
        return self.parts.ops("split", (found,), f"{what}_step", sizes=(self.batch,) * self.steps, axis=0)

    def matrix(self, weights: Array, what: str) -> str:
        return self.parts.const(weights, what)

    def gemm(self, x: str, weights: str, bias: Array | None, what: str) -> str:
        """x times the transposed weights, plus the bias."""
        more = () if bias is None else (self.parts.const(bias, f"{what}_b"),)
        return self.parts.op("gemm", (x, weights, *more), what, transB=1)

    def active(self, function: Activation, x: str, what: str) -> str:
        """A gate's function of its sum, which a layer with a clip bounds."""
        return function(
            self.parts, x if self.clip == inf else self.parts.clip(x, -self.clip, self.clip), what
        )

    def halves(self, x: str, count: int, what: str) -> tuple[str, ...]:
        """[batch, count * hidden] in parts of one gate each."""
        if count == 1:
            return (x,)
        return self.parts.ops("split", (x,), what, sizes=(self.hidden,) * count, axis=1)


@dataclass(frozen=True)
class Swept:
    """One direction's results in the order of the sequence, its last state and cell state; "" for zeros."""

    rows: Sequence[str]
    h: str
    c: str = ""


Run = Callable[[RecurrentLayer, Direction], Swept]


def read(parts: Parts, gates: int, functions: int, cell: bool) -> RecurrentLayer | str:
    """The layer, or why it is not written out."""
    x, hidden = parts.input(0), parts.integer("hidden_size", 0)
    if parts.integer("layout", 0):
        return "the batch is its first dimension"
    steps, batch, inputs = parts.shape(x)
    held = [parts.number(i) if parts.input(i) else None for i in (1, 2, 3, 7)]
    if any(parts.input(i) and a is None for i, a in zip((1, 2, 3, 7), held, strict=True)):
        return "its weights are not constants"
    w, r, b, peepholes = held
    assert w is not None and r is not None
    count, hidden = w.shape[0], hidden or r.shape[2]
    if steps * count > MOST_STEPS:
        return f"{steps * count} steps, more than the {MOST_STEPS} that are written out one by one"
    valid = _valid(parts, steps, batch)
    if isinstance(valid, str):
        return valid
    chosen = _functions(parts, count * functions)
    if isinstance(chosen, str):
        return chosen
    backward = str(parts.attribute("direction", "forward"))
    directions = []
    for d in range(count):
        reverse = d == 1 or backward == "reverse"
        bias = np.zeros((2, gates * hidden), np.float32) if b is None else b[d].reshape(2, gates * hidden)
        directions.append(Direction(
            w[d], r[d], bias, peepholes[d] if cell and peepholes is not None else None,
            chosen[d * functions : (d + 1) * functions],
            _initial(parts, 5, d), _initial(parts, 6, d) if cell else "",
            range(steps - 1, -1, -1) if reverse else range(steps),
        ))
    rows = parts.reshape(x, (steps * batch, inputs))
    clip = float(parts.real("clip", inf))
    return RecurrentLayer(
        parts, rows, steps, batch, hidden, clip if clip > 0 else inf, tuple(directions), valid
    )


def written(layer: RecurrentLayer, run: Run, cell: bool) -> tuple[str, ...]:
    """Y, Y_h and, of layers with a cell state, Y_c."""
    parts, hidden = layer.parts, layer.hidden
    count = len(layer.directions)
    swept = [run(layer, direction) for direction in layer.directions]

    def placed(rows: Sequence[str], lead: tuple[int, ...]) -> str:
        """Rows of [batch, hidden] as one tensor."""
        return parts.reshape(parts.concat(rows, 0), (*lead, layer.batch, hidden))

    def last(states: Sequence[str]) -> str:
        zeros = parts.const(np.zeros((layer.batch, hidden)), "initial")
        return placed([state or zeros for state in states], (count,))

    y = (
        placed([one.rows[t] for t in range(layer.steps) for one in swept], (layer.steps, count))
        if parts.output(0)
        else ""
    )
    y_h = last([one.h for one in swept]) if parts.output(1) else ""
    y_c = last([one.c for one in swept]) if cell and parts.output(2) else ""
    return y, y_h, y_c


def _valid(parts: Parts, steps: int, batch: int) -> tuple[str, ...] | str:
    """By step which sequences have it; computed lengths pick a row of a triangle of ones."""
    given = parts.input(4)
    lengths = parts.number(4) if given else np.full(batch, steps)
    if lengths is not None:
        masks = (lengths.reshape(batch, 1) > np.arange(steps)).astype(np.float32)
        return tuple("" if m.all() else parts.const(m[:, None], "valid") for m in masks.T)
    if parts.type(given).dtype not in INTEGERS:
        return f"sequence lengths of {parts.type(given).dtype}"
    table = parts.const(np.tri(steps + 1, steps, -1)[None], "lengths")
    picked = parts.op("lookup", (table, parts.reshape(number(parts, given), (batch,))))
    rows = parts.reshape(picked, (batch, steps))
    return (rows,) if steps == 1 else parts.ops("split", (rows,), "valid", sizes=(1,) * steps, axis=1)


def _initial(parts: Parts, index: int, direction: int) -> str:
    """An initial state of one direction, [batch, hidden]; "" where there is none or it is 0."""
    given, held = parts.input(index), parts.number(index)
    if not given or (held is not None and not np.any(held)):
        return ""
    if held is not None:
        return parts.const(held[direction], "initial")
    return parts.reshape(
        parts.slice(given, 0, direction, direction + 1, what="initial"), parts.shape(given)[1:]
    )


def _functions(parts: Parts, count: int) -> tuple[Activation, ...] | str:
    """The functions of all gates; those that take alpha or beta use up the lists of the node in order."""
    usual = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
    default = usual[str(getattr(parts.node.op, "op_type", ""))]
    named = parts.attribute("activations", default * (count // len(default)))
    names = (named,) if isinstance(named, str) else named
    if not isinstance(names, tuple) or len(names) != count:
        return f"activations {names}"
    lists = {key: _listed(parts, f"activation_{key}") for key in ("alpha", "beta")}
    found = []
    for name in names:
        known = _FUNCTIONS.get(str(name).lower())
        if known is None:
            return f"activation {name}"
        op, defaults = known
        fields = tuple((key, next(lists[key], default)) for key, default in defaults.items())
        found.append(Activation(op, fields))
    return tuple(found)


def _listed(parts: Parts, name: str) -> Iterator[float]:
    given = parts.attribute(name, ())
    return iter([float(v) for v in given] if isinstance(given, tuple) else [])
