"""What LSTM, GRU and RNN share: input products of all steps as one Gemm, and the steps as a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Protocol

import numpy as np

from npuflow.ir.loops import FEW, depths
from npuflow.ir.nesting import MAX_DEPTH
from npuflow.ir.queries import kind
from npuflow.ir.types import Array
from npuflow.rules._masks import opposite
from npuflow.rules._match import attribute
from npuflow.rules._numbers import INTEGERS, number
from npuflow.rules._parts import Parts

MOST_STEPS = 2048                         # of a layer that are written out where no loop is possible
JOINED = 128                              # states, of all sequences, up to which one product makes all gates
MAKES = (
    "loopcarry",
    "looplast",
    "loopslice",
    "loopstack",
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
    """A recurrent node: its input as rows of all steps, and its directions. `valid`: `masks` that are
    constants; `lasting`: all masks where they are computed, [batch, steps], else ""; `within`: it stands in
    a nested loop."""

    parts: Parts
    rows: str                             # [steps * batch, inputs]
    steps: int
    batch: int
    hidden: int
    clip: float
    directions: tuple[Direction, ...]
    valid: tuple[str, ...]
    lasting: str = ""
    within: bool = False

    @property
    def looped(self) -> bool:
        """Whether the steps become a loop. Where the ends of sequences are constants, steps are written out:
        what comes behind an end is left out."""
        return self.steps > FEW and not any(self.valid) and not self.within

    @property
    def joined(self) -> bool:
        """Whether one product of the state makes all gates. Of more states the vector unit works on the first
        gates while the array multiplies for the last one, which is worth a product more."""
        return self.looped and self.batch * self.hidden <= JOINED

    def masks(self) -> Sequence[str]:
        """By step, 1 for sequences that have it and 0 for those that ended before, [batch, 1]; "" where all
        have it."""
        if not self.lasting or self.steps == 1:
            return (self.lasting,) if self.lasting else self.valid
        return self.parts.ops("split", (self.lasting,), "valid", sizes=(1,) * self.steps, axis=1)

    def held(self, mask: str, new: str, old: str) -> tuple[str, str]:
        """A step's result, 0 behind the end of a sequence, and its state, which stays there as it was."""
        parts = self.parts
        if not mask:
            return new, new
        given = parts.array(mask)
        if given is not None and not np.any(given):
            return parts.const(np.zeros((self.batch, self.hidden)), "ended"), old
        row = parts.mul(new, mask, "row")
        return row, parts.add(row, parts.mul(old, opposite(parts, mask), "stays"), "held") if old else row

    def products(self, weights: Array, bias: Array, what: str) -> str:
        """The input's part of some gates, for every step: one Gemm."""
        return self.gemm(self.rows, self.matrix(weights, f"{what}_w"), bias, what)

    def steps_of(self, rows: str, what: str) -> tuple[str, ...]:
        """Rows of all steps, step by step."""
        if self.steps == 1:
            return (rows,)
        return self.parts.ops("split", (rows,), what, sizes=(self.batch,) * self.steps, axis=0)

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
        return (x,) if count == 1 else self.cut(x, (1,) * count, what)

    def cut(self, x: str, gates: Sequence[int], what: str) -> tuple[str, ...]:
        """[batch, gates * hidden] in parts of so many gates."""
        return self.parts.ops("split", (x,), what, sizes=tuple(n * self.hidden for n in gates), axis=1)


@dataclass(frozen=True)
class Swept:
    """One direction's results in the order of the sequence, [steps * batch, hidden], its last state and cell
    state; "" for zeros. `rows`: the results step by step, where the steps are written out."""

    rows: Sequence[str]
    h: str
    c: str = ""


class RecurrentCell(Protocol):
    """What a kind of layer computes. `remembers`: it has a cell state beside its state."""

    remembers: ClassVar[bool]

    def sums(self, layer: RecurrentLayer, one: Direction) -> Sequence[str]:
        """What the input adds to the gates, for all steps."""

    def step(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str, c: str
    ) -> tuple[str, str]:
        """The next state and cell state ("" where there is none). `sums`: of the step; `h` and `c`: "" for
        zeros."""


def swept(layer: RecurrentLayer, one: Direction, cell: RecurrentCell) -> Swept:
    """One direction, its steps one after the other or as a loop."""
    sums = cell.sums(layer, one)
    if layer.looped:
        return _loop(layer, one, cell, sums)
    steps = [layer.steps_of(rows, "step") for rows in sums]
    h, c, rows, masks = one.h, one.c, [""] * layer.steps, layer.masks()
    for t in one.steps:
        new, memory = cell.step(layer, one, [some[t] for some in steps], h, c)
        if memory:
            _, c = layer.held(masks[t], memory, c)
        rows[t], h = layer.held(masks[t], new, h)
    return Swept(rows, h, c)


