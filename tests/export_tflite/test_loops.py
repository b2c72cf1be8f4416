"""Loops in written TFLite files: a WHILE, whose size its steps do not change, and which is read as a loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.export_tflite import elements
from npuflow.export_tflite.export import to_tflite
from npuflow.export_tflite.judge import LiteSession, judge, judge_layers, unequal
from npuflow.frontends.tflite.convert import plain
from npuflow.frontends.tflite.schema import parsed
from npuflow.ir.graph import Graph
from npuflow.ir.loops import FEW, loops, steps_of
from npuflow.ir.text import from_text
from npuflow.ir.unroll import unnested
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import Interpreter
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.frontends.test_nested_loops import layer_in_scan
from tests.frontends.tflite_judged import integers
from tests.networks.lite_loops import TARGET, WIDE, both, different, drawn
from tests.networks.looped import free_length, ranges_of
from tests.networks.onnx_text import normal
from tests.rules.test_recurrent import layer
from tests.tiers import often, spread

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")
TWO = {"attributes": 'direction="bidirectional"', "directions": 2}
NETWORKS = {
    "lstm": {"op": "LSTM"},
    "gru both ways": {"op": "GRU", **TWO},
    "gru backwards": {"op": "GRU", "attributes": 'direction="reverse", linear_before_reset=1'},
    "rnn": {"op": "RNN"},
    "masked lstm both ways": {"op": "LSTM", "lengths": "input", "batch": 3, **TWO},
    "lstm both ways": {"op": "LSTM", "batch": 3, "states": "input", **TWO},
    "peepholes": {"op": "LSTM", "peepholes": True, "states": "constant"},
}
RANDOM = (21, 4, 83, 25, 137, 71, 171, 236)  # images, masks, several loops, 16 bits
SCAN = """npuflow graph 1
input x: float32[12,3]
input start: float32[2,3]
input other: float32[2,3]
input factor: float32[2,3]
input mask: float32[12,1]
part: float32[2,3] = loopslice(x) loop="sums" steps=6 reverse=true
one: float32[2,3] = loopcarry(start) loop="sums" steps=6
two: float32[2,3] = loopcarry(other) loop="sums" steps=6 index=1
by: float32[2,3] = loopcapture(factor) loop="sums" steps=6
valid: float32[2,1] = loopslice(mask) loop="sums" steps=6
read: float32[2,3] = mul(part, valid)
scaled: float32[2,3] = mul(read, by)
sum: float32[2,3] = add(one, scaled)
after: float32[2,3] = tanh(sum)
rows: float32[12,3] = loopstack(sum) loop="sums" steps=6
turned: float32[12,3] = loopstack(two) loop="sums" steps=6 reverse=true
last: float32[2,3] = looplast(two) loop="sums" steps=6
held: float32[2,3] = looplast(after) loop="sums" steps=6 index=1
output rows
output turned
output last
output held
"""


def recurrent(name: str, bits: int = 8, steps: int = 9) -> Graph:
    graph = rewrite(graph_of(layer(**{"steps": steps, **NETWORKS[name]}))).graph
    feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
    if "lengths" in feeds:
        feeds["lengths"] = np.array([1, 9, 4], np.int32)
    return integer(graph, feeds, Activations() if bits == 8 else WIDE)


def integer(graph: Graph, feeds: dict[str, np.ndarray], activations: Activations) -> Graph:
    placed, scheme = place(graph, TARGET).on_npu, Quantize(activations=activations)
    return quantize_graph(graph, placed, ranges_of(graph, feeds), scheme, TARGET.numerics).graph


@pytest.mark.parametrize("data", [layer_in_scan("LSTM", 4, 6, 5), layer_in_scan("GRU", 3, 4, 20)])
def test_of_two_loops_in_each_other_one_is_a_while(data: bytes) -> None:
    """The inner one is written out in the other, or the outer one, where that is shorter."""
    graph = rewrite(graph_of(data)).graph
    graph = integer(graph, {i: normal(7, *graph.type(i).shape) for i in graph.inputs}, Activations())
    (outer,) = loops(graph)
    models = both(graph)
    assert outer.inner and models[0].operators["WHILE"] == len(loops(unnested(graph)))
    assert not different(graph, models)


@pytest.mark.parametrize(("name", "bits"), spread(list(NETWORKS), [8, 16]))
def test_a_while_gives_the_codes_of_its_steps_written_out(name: str, bits: int) -> None:
    graph = recurrent(name, bits)
    models = both(graph)
    assert models[0].operators["WHILE"] == len(loops(graph)) and "WHILE" not in models[1].operators
    assert not different(graph, models)


@pytest.mark.parametrize("seed", often(RANDOM, 2))
def test_random_loops_give_the_codes_of_their_steps_written_out(seed: int) -> None:
    graph = drawn(seed)
    assert graph is not None
    models = both(graph)
    assert models[0].operators["WHILE"] and not different(graph, models)


def test_values_that_change_places_and_leave_in_both_orders() -> None:
    """One carried value is the other's next one, and is stacked as it has entered; a mask is read forwards,
    the rows backwards."""
    graph = from_text(SCAN)
    graph = integer(graph, {i: normal(k, *graph.type(i).shape) for k, i in enumerate(graph.inputs)}, WIDE)
    models = both(graph)
    assert models[0].operators["WHILE"] == 1 and not different(graph, models)


def test_any_number_of_steps_is_a_mask() -> None:
    """All steps of the longest run; what lies behind the length reaches no result."""
    graph, _, _ = free_length(lambda n: layer("GRU", steps=n), 7, TARGET)
    models = both(graph)
    assert graph.lengths and models[0].operators["WHILE"] == 1 and not different(graph, models)
    assert [end.name for end in models[0].inputs if end.index] == [graph.lengths[0].name]


def test_the_file_does_not_grow_with_the_steps() -> None:
    sizes = [len(to_tflite(recurrent("lstm", steps=steps)).model) for steps in (10, 100)]
    assert abs(sizes[1] - sizes[0]) < 500 and sizes[1] < 20_000


def test_few_steps_are_written_out() -> None:
    assert "WHILE" not in to_tflite(recurrent("lstm", steps=3)).operators


@pytest.mark.parametrize("name", often(NETWORKS, 2))
def test_a_written_file_is_read_back_as_a_loop_that_gives_litert_s_codes(name: str) -> None:
    """Also what a step rounds twice: to TFLite's own scale of a tanh, and to that of what is carried."""
    written = to_tflite(recurrent(name))
    graph, session = integers(written.model, TARGET), LiteSession(written).runtime
    assert [loop.steps for loop in loops(graph)] == [9] * len(loops(recurrent(name)))
    assert all(graph.nodes[i].is_integer for loop in loops(graph) for i in loop.nodes)
    feeds = {i: np.array([1, 9, 4], np.int32) for i in graph.inputs if graph.type(i).dtype != "float32"}
    feeds |= {i: normal(k, *graph.type(i).shape) for k, i in enumerate(graph.inputs) if i not in feeds}
    for end in session.get_input_details():
        scale, zero = end["quantization"]
        codes = np.rint(feeds[end["name"]] / np.float32(scale or 1)) + zero
        session.set_tensor(end["index"], codes.clip(-128, 127).astype(end["dtype"]))
    session.invoke()
    found = Interpreter(graph, TARGET.numerics).run(feeds)
    for end, output in zip(session.get_output_details(), graph.outputs, strict=True):
        scale, zero = end["quantization"]
        wanted = session.get_tensor(end["index"]).astype(np.int32) - zero
        apart = np.abs(np.rint(found[output] / np.float32(scale)) - wanted)
        assert apart.max() <= 2 and np.count_nonzero(apart) <= apart.size / 5


