"""Constants that stay in local memory over the steps of a recurrent layer: loaded once, the same integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Compute, FloatRate, Memory, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.queries import kind
from npuflow.ir.unroll import written_out
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.report.profile import profile
from npuflow.schedule import staying
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.target import scheme
from tests.networks.onnx_cases import through
from tests.networks.onnx_text import model, normal
from tests.networks.subjects import Subject, subject
from tests.tiers import often

STEPS, CELLS = 12, 32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TARGET = Target(memory=Memory(local_bytes=1 << 16))


def layer(op: str) -> Subject:
    shape = 1, GATES[op] * CELLS, CELLS
    data = model(
        f"float[{STEPS},1,{CELLS}] x => float[{STEPS},1,1,{CELLS}] y",
        f"y = {op}<hidden_size={CELLS}>(x, w, r)",
        {"w": normal(0, *shape, scale=0.2), "r": normal(1, *shape, scale=0.2)},
    )
    return subject(op, through(data))


def quantised(one: Subject, target: Target = TARGET) -> Graph:
    on_npu = place(one.graph, target).on_npu
    return quantize_graph(one.graph, on_npu, one.ranges, scheme(target), target.numerics).graph


def moved(graph: Graph, target: Target) -> tuple[float, float]:
    """Bytes over the bus, and cycles; the plan knows both."""
    graph = written_out(graph)
    plan = plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics)
    found = profile(generate(graph, plan, target)).totals()
    assert plan.bytes == pytest.approx(found["bytes"], rel=0.02)
    return found["bytes"], found["npu_cycles"]


@pytest.mark.parametrize("op", often(["RNN", "LSTM", "GRU"], 3))
def test_weights_are_loaded_once(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = layer(op)
    graph = quantised(one)
    check_program(graph, one.feeds, TARGET, op)
    shared, cycles = moved(graph, TARGET)
    monkeypatch.setattr(staying, "USES", 1 << 30)
    alone, slower = moved(graph, TARGET)
    assert alone - shared >= 0.8 * (STEPS - 2) * GATES[op] * CELLS**2, "all but one of the loads"
    assert cycles < slower


def test_the_steps_have_one_type() -> None:
    graph = written_out(quantised(layer("LSTM")))
    products = [n for n in graph.nodes if kind(n) == "gemm" and n.inputs[0] != "x"]
    by_weight: dict[str, set[object]] = {}
    for node in products:
        ends = (graph.values[node.inputs[0]].quant, graph.values[node.outputs[0]].quant)
        by_weight.setdefault(node.inputs[1], set()).add(ends)
    many = [ends for weight, ends in by_weight.items() if sum(n.inputs[1] == weight for n in products) > 4]
    assert len(many) == 1 and all(len(ends) == 1 for ends in many), "all gates come of one product"


@pytest.mark.parametrize("local", often([1 << 13, 1 << 12, 1 << 11], 3))
def test_a_small_memory_streams_them(local: int) -> None:
    one = layer("LSTM")
    target = replace(TARGET, memory=Memory(local_bytes=local))
    check_program(quantised(one, target), one.feeds, target, "small")


def test_on_several_cores() -> None:
    one, target = layer("RNN"), replace(TARGET, compute=Compute(cores=2))
    check_program(quantised(one, target), one.feeds, target, "cores")


def test_layers_with_one_function_share_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of other sizes and weights: the table is loaded once."""
    layers, entries = 9, 24_105
    lines = [f"h{k} = Conv(y{k}, w{k}) y{k + 1} = HardSwish(h{k})" for k in range(layers)]
    weights = {f"w{k}": normal(k, 8 + k + 1, 8 + k, 1, 1, scale=0.3) for k in range(layers)}
    data = model(f"float[1,8,6,6] y0 => float[1,{8 + layers},6,6] y{layers}", "\n".join(lines), weights)
    numerics = Numerics(weight_bits=(), activation_bits=(), float_types=("float16",))
    compute = Compute(float_rates=(FloatRate("float16"),))
    target = Target(compute=compute, numerics=numerics, memory=Memory(local_bytes=1 << 18))
    one = subject("tables", through(data))
    graph = quantised(one, target)
    check_program(graph, one.feeds, target, "tables")
    shared, cycles = moved(graph, target)
    monkeypatch.setattr(staying, "USES", 1 << 30)
    alone, slower = moved(graph, target)
    assert alone - shared >= 2 * entries * (layers - 1)
    assert cycles < slower


def test_what_saves_most_stays_where_not_all_finds_room() -> None:
    lives = [staying.Lifetime(f"{g}.0.0/0", 64, g, g) for g in range(4)]
    large = staying.Staying("const.0", ((0, 0, 0), (3, 0, 0)), 64, 1, 0, 3)
    other = staying.Staying("const.1", ((1, 0, 0), (2, 0, 0)), 64, 1, 1, 2)
    assert staying.chosen([other, large], lives, 128, 64) == [large, other]
    assert staying.chosen([other, large], lives, 64, 64) == [other]
    kept, movable = staying.with_staying(lives, {life.name: 0 for life in lives}, [other])
    assert [(v.name, v.first, v.last) for v in kept][-1] == ("const.1/0", 1, 2) and len(kept) == 3
    assert sorted(movable) == ["0.0.0/0", "3.0.0/0"]
    assert np.sum([v.size for v in kept]) == 192
