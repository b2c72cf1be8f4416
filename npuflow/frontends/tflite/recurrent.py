"""Recurrent layers: LSTM and RNN as one operator for all steps, forms that ONNX lacks as written-out steps.

A layer's state is a variable of the file. It starts at zero: a call of the network is one whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from npuflow.frontends.tflite.chains import LAYER
from npuflow.frontends.tflite.network import PLAIN, TfliteBuilder, TfliteOperatorError, real
from npuflow.frontends.tflite.recurrent_cell import GATES, Cell, written
from npuflow.frontends.tflite.schema import Operator
from npuflow.ir.types import Array

STATES: dict[str, tuple[int, ...]] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
}
"""Places of operands that are states."""
FUNCTIONS = {1: "Relu", 4: "Tanh"}  # of those that an ONNX layer takes
ONNX_GATES = "iofc"
FUSED = "FusedActivationFunction"


def states(operator: Operator) -> frozenset[int]:
    """Tensors of an operator that are its states, which no operator produces."""
    places = STATES.get(operator.name, ())
    return frozenset(operator.inputs[p] for p in places if p < len(operator.inputs))


def numbers(builder: TfliteBuilder, operator: Operator, place: int) -> Array | None:
    """A constant operand as numbers; None where it is left out."""
    index = operator.inputs[place] if place < len(operator.inputs) else -1
    if index < 0:
        return None
    held, codes = builder.data(index), builder.tensor(index).codes
    if held is None:
        raise TfliteOperatorError("weights that the network computes")
    if codes is None and held.dtype.kind != "f":
        raise TfliteOperatorError("codes without a scale")
    return held.astype(np.float32) if codes is None else real(held, codes)


def lstm_cell(builder: TfliteBuilder, operator: Operator, first: int, norms: int) -> Cell:
    """The weights of one direction from operand `first` on; `norms`: where those of its norms begin."""
    given = partial(numbers, builder, operator)

    def row(begin: int, gates: str) -> dict[str, Array]:
        held = {gate: given(begin + i) for i, gate in enumerate(gates)}
        return {gate: array for gate, array in held.items() if array is not None}

    w, r, p, b = (row(first + at, gates) for at, gates in ((0, GATES), (4, GATES), (8, "ifo"), (11, GATES)))
    norm = row(norms, GATES) if norms else {}
    if "i" not in w:  # the input gate is 1 - forget gate: the logistic function of the negative sum
        if norm:
            raise TfliteOperatorError("norms of gates that are coupled")
        for part in (w, r, p, b):
            part.update({"i": -part["f"]} if "f" in part else {})
    return Cell(
        w,
        r,
        b,
        p,
        norm,
        given(first + 15),
        given(first + 16),
        int(operator.options[FUSED]),
        float(operator.options["CellClip"]),
        float(operator.options["ProjClip"]),
    )


def rnn_cell(builder: TfliteBuilder, operator: Operator, first: int) -> Cell:
    w, r, b = (numbers(builder, operator, first + i) for i in range(3))
    if w is None or r is None or b is None:
        raise TfliteOperatorError("without weights")
    return Cell({"c": w}, {"c": r}, {"c": b}, activation=int(operator.options[FUSED]))


def layer(cells: Sequence[Cell], builder: TfliteBuilder, operator: Operator) -> None:
    """A layer of one or two directions, whose results are two tensors, or one behind the other."""
    source, major = operator.inputs[0], bool(operator.options["TimeMajor"])
    shape = builder.tensor(source).shape
    steps, batch = shape[:2] if major else shape[1::-1]
    x = builder.value(source)
    if not major:
        x = turned(builder, x, (steps, batch, shape[2]))
    if all(plain(cell, steps) for cell in cells):
        ways = whole(builder, x, cells, (steps, batch))
    else:
        ways = [
            written(builder, x, cell, (steps, batch, shape[2]), backward=bool(i))
            for i, cell in enumerate(cells)
        ]
    if len(ways) > len(operator.outputs):
        ways = [builder.node("Concat", ways, axis=2)]
    for index, way in zip(operator.outputs, ways, strict=True):
        name = builder.result(index, PLAIN)
        if major:
            builder.node("Identity", [way], name)
        else:
            turned(builder, way, builder.tensor(index).shape, name)


def turned(builder: TfliteBuilder, x: str, shape: Sequence[int], name: str = "") -> str:
    """Steps and samples in the other order; `shape`: of the result."""
    if 1 in shape[:2]:
        return builder.node("Reshape", [x, builder.shape(shape)], name)
    return builder.node("Transpose", [x], name, perm=[1, 0, 2])


def plain(cell: Cell, steps: int) -> bool:
    """Whether an ONNX layer computes this. A cell state grows by at most 1 a step where its function is tanh:
    a bound that it cannot reach is none."""
    unbound = not cell.cell_clip or (cell.activation == 4 and cell.cell_clip >= steps)
    return unbound and cell.activation in FUNCTIONS and cell.projection is None and not cell.norms


def whole(builder: TfliteBuilder, x: str, cells: Sequence[Cell], size: tuple[int, int]) -> list[str]:
    """One operator for all steps; its results by direction."""
    kind, order = ("LSTM", ONNX_GATES) if "o" in cells[0].w else ("RNN", "c")
    hidden = cells[0].r["c"].shape[0]
    zero = np.zeros(hidden * len(order), np.float32)

    def stacked(part: str, gates: str) -> Array:
        return np.stack([np.concatenate([getattr(cell, part)[g] for g in gates]) for cell in cells])

    def named(values: Array, what: str) -> str:
        return builder.constant(values, name=f"{builder.origin}:{what}")

    b = np.stack([np.concatenate([row, zero]) for row in stacked("b", order)])
    inputs = [x, named(stacked("w", order), "w"), named(stacked("r", order), "r"), named(b, "b")]
    if any(cell.peepholes for cell in cells):
        held = [np.concatenate([cell.peepholes.get(g, np.zeros(hidden)) for g in "iof"]) for cell in cells]
        inputs += ["", "", "", named(np.stack(held), "peepholes")]
    functions = [
        ["Sigmoid", f, f] if kind == "LSTM" else [f] for f in (FUNCTIONS[c.activation] for c in cells)
    ]
    both = len(cells) == 2
    y = builder.node(
        kind,
        inputs,
        hidden_size=hidden,
        direction="bidirectional" if both else "forward",
        activations=[name for row in functions for name in row],
    )
    rows = [y]
    if both:
        rows = [builder.free(f"{builder.origin}:{way}") for way in ("forward", "backward")]
        builder.many("Split", [y, builder.shape([1, 1])], rows, axis=1)
    return [builder.node("Reshape", [row, builder.shape([*size, hidden])]) for row in rows]


def lstm(builder: TfliteBuilder, operator: Operator) -> None:
    layer([lstm_cell(builder, operator, 1, 20)], builder, operator)


def both_lstm(builder: TfliteBuilder, operator: Operator) -> None:
    no_second_input(operator, 39)
    layer([lstm_cell(builder, operator, first, 0) for first in (1, 18)], builder, operator)


def rnn(builder: TfliteBuilder, operator: Operator) -> None:
    layer([rnn_cell(builder, operator, 1)], builder, operator)


def both_rnn(builder: TfliteBuilder, operator: Operator) -> None:
    no_second_input(operator, 9)
    layer([rnn_cell(builder, operator, first) for first in (1, 5)], builder, operator)


def steps_layer(builder: TfliteBuilder, operator: Operator) -> None:
    """A layer of one direction that was written out step by step; its state may begin elsewhere than at zero.
    Matrices are [in, hidden], of gates in ONNX's order."""
    options, kind = operator.options, operator.options["Kind"]
    hidden, count = options["r"][0].shape[0], len(options["r"])

    def named(rows: Sequence[Array], what: str) -> str:
        held = np.concatenate(rows)[None].astype(np.float32)
        return builder.constant(held, name=f"{builder.origin}:{what}")

    second = [np.zeros(hidden)] * (count - 1) + [options["inner"]]
    inputs = [builder.value(operator.inputs[0])]
    inputs += [named([one.T for one in options[part]], part) for part in "wr"]
    inputs.append(named([*options["b"], *second], "b"))
    starts = operator.inputs[1:] if kind == "LSTM" else operator.inputs[1:2]
    size = builder.tensor(operator.outputs[1]).shape
    if any(index >= 0 for index in starts):
        inputs.append("")
        shape = builder.shape(size)
        for index in starts:
            inputs.append("" if index < 0 else builder.node("Reshape", [builder.value(index), shape]))
    outputs = [builder.free(f"{builder.origin}:y"), *(builder.result(i) for i in operator.outputs[1:])]
    more = {} if kind != "GRU" else {"linear_before_reset": 0 if options["ResetFirst"] else 1}
    functions = list(options["Functions"])
    builder.many(kind, inputs, outputs, hidden_size=hidden, activations=functions, **more)
    shape = builder.shape(builder.tensor(operator.outputs[0]).shape)
    builder.node("Reshape", [outputs[0], shape], builder.result(operator.outputs[0]))


def no_second_input(operator: Operator, place: int) -> None:
    if any(index >= 0 for index in operator.inputs[place:]):
        raise TfliteOperatorError("an auxiliary input")


RECURRENT: Mapping[str, Callable[[TfliteBuilder, Operator], None]] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "BIDIRECTIONAL_SEQUENCE_LSTM": both_lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": rnn,
    "BIDIRECTIONAL_SEQUENCE_RNN": both_rnn,
    LAYER: steps_layer,
}