@pytest.mark.parametrize("seed", often(RANDOM, 2))
def test_random_loops_are_read_back_as_loops(seed: int) -> None:
    graph = drawn(seed)
    assert graph is not None
    found = integers(to_tflite(graph).model, TARGET)
    assert sorted(one.steps for one in loops(found)) == sorted(
        one.steps for one in loops(graph) if one.steps > FEW
    )


def test_codes_that_change_from_step_to_step_are_written_out() -> None:
    network = parsed(to_tflite(recurrent("rnn")).model)
    (at,) = (o.inputs[1] for o in network.operators if o.name == "WHILE")
    tensor = network.tensors[at]
    assert [o.name for o in plain(network).operators].count("WHILE_STEPS") == 1
    assert tensor.codes is not None
    other = replace(tensor, codes=replace(tensor.codes, scale=(tensor.codes.scale[0] * 2,)))
    changed = replace(network, tensors=(*network.tensors[:at], other, *network.tensors[at + 1 :]))
    assert not {"WHILE", "WHILE_STEPS"} & {o.name for o in plain(changed).operators}


def test_layers_of_a_loop_are_judged_on_all_steps() -> None:
    graph = recurrent("gru both ways")
    given, _ = random_samples(network_of(graph), TARGET.numerics, 1)[0]
    found = judge_layers(graph, TARGET.numerics, given)
    inside = [n for n in network_of(graph).nodes if not n.op.border_of_loop]
    assert len(found) == len(inside) and not unequal(graph, TARGET.numerics, given)
    steps = steps_of(graph)
    sizes = (np.prod(graph.type(o).shape) * steps.get(o, 1) for n in inside for o in n.outputs if o)
    assert sum(one.codes for one in found.values()) == sum(sizes)


def test_a_layer_of_a_loop_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = recurrent("lstm")
    given, _ = random_samples(network_of(graph), TARGET.numerics, 1)[0]
    monkeypatch.setitem(elements.BINARY, "Mul", "ADD")
    wrong = unequal(graph, TARGET.numerics, given)
    assert len(wrong) == sum(n.op.onnx_type()[1] == "Mul" for n in graph.nodes)


def test_bodies_are_in_the_file() -> None:
    network = parsed(to_tflite(recurrent("gru both ways")).model)
    assert len(network.bodies) == 5
    for operator in network.operators:
        if operator.name == "WHILE":
            cond, body = (network.bodies[operator.options[f"{k}SubgraphIndex"]] for k in ("Cond", "Body"))
            assert len(cond.inputs) == len(body.inputs) == len(body.outputs) == len(operator.outputs)
            assert [o.name for o in cond.operators] == ["LESS"]


def test_a_loop_is_as_near_to_the_program_as_its_layers_are() -> None:
    graph = recurrent("lstm", 16)
    made = judge(to_tflite(graph), random_samples(network_of(graph), TARGET.numerics, 2))
    assert made.worst <= 64, made
