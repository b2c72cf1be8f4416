"""Programs of masked layers, whose last step hands less on than those before it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from npuflow.checks.agreement import compare
from npuflow.hw.encode import decode_all
from npuflow.hw.target import Compute, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.types import Array
from npuflow.program.order import order_of
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware
from npuflow.sim.hazards import hazards_of
from npuflow.testing.rule import graph_of
from tests.frontends.test_masked_loops import ARITHMETIC, masked
from tests.networks.looped import integers, program_of
from tests.networks.onnx_text import model, normal
from tests.program.test_repeats import TARGET
from tests.tiers import often

BOTH = 'direction="bidirectional"'


def packed(steps: int = 12, states: int = 16) -> bytes:
    """Both directions of a GRU on [steps, 1, 8], as PyTorch packs sequences: the lengths are an input."""
    weights = {
        "w": normal(1, 2, 3 * states, 8, scale=.3), "r": normal(2, 2, 3 * states, states, scale=.3),
        "b": normal(3, 2, 6 * states),
    }
    said = f"float[{steps},1,8] x, int32[1] lengths => float[{steps},2,1,{states}] y"
    layer = f"GRU<hidden_size={states}, {BOTH}, linear_before_reset=1>(x, w, r, b, lengths)"
    return model(said, f"y, h = {layer}", weights)


def large(steps: int = 12, states: int = 80) -> bytes:
    """An LSTM whose weights the small target's local memory does not hold."""
    weights = {
        "w": normal(1, 1, 4 * states, 8, scale=.3), "r": normal(2, 1, 4 * states, states, scale=.1),
    }
    said = f"float[{steps},1,8] x => float[{steps},1,1,{states}] y"
    return model(said, f"y, h, c = LSTM<hidden_size={states}>(x, w, r)", weights)


def late(steps: int = 12) -> bytes:
    """A Scan, of whose parts one comes from the host, and of which a node reads the other one alone."""
    body = """body = body (float[1,16] s, float[1,16] m, float[1,16] t) => (float[1,16] s2, float[1,16] row) {
        d = Tanh(m) e = Mul(s, d) s2 = Add(e, t) row = Tanh(s2) }"""
    said = f"float[1,16] h, float[{steps},1,16] k, float[{steps},1,16] n => float[{steps},1,16] y"
    before = "a = MatMul(n, w) b = Cast<to=7>(a) x = Cast<to=1>(b) z = Add(x, n) c = Tanh(z)"
    lines = f"{before} last, y = Scan<num_scan_inputs = 2, {body}>(h, k, c)"
    return model(said, lines, {"w": normal(1, 16, 16)})


def small() -> Target:
    memory = Memory(local_bytes=1 << 14)
    return Target(compute=Compute(array_rows=16, array_cols=16, vector_lanes=16), memory=memory)


def coded(data: bytes, target: Target, **feeds: Array) -> tuple[Graph, dict[str, Array]]:
    hardware = Hardware.of(target.compute, target.memory, target.dma)
    graph = rewrite(graph_of(data), hardware=hardware).graph
    given = {i: feeds[i] if i in feeds else normal(7, *graph.type(i).shape) for i in graph.inputs}
    return integers(graph, given, target), given


CASES: dict[str, Callable[[], bytes]] = {
    "lengths of an input": packed, "a mask as Keras has it": lambda: masked(ARITHMETIC, steps=12, out="rows"),
    "the host makes a part": late,
}
MASKED = ["the host makes a part", "lengths of an input", "a mask as Keras has it"]


@pytest.mark.parametrize("name", often(MASKED, 2))
def test_masked_layers_are_repeated(name: str) -> None:
    graph, feeds = coded(CASES[name](), TARGET, lengths=np.array([9], np.int32))
    program = program_of(graph, TARGET)
    assert sum(c.opcode == "REPEAT" for c in decode_all(program.stored[0])) == len(loops(graph))
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, TARGET.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]


@pytest.mark.slow
def test_weights_of_which_some_stay() -> None:
    """Each gate's product is one of its own; some are loaded once, the others in every step."""
    target = small()
    graph, feeds = coded(large(), target)
    program = program_of(graph, target)
    assert sum(c.opcode == "REPEAT" for c in decode_all(program.stored[0])) == 1
    loads = [c for c in program.decoded[0] if c.opcode == "LOAD" and c.text("space") == "CONST"]
    loaded = sum(prod(c.vector("dims")) * c.number("element") for c in loads)
    assert loaded < .9 * 12 * 4 * 80 * 80
    checks = compare(graph, program, target.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
