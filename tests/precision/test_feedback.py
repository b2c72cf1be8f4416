"""Which networks feed back, and what is asked of them."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.rewrite.rewrite import rewrite
from npuflow.tune.precision.config import PrecisionTable
from npuflow.tune.precision.feedback import budget_of, feedback
from tests.networks.onnx_text import model
from tests.rules.test_recurrent import layer


def graph(data: bytes) -> Graph:
    return rewrite(FRONTENDS["onnx"]().read(data, Bindings()).graph).graph


WEIGHTS = {"w": np.eye(4, dtype=np.float32), "m": np.full((4, 4), 0.5, np.float32)}
STEP = "a = Add(x, s) t = MatMul(a, w) y = Tanh(t) s2 = Add(t, s)"

STEPS = "a = MatMul(x, w) d = Add(a, u) b = MatMul(d, w) e = Add(b, v) y = MatMul(e, w)"
LAYERS = (
    "q = MatMul(x, w) k = MatMul(x, m) a = Mul(q, k) c = Add(a, mask) d = Add(c, x) "
    "q2 = MatMul(d, w) k2 = MatMul(d, m) a2 = Mul(q2, k2) c2 = Add(a2, mask) d2 = Add(c2, d) "
    "q3 = MatMul(d2, w) k3 = MatMul(d2, m) a3 = Mul(q3, k3) c3 = Add(a3, mask) y = Add(c3, d2)"
)


def body(signature: str, text: str) -> bytes:
    return model(signature, text, WEIGHTS)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (layer("GRU", states="input"), '"y_h" is an input of the next run'),
        (layer("RNN"), "y takes its own results"),
        (
            body("float[1,4] x, float[1,4] s => float[1,4] y, float[1,4] s2", STEP),
            '"y" is an input of the next run',
        ),
        (
            body("float[1,4] x, float[1,4] u, float[1,4] v => float[1,4] y", STEPS),
            "b takes its own results",
        ),
        (body("float[1,4] x, float[1,4] mask => float[1,4] y", LAYERS), ""),
        (
            body(
                "float[1,4] x => float[1,4] y", "a = MatMul(x, w) t = Tanh(x) b = MatMul(t, w) y = Add(a, b)"
            ),
            "",
        ),
        (body("float[1,4] x => float[1,4] y", "y = Tanh(x)"), ""),
    ],
)
def test_what_is_taken_again(data: bytes, said: str) -> None:
    found = graph(data)
    assert feedback(found).split(" ", 1)[-1] == said.split(" ", 1)[-1]
    assert budget_of(PrecisionTable(), found).sqnr_db == (30.0 if said else 20.0)
    assert budget_of(PrecisionTable(), found).host_db == (20.0 if said else None)
    assert budget_of(PrecisionTable(state_db=0.0), found).sqnr_db == 20.0
