"""Programs of WHILEs of TFLite that carry whole numbers: the loop is the same written out, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.loops import border, loops
from npuflow.ir.types import QuantType
from npuflow.place.partition import is_npu
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from tests.export_c.harness import UB, case, check, needs_compiler
from tests.export_c.random_loops import WIDE as WIDEST
from tests.export_c.random_loops import whole
from tests.networks.looped import agrees, ranges_of_all
from tests.networks.while_numbers import END, MOST, WhileFile, decoder, drawn, samples, witness
from tests.program.test_repeats import TARGET
from tests.tiers import often

Feeds = list[dict[str, np.ndarray]]
DECODERS = {
    "until an end": decoder(ending=True), "steps": decoder(), "64 bits": decoder(dtype="int64", alone=True),
    "older rows": decoder(ending=True, alone=True, old=True),
}


def observed(one: WhileFile) -> tuple[Graph, Feeds, dict[str, tuple[float, float]]]:
    """The float graph, inputs, and the ranges of its values."""
    graph = rewrite(FRONTENDS["tflite"]().read(one.data(), Bindings(max_steps=one.bound)).graph).graph
    feeds = [{graph.inputs[0]: x} for x in samples()]
    return graph, feeds, ranges_of_all(graph, feeds)


def quantised(one: WhileFile) -> tuple[Graph, Feeds]:
    """The integer graph and inputs, whose ranges it has."""
    graph, feeds, ranges = observed(one)
    placed = place(graph, TARGET).on_npu
    return quantize_graph(graph, placed, ranges, Quantize(), TARGET.numerics).graph, feeds


@pytest.mark.parametrize("name", often(DECODERS, 4))
def test_decoders(name: str) -> None:
    """Tokens are their own codes of 16 bits, and no node of a step is the host's."""
    graph, feeds = quantised(DECODERS[name])
    (loop,) = loops(graph)
    carried = [graph.values[graph.nodes[i].outputs[0]].quant for i in loop.nodes
               if graph.nodes[i].op.border_of_loop == "carry"]
    assert QuantType(16, True, (1.0,)) in carried
    assert loop.steps <= MOST and all(is_npu(graph.nodes[i]) for i in loop.nodes)
    agrees(graph, feeds, TARGET)


@pytest.mark.parametrize("name", often(DECODERS, 4))
def test_tokens_of_codes_are_mostly_those_of_floats(name: str) -> None:
    """A step that holds two tokens for nearly as likely may take the other one, with all that follow."""
    graph, _ = quantised(DECODERS[name])
    data, place_ = DECODERS[name].data(), [*DECODERS[name].states].index("rows")
    same = list[bool]()
    for x in samples(40, 9):
        found = interpret(graph, {graph.inputs[0]: x}, TARGET.numerics)["rows:last"]
        wanted = witness(data, x)[place_]
        assert found.dtype == wanted.dtype
        same += (found == wanted).reshape(-1).tolist()
    assert np.mean(same) > 0.9


@pytest.mark.parametrize("name", often(["until an end", "older rows"], 2))
def test_behind_the_end_the_token_stays_and_rows_are_0(name: str) -> None:
    """In codes, by the steps that counted until the end token or the last step."""
    graph, _ = quantised(DECODERS[name])
    ended = set()
    for x in samples(40, 9):
        found = interpret(graph, {graph.inputs[0]: x}, TARGET.numerics)
        rows = found["rows:last"].reshape(-1).tolist()
        steps = rows.index(END) + 1 if END in rows else MOST
        ended.add(steps)
        assert int(found["t:last"].reshape(())) == rows[steps - 1] and not any(rows[steps:])
    assert len(ended) > 3 and MOST in ended


@pytest.mark.parametrize("seed", often([20, *range(20), *range(21, 40)], 40))
def test_random_bodies(seed: int) -> None:
    graph, feeds = quantised(drawn(seed))
    assert loops(graph)
    agrees(graph, feeds[:3], TARGET)


@pytest.mark.slow
@needs_compiler
def test_code(tmp_path: Path) -> None:
    """Of what gives floats alone: a token that leaves the network is the host's cast."""
    found = []
    for number, one in enumerate([*DECODERS.values(), *map(drawn, range(12))]):
        graph, _, ranges = observed(replace(one, shown=("h",)))
        if any(node.op.border_of_loop == "carry" and border(node)[1].whole for node in graph.nodes):
            assert not place(graph, WIDEST).reasons()
            found.append(case(whole(graph, ranges, (8, 16)[number % 2]), WIDEST.numerics, number, 6))
    assert len(found) > 7
    check(found, tmp_path, ("-O0", *UB))
