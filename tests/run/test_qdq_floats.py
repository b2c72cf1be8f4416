"""The exported form of layers in floats, node by node, on onnxruntime: Casts at the same places."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from npuflow.hw.elements import ELEMENTS
from npuflow.ir.codes import decode
from npuflow.quantise.config import FLOATS, Override, Quantize
from npuflow.run.floats import plain_session
from npuflow.run.interpret import interpret
from npuflow.run.qdq import isolated
from npuflow.testing.quantised import quantize_graph
from tests.quantise.test_floats import NUMERICS, network

STEPS = 1.0                               # steps of the type: onnxruntime adds in an order of its own


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
@pytest.mark.parametrize("mixed", [False, True])
def test_every_node_is_a_step_of_the_type_off_at_most(mode: Literal["bf16", "fp16"], mixed: bool) -> None:
    graph, arrays, ranges = network()
    config = Quantize(mode=mode, overrides=(Override(("add",), type="int"),) if mixed else ())
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
    want = interpret(done, {"x": arrays["x"]}, NUMERICS, keep=lambda _: True)
    model, shown = isolated(done)
    session = plain_session(model, optimised=False)
    real = {
        v: decode(a, done.values[v].quant).astype(np.float32) if done.values[v].number else a
        for v, a in want.items()
    }
    made = session.run(list(shown.values()), {i.name: real[i.name] for i in session.get_inputs()})
    found = dict(zip(shown, made, strict=True))
    floats = [v for v in shown if done.values[v].number]
    assert len(floats) >= 5 and (len(floats) < len(shown)) == mixed
    fraction = ELEMENTS[FLOATS[mode]].fraction
    for v in floats:
        step = np.ldexp(1.0, np.frexp(np.abs(real[v]).astype(np.float64))[1] - 1 - fraction)
        assert (np.abs(found[v] - real[v]) <= STEPS * step + 2.0**-24).all(), v
