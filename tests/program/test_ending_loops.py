"""Loops whose end depends on data, quantised: the loop is the same written out, and so are program and C."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import border, loops
from npuflow.ir.types import QuantType
from npuflow.ir.unroll import rolled
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import Interpreter
from npuflow.testing.quantised import quantize_graph
from tests.export_c.harness import UB, case, check, needs_compiler
from tests.export_c.random_loops import WIDE, whole
from tests.frontends.ending_files import stored
from tests.networks.ending_loops import CASES, SIZES, TRIPS, feed
from tests.networks.looped import agrees, ranges_of_all
from tests.program.test_repeats import TARGET

MOST = 12
FILES = {f"tflite: {name}": found for name, found in stored().items()} if find_spec("tflite") else {}
EVERY = [*CASES, *FILES]
ALWAYS = ("counters", "tflite: divided")      # whose programs are made in every run
Ranges = dict[str, tuple[float, float]]
Feeds = list[dict[str, np.ndarray]]


def observed(name: str) -> tuple[Graph, Feeds, Ranges]:
    """The float graph, inputs that end it at different steps, and the ranges of its values."""
    if name in FILES:
        data, every, _ = FILES[name]
        graph = rewrite(FRONTENDS["tflite"]().read(data, Bindings(max_steps=MOST)).graph).graph
        feeds = [{graph.inputs[0]: x} for x in every]
    else:
        graph = rewrite(FRONTENDS["onnx"]().read(CASES[name], Bindings(max_steps=MOST)).graph).graph
        feeds = [feed(size, graph.inputs, trip) for size, trip in zip(SIZES, TRIPS, strict=True)]
    return graph, feeds, ranges_of_all(graph, feeds)


def quantised(name: str, target: Target) -> tuple[Graph, Feeds]:
    graph, feeds, ranges = observed(name)
    placed = place(graph, target).on_npu
    return quantize_graph(graph, placed, ranges, Quantize(), target.numerics).graph, feeds


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow) for name in EVERY]
)
def test_programs(name: str) -> None:
    graph, feeds = quantised(name, TARGET)
    assert loops(graph) and (loops(graph)[0].steps < MOST or rolled(graph).rolls)
    agrees(graph, feeds, TARGET)


@pytest.mark.parametrize("name", EVERY)
def test_behind_the_end_codes_stay_as_they_are(name: str) -> None:
    """And what the steps stack is 0."""
    graph, feeds = quantised(name, TARGET)
    (loop,) = loops(graph)
    nodes = [graph.nodes[i] for i in loop.nodes]
    (ends,) = (n for n in nodes if n.op.border_of_loop == "last" and border(n)[1].goes_on)
    ended = set()
    for given in feeds:
        values = dict(Interpreter(graph, TARGET.numerics).run(given, keep=lambda _: True))
        on = values[ends.inputs[0]].reshape(-1) > 0
        last = int(on.sum())            # the step that may be the last one to count
        assert on[:last].all()
        ended.add(last)
        for one in loop.carried:
            steps = np.split(values[one.following], loop.steps)
            assert all(np.array_equal(steps[last], step) for step in steps[last + 1 :])
        for node in nodes:
            if node.op.border_of_loop == "stack" and last + 1 < loop.steps:
                rows = np.split(values[node.outputs[0]], loop.steps)[last + 1 :]
                quant = graph.values[node.outputs[0]].quant
                assert isinstance(quant, QuantType)
                assert all((row == quant.zero_point[0]).all() for row in rows)
    assert len(ended) > 2


@needs_compiler
def test_code(tmp_path: Path) -> None:
    found = []
    for number, name in enumerate(EVERY):
        graph, _, ranges = observed(name)
        made = whole(graph, ranges, (8, 16)[number % 2])
        if place(graph, WIDE).reasons():
            continue                    # the host has a part
        found.append(case(made, WIDE.numerics, number, 6))
    assert len(found) > 2
    check(found, tmp_path, ("-O0", *UB))
