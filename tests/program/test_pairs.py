"""Blocks of two loops, and tensors of all steps that blocks read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuflow.checks.agreement import compare
from npuflow.hw.encode import decode_all
from npuflow.hw.target import Compute, Target
from npuflow.place.place import place
from npuflow.program.order import order_of
from npuflow.quantise.config import Activations, Quantize
from npuflow.report.profile.measure import profile
from npuflow.run.interpret import interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of
from npuflow.testing.quantised import quantize_graph
from tests.networks.looped import program_of, quantised, ranges_of
from tests.networks.onnx_text import model as network
from tests.networks.onnx_text import normal, rewritten
from tests.program.test_repeats import CORES, TARGET
from tests.rules.test_recurrent import layer
from tests.tiers import often

WIDE = Target(compute=Compute(array_rows=32, array_cols=64, vector_lanes=32))
PAIRS: dict[str, Callable[[], bytes]] = {
    "lstm": lambda: layer("LSTM", steps=14, attributes='direction="bidirectional"', directions=2, batch=1),
    "gru, given states": lambda: layer(
        "GRU", steps=17, attributes='direction="bidirectional", linear_before_reset=1', directions=2,
        states="input",
    ),
}


@pytest.mark.parametrize(
    "target", [TARGET, pytest.param(CORES, marks=pytest.mark.slow)], ids=["one core", "four cores"]
)
@pytest.mark.parametrize("name", often(PAIRS, 2))
def test_both_directions_of_a_layer_run_in_one_block(name: str, target: Target) -> None:
    graph, feeds = quantised(PAIRS[name](), target)
    program, apart = program_of(graph, target, paired=True), program_of(graph, target)
    assert [sum(c.opcode == "REPEAT" for c in decode_all(p.stored[0])) for p in (program, apart)] == [1, 2]
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, target.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
    assert {c.value for c in checks if c.elements} >= {o for o in graph.outputs if graph.values[o].quant}
    if target is TARGET:
        assert profile(program).cycles < profile(apart).cycles
    wanted = interpret(graph, feeds, target.numerics)
    for output, array in ProgramRunner(program).run(feeds).items():
        np.testing.assert_array_equal(array, wanted[output])


@pytest.mark.slow
def test_a_tensor_of_all_steps_is_stored_whole() -> None:
    """Also where the few steps that are planned would need parts of it alone, which local memory has."""
    weights = {"w": normal(1, 1, 64, 8, scale=.3), "r": normal(2, 1, 64, 16, scale=.3)}
    said = "float[128,1,8] x => float[128,1,1,16] y", "y, h, c = LSTM<hidden_size=16>(x, w, r)"
    source, feeds = rewritten(network(*said, weights)).graph, {"x": normal(7, 128, 1, 8)}
    ranges, scheme = ranges_of(source, feeds), Quantize(activations=Activations(bits=16))
    graph = quantize_graph(source, place(source, WIDE).on_npu, ranges, scheme, WIDE.numerics).graph
    program = program_of(graph, WIDE)
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, WIDE.numerics, [feeds])
    assert not [c for c in checks if c.different or c.executor]
    # and before a step of a round reads its part: in a block, the load of one step says what those of all
    # wait for; the steps in front of the rounds wait for their own part
    commands, low = program.decoded[0], program.meta["values"]["y:gates"]["address"]
    places = [c.number("external") if c.fields.get("space") == "DATA" else -1 for c in commands]
    within = [low <= place < low + 128 * 64 * 2 for place in places]
    stores = [i for i, c in enumerate(commands) if c.opcode == "STORE" and within[i]]
    loads = [i for i, c in enumerate(commands) if i > stores[0] and c.opcode == "LOAD" and within[i]]

    def stored(end: int) -> int:
        return sum(c.opcode == "STORE" for c in commands[: end + 1])

    def awaited(end: int) -> int:
        return max(c.wait[1] for c in commands[: end + 1] if len(c.wait) > 1)

    first, _ = program.meta["loops"][0]["blocks"][0]
    assert len(stores) > 1 and stored(stores[-1]) <= awaited(next(i for i in loads if i >= first))
    assert stored(stores[0]) <= awaited(loads[0]) < stored(stores[-1])
