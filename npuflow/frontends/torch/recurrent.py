"""LSTM, GRU and simple recurrent layers, each direction pair of a layer as one operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchNetwork, TorchOperatorError, TorchValue

GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # ONNX's order of torch's gates


def recurrent(
    kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> list[TorchValue]:
    if isinstance(args[3], list | tuple):
        raise TorchOperatorError("packed sequences")
    x, states, params, biased, layers, _, training, both, batch_first = args[:9]
    if training:
        raise TorchOperatorError("in training mode")
    states = list(states) if isinstance(states, list | tuple) else [states]
    ways = 2 if both else 1
    per = (4 if biased else 2) + int(_projected(kind, params, biased, ways, layers))
    if len(params) != per * ways * layers or per in (3, 5):
        raise TorchOperatorError("a projection of the state")
    if batch_first:
        x = net.apply("Transpose", x, perm=[1, 0, 2])
    finals: list[list[TorchValue]] = [[] for _ in states]
    for layer in range(layers):
        rows = [params[(layer * ways + d) * per :][:per] for d in range(ways)]
        first = [_part(net, state, layer * ways, ways, layers * ways) for state in states]
        x, ends = _layer(kind, net, x, rows, first, bool(biased), ways)
        for row, end in zip(finals, ends, strict=True):
            row.append(end)
    if batch_first:
        x = net.apply("Transpose", x, perm=[1, 0, 2])
    return [x, *(row[0] if len(row) == 1 else net.apply("Concat", *row, axis=0) for row in finals)]


def _projected(kind: str, params: Any, biased: bool, ways: int, layers: int) -> bool:
    return kind == "LSTM" and len(params) == (5 if biased else 3) * ways * layers


def _part(net: TorchNetwork, state: Any, first: int, count: int, whole: int) -> Any:
    """The initial states of one layer."""
    if count == whole:
        return state
    if isinstance(state, TorchValue):
        return net.apply("Slice", state, net.ints([first]), net.ints([first + count]), net.ints([0]))
    part = state[first : first + count]
    net.kept.append(part)
    return part


def _layer(
    kind: str, net: TorchNetwork, x: Any, rows: list[Any], states: list[Any], biased: bool, ways: int
) -> tuple[TorchValue, list[TorchValue]]:
    order = GATES[kind]
    hidden = int(rows[0][1].shape[1])

    def ordered(tensor: Any) -> np.ndarray[Any, Any]:
        parts = np.split(net.array(tensor), len(order))
        return np.concatenate([parts[g] for g in order])

    w = np.stack([ordered(row[0]) for row in rows])
    r = np.stack([ordered(row[1]) for row in rows])
    inputs = [x, net.constant(w, f"{net.origin}:w"), net.constant(r, f"{net.origin}:r")]
    bias = (
        net.constant(
            np.stack([np.concatenate([ordered(v) for v in row[2:4]]) for row in rows]), f"{net.origin}:b"
        )
        if biased
        else None
    )
    zero = [not isinstance(s, TorchValue) and not bool(s.any()) for s in states]
    first = [None if none else state for none, state in zip(zero, states, strict=True)]
    more: dict[str, Any] = {"hidden_size": hidden, "direction": "bidirectional" if ways == 2 else "forward"}
    if kind == "GRU":
        more["linear_before_reset"] = 1
    y, *ends = net.several(kind, [*inputs, bias, None, *first], 1 + len(states), **more)
    if ways == 1:
        return net.apply("Squeeze", y, net.ints([1])), ends
    steps, _, batch, _ = net.shape(y)
    turned = net.apply("Transpose", y, perm=[0, 2, 1, 3])
    return net.apply("Reshape", turned, net.ints([steps, batch, 2 * hidden])), ends


RECURRENT: dict[str, Converter] = {
    "lstm": partial(recurrent, "LSTM"),
    "gru": partial(recurrent, "GRU"),
    "rnn_tanh": partial(recurrent, "RNN"),
}
