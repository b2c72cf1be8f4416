"""A thousand LSTM, GRU and RNN layers by their seeds: the simulator's codes are the reference's, and at
16 bits the results are near the float ones.

    python -m tests.rules.recurrent_campaign [FIRST] [BEHIND]

prints how many were exact and how far the results are from float.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session, interpret
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, normal
from tests.rules.test_recurrent import GATES, layer

COUNT = 1000
BAR = 30.0  # dB
CALIBRATION = 64  # sequences that ranges come from; the compared one is another
FUNCTIONS = {
    "Relu": "",
    "Tanh": "",
    "Sigmoid": "",
    "Softsign": "",
    "Softplus": "",
    "LeakyRelu": "activation_alpha=[0.2]",
    "Elu": "activation_alpha=[0.7]",
    "HardSigmoid": "activation_alpha=[0.3], activation_beta=[0.4]",
}


@dataclass(frozen=True)
class Drawn:
    """One layer: its bits, and the signal-to-noise ratio of each of its results in dB."""

    op: str
    bits: int
    ratios: tuple[float, ...]


def drawn(seed: int) -> Drawn:
    """Build, quantise, interpret and simulate a layer; AssertionError where the simulator differs."""
    rng = np.random.default_rng(seed)
    op, bits = str(rng.choice(sorted(GATES))), int(rng.choice([8, 16, 16, 16]))
    data = _layer(rng, op)
    graph = rewrite(graph_of(data)).graph
    placed = place(graph, TARGET)
    assert not placed.reasons(), placed.reasons()
    session_values = [o for n in graph.nodes for o in n.outputs if o]
    runs = [
        {name: normal(1000 * seed + k, *graph.type(name).shape) for name in graph.inputs}
        for k in range(CALIBRATION + 1)
    ]
    session, ranges = host_session(export_model(graph, session_values)), {}
    for feeds in runs[:CALIBRATION]:
        found = zip(session_values, session.run(session_values, feeds), strict=True)
        for name, array in (*feeds.items(), *found):
            low, high = ranges.get(name, (np.inf, -np.inf))
            ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    scheme = Quantize(activations=Activations(bits=bits))
    made = quantize_graph(graph, placed.on_npu, ranges, scheme, TARGET.numerics)
    assert not [note.reason for note in made.notes if note.on_host]
    check_program(made.graph, runs[-1], TARGET, f"recurrent layer {seed}")
    wanted = host_session(export_model(graph)).run(list(graph.outputs), runs[-1])
    results = interpret(made.graph, runs[-1], TARGET.numerics)
    pairs = [(real, results[name]) for name, real in zip(graph.outputs, wanted, strict=True)]
    return Drawn(op, bits, tuple(ratio(real, mine) for real, mine in pairs))


def _layer(rng: np.random.Generator, op: str) -> bytes:
    """Any direction, steps, batch, states, lengths and functions."""
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    both = direction == "bidirectional"
    attributes = [f'direction="{direction}"']
    if op == "RNN" and rng.random() < 0.6:
        name = str(rng.choice(sorted(FUNCTIONS)))
        quoted = ", ".join([f'"{name}"'] * (2 if both else 1))
        more = FUNCTIONS[name].replace("]", ", 0.25]") if both else FUNCTIONS[name]
        attributes += [f"activations=[{quoted}]", *([more] if more else [])]
    if op == "GRU" and rng.random() < 0.5:
        attributes.append("linear_before_reset=1")
    lengths, batch = str(rng.choice(["", "", "full", "short", "mixed"])), int(rng.integers(1, 4))
    steps = int(rng.integers(2 if lengths == "short" else 1, 7))
    states = str(rng.choice(["", "constant", "input"]))
    peepholes = op == "LSTM" and bool(rng.random() < 0.3)
    return layer(
        op,
        ", ".join(attributes),
        1 + both,
        bool(rng.random() < 0.7),
        states,
        lengths,
        peepholes,
        batch=batch,
        steps=steps,
    )


def ratio(real: np.ndarray, mine: np.ndarray) -> float:
    """Signal over noise in dB, infinite where nothing differs."""
    noise = float(((real.astype(np.float64) - mine) ** 2).sum())
    if not noise:
        return np.inf        # states that a Relu holds at 0 among them: they have no signal either
    return 10 * float(np.log10(max(float((real.astype(np.float64) ** 2).sum()), 1e-30) / max(noise, 1e-30)))


def main() -> None:
    first, behind = (int(v) for v in (*sys.argv[1:], *("0", str(COUNT))[len(sys.argv) - 1 :]))
    found: list[Drawn] = []
    for seed in range(first, behind):
        found.append(drawn(seed))
        if seed % 50 == 49 or seed == behind - 1:
            print(f"layers {first} to {seed}: all exact", flush=True)
    for bits in (8, 16):
        ratios = np.array([r for one in found if one.bits == bits for r in one.ratios])
        if ratios.size:
            share = np.quantile(ratios, [0.0, 0.05, 0.5], method="lower")
            above = f"{(ratios >= BAR).mean():.1%} at {BAR:g} dB or more"
            print(
                f"{bits} bits, {ratios.size} results: {above}, least {share[0]:.1f} dB, "
                f"5 % below {share[1]:.1f} dB, median {share[2]:.1f} dB"
            )


if __name__ == "__main__":
    main()