def _loop(layer: RecurrentLayer, one: Direction, cell: RecurrentCell, sums: Sequence[str]) -> Swept:
    parts, back = layer.parts, one.steps.step < 0
    said = {"loop": f"{parts.base}:{'backward' if back else 'forward'}", "steps": layer.steps}

    def step(rows: str, what: str) -> str:
        return parts.op("loopslice", (rows,), what, **said, reverse=back)

    def carried(initial: str, index: int, what: str) -> str:
        zeros = initial or parts.const(np.zeros((layer.batch, layer.hidden)), "initial")
        return parts.op("loopcarry", (zeros,), what, **said, index=index)

    here = [step(rows, "step") for rows in sums]
    mask = ""
    if layer.lasting:
        lasting = parts.reshape(parts.swapped(layer.lasting), (layer.steps * layer.batch, 1))
        mask = step(lasting, "valid")
    h = carried(one.h, 0, "state_before")
    c = carried(one.c, 1, "memory_before") if cell.remembers else ""
    new, memory = cell.step(layer, one, here, h, c)
    row, after = layer.held(mask, new, h)
    last_h = parts.op("looplast", (after,), "last", **said, index=0)
    last_c = ""
    if memory:
        last_c = parts.op("looplast", (layer.held(mask, memory, c)[1],), "last_memory", **said, index=1)
    return Swept((parts.op("loopstack", (row,), "rows", **said, reverse=back),), last_h, last_c)


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
    made = RecurrentLayer(
        parts, rows, steps, batch, hidden, clip if clip > 0 else inf, tuple(directions), *valid,
        within=any(depths(parts.graph).get(o) == MAX_DEPTH for o in parts.node.outputs),
    )
    if not made.looped and steps * count > MOST_STEPS:
        return f"{steps * count} steps, more than the {MOST_STEPS} that are written out one by one"
    return made


def written(layer: RecurrentLayer, kind: RecurrentCell, cell: bool) -> tuple[str, ...]:
    """Y, Y_h and, of layers with a cell state, Y_c."""
    parts, hidden = layer.parts, layer.hidden
    count = len(layer.directions)
    found = [swept(layer, direction, kind) for direction in layer.directions]

    def placed(rows: Sequence[str], lead: tuple[int, ...]) -> str:
        """Rows of [batch, hidden] as one tensor."""
        return parts.reshape(parts.concat(rows, 0), (*lead, layer.batch, hidden))

    def last(states: Sequence[str]) -> str:
        zeros = parts.const(np.zeros((layer.batch, hidden)), "initial")
        return placed([state or zeros for state in states], (count,))

    def joined() -> str:
        """The results of all directions."""
        if not layer.looped:
            return placed([one.rows[t] for t in range(layer.steps) for one in found], (layer.steps, count))
        shape = (layer.steps, 1, layer.batch, hidden)
        return parts.concat([parts.reshape(one.rows[0], shape) for one in found], 1)

    y = joined() if parts.output(0) else ""
    y_h = last([one.h for one in found]) if parts.output(1) else ""
    y_c = last([one.c for one in found]) if cell and parts.output(2) else ""
    return y, y_h, y_c


def _valid(parts: Parts, steps: int, batch: int) -> tuple[tuple[str, ...], str] | str:
    """By step which sequences have it, as constants; or, of computed lengths, as rows picked from a triangle
    of ones."""
    given = parts.input(4)
    lengths = parts.number(4) if given else np.full(batch, steps)
    if lengths is not None:
        masks = (lengths.reshape(batch, 1) > np.arange(steps)).astype(np.float32)
        return tuple("" if m.all() else parts.const(m[:, None], "valid") for m in masks.T), ""
    if parts.type(given).dtype not in INTEGERS:
        return f"sequence lengths of {parts.type(given).dtype}"
    counts, given = _counts(parts, given, steps)
    table = parts.const(np.tri(steps + 1, steps, -1)[None, counts], "lengths")
    picked = parts.op("lookup", (table, parts.reshape(number(parts, given), (batch,))))
    return ("",) * steps, parts.reshape(picked, (batch, steps))


def _counts(parts: Parts, given: str, steps: int) -> tuple[Array, str]:
    """Rows of a triangle of ones, and the index that picks one of them: lengths that are themselves picked
    out of constants, as behind strides, pick by what those are picked by."""
    node = parts.graph.producer().get(given)
    if node is not None and kind(node) == "host:gather" and attribute(node, "axis", 0) == 0:
        counts = parts.graph.const(node.inputs[0])
        if counts is not None and counts.ndim == 1 and not (counts < 0).any() and counts.max() <= steps:
            return counts, node.inputs[1]
    return np.arange(steps + 1), given


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
