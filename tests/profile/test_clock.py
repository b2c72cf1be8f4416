"""The clock: what limits a layer shows, the critical path adds up, and a mutation of either form is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import targets as shipped
from npuflow.base.tables import read
from npuflow.engine.profile import Profile, profile
from npuflow.engine.profile.closed import compare
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.engine.sim import cycles
from npuflow.engine.sim.clock import timeline_of
from npuflow.engine.sim.order import order_of
from npuflow.engine.tiling import cost
from npuflow.engine.tiling.plan import plan_network
from npuflow.hw.encode import decode, encode
from npuflow.hw.target import Compute, Dma, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from tests.codegen.harness import SMALL, build, machine
from tests.codegen.networks import Builder, mixed
from tests.sim.cases import flat_copy, random_case, serial

TARGETS = sorted(Path(str(shipped.__file__)).parent.glob("*.toml"))
EDGE = Target(
    compute=Compute(array_rows=32, array_cols=64, depthwise_macs=288), memory=Memory(external_bandwidth=16.0), dma=Dma()
)


def load(path: Path) -> Target:
    import tomllib

    target, faults = read(Target, tomllib.loads(path.read_text()))
    assert target is not None and not faults
    return target


def layer(build_layer, target: Target) -> Profile:  # type: ignore[no-untyped-def]
    b = Builder()
    y = build_layer(b)
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics)
    return profile(build(done.graph, target))


def test_matrix_vector_is_bound_by_bandwidth() -> None:
    """Every weight is used once: at batch 1 the bus decides, and the array waits for it."""
    def gemm(b: Builder) -> str:
        return b.add(OPS["gemm"](transB=1), b.input("x", (1, 1024)), b.const((1024, 1024), 0.03), b.const((1024,), 0.1))

    found = layer(gemm, EDGE)
    (row,) = found.layers()
    bus = 1024 * 1024 / EDGE.memory.external_bandwidth
    assert found.cycles >= bus
    assert found.totals()["path"]["bandwidth"] > 0.9 * found.cycles
    assert row["limit"] == "bandwidth" and row["stall"] == "bandwidth"
    assert 0.9 < row["intensity"] < 1.0          # multiply-accumulates per byte
    faster = layer(gemm, replace(EDGE, memory=replace(EDGE.memory, external_bandwidth=32.0)))
    assert faster.cycles < 0.6 * found.cycles


def test_depthwise_shows_its_waste() -> None:
    def depthwise(b: Builder) -> str:
        return b.conv(b.input("x", (1, 64, 28, 28)), 64, 3, depthwise=True)

    compute = replace(EDGE.compute, fill_cycles=0, command_cycles=0)
    found = layer(depthwise, replace(EDGE, compute=compute))
    (row,) = found.layers()
    macs = 64 * 28 * 28 * 9
    assert row["terms"]["array"] == pytest.approx(macs / compute.depthwise_macs, rel=0.01)
    useful = sum(t.array for t in found.timeline.terms)
    assert useful == pytest.approx(macs / compute.macs)
    assert row["stalls"]["edge"] == pytest.approx(macs / compute.depthwise_macs - useful, rel=0.01)
    assert row["stalls"]["edge"] / useful == pytest.approx(compute.macs / compute.depthwise_macs - 1, rel=0.01)


def conv_terms(target: Target, channels: int, out: int, groups: int = 1, size: int = 14, kernel: int = 3) -> cycles.Terms:
    case = random_case(0, "CONV")
    case.fields.update(
        x_dims=(1, channels, size, size), batch=1, out_channels=out, out_height=size, out_width=size, groups=groups,
        kernel=(kernel, kernel), x_type="int8", w_type="int8",
    )  # fmt: skip
    return cycles.terms_of(decode(encode("CONV", case.fields, queue=2)), target)


def test_edges_of_the_array() -> None:
    """33 channels on 32 rows cost two passes, 65 outputs on 64 columns too; what is not multiplying is told as edge."""
    full, deep, wide = (conv_terms(EDGE, *n) for n in ((32, 64), (33, 64), (32, 65)))
    assert full.edge == 0 and full.array == 9 * 14 * 14
    assert deep.array + deep.edge == wide.array + wide.edge == 2 * full.array
    assert deep.array == pytest.approx(full.array * 33 / 32)
    assert full.total == EDGE.compute.command_cycles + EDGE.compute.fill_cycles + full.array
    eight = replace(EDGE, compute=replace(EDGE.compute, array_pixels=8, pass_cycles=100))
    found = conv_terms(eight, 32, 64)
    assert found.reload == 9 * 100 and found.array + found.edge == 9 * 25      # 196 positions, eight at a time


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "out", "theirs"),
    [(56, 1, 64, 64, 12_919), (56, 3, 64, 64, 116_279), (7, 1, 2048, 512, 146_431)], ids=["CB2a_1", "CB2a_2", "IB5c_1"],
)  # fmt: skip
def test_cycles_are_those_of_a_published_simulator(size: int, kernel: int, channels: int, out: int, theirs: int) -> None:
    """SCALE-Sim 3.0.0's compute cycles of ResNet-50 layers on a weight-stationary 32 x 32 array: see benchmarks/scalesim."""
    compute = Compute(array_rows=32, array_cols=32, fill_cycles=0, command_cycles=0, pass_cycles=3 * 32 - 2)
    found = conv_terms(replace(EDGE, compute=compute), channels, out, 1, size, kernel)
    assert found.total == pytest.approx(theirs, rel=0.001)


@pytest.mark.parametrize("path", TARGETS, ids=lambda p: p.stem)
def test_the_path_spends_every_cycle_once(path: Path) -> None:
    target = load(path)
    graph, _ = mixed(target.numerics)
    found = profile(build(graph, target))
    assert sum(step["cycles"] for step in found.path) == pytest.approx(found.cycles)
    assert all(step["cycles"] > -1e-6 for step in found.path)
    layers = found.layers()
    assert sum(row["path_cycles"] for row in layers) == pytest.approx(found.cycles)
    assert sum(row["cycles"] for row in layers) == pytest.approx(found.cycles)
    assert {row["name"] for row in layers} and all(row["name"] for row in layers)


ALONE = 1                 # the level at which every group is one layer with its followers, tiled by the formula under test


def tiled(graph: Graph, target: Target) -> Profile:
    return profile(build(graph, target, plan_network(graph, machine(target), target.numerics, ALONE)))


@pytest.mark.parametrize("path", TARGETS, ids=lambda p: p.stem)
def test_closed_form_and_clock_agree_term_by_term(path: Path) -> None:
    target = load(path)
    graph, _ = mixed(target.numerics)
    rows = compare(tiled(graph, target))
    assert len(rows) >= 4
    for row in rows[1:]:
        assert abs(row.error) < (0.2 if row.name == "vector" else 0.13), str(row)   # tiny layers; large ones in benchmarks/clock


def terms(target: Target) -> dict[str, float]:
    graph, _ = mixed(target.numerics)
    return {row.name: row.error for row in compare(tiled(graph, target))}


def without_edges(command, compute):  # type: ignore[no-untyped-def]
    """A clock that fills the array perfectly."""
    found = cycles_conv(command, compute)
    return found[2] // compute.macs, found[1], found[2]


cycles_conv = cycles._conv
MUTATIONS = {
    "clock without set-up": ("set-up", lambda m: m.setattr(cycles, "rows_of", lambda c: (1, real_rows(c)[0] * real_rows(c)[1]))),
    "clock without edges": ("array", lambda m: m.setattr(cycles, "_conv", without_edges)),
    "clock without bursts": ("bus", lambda m: m.setattr(cycles, "burst_bytes", lambda c, t: np.prod(real_rows(c)))),
    "closed form without edges": ("array", lambda m: m.setattr(cost, "_passes", lambda layer, mac, c, grid: iter(()))),
    "closed form without bursts": ("bus", lambda m: m.setattr(cost, "_bursts", lambda total, run, burst: total)),
    "closed form without rows": ("set-up", lambda m: m.setattr(cost, "_runs", one_run)),
}
real_rows, real_runs = cycles.rows_of, cost._runs


def one_run(*args):  # type: ignore[no-untyped-def]
    rows, run = real_runs(*args)
    return np.ones_like(rows), run


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_of_either_form_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(SMALL, dma=replace(SMALL.dma, row_cycles=4), memory=replace(SMALL.memory, burst=64, local_bytes=1 << 14))
    term, mutate = MUTATIONS[name]
    assert abs(terms(target)[term]) < 0.04
    mutate(monkeypatch)
    if name == "clock without bursts":
        from npuflow.engine.sim import clock

        monkeypatch.setattr(clock, "burst_bytes", cycles.burst_bytes)
    assert abs(terms(target)[term]) > 0.04, name


def test_banks() -> None:
    """A load and a computation in one single-ported bank take turns; in two banks, or with two ports, they do not."""
    def clock(bank: int, ports: int) -> float:
        memory = replace(SMALL.memory, local_bytes=16384, local_banks=4, bank_ports=ports, local_bandwidth=8)
        target = replace(SMALL, memory=memory)
        fill = ("FILL", {"y": bank * 4096, "y_type": "int8", "y_strides": (0, 0, 0, 1), "dims": (1, 1, 1, 2048), "value": 0})
        program = serial([flat_copy("LOAD", "DATA", 0, 0, 2048), fill], target=target)
        words = program.commands[0]
        words[:, 2:10] = 0                     # no waits: both start at once
        return float(timeline_of(program, order_of(program)).banks.sum())

    assert clock(0, 0) == clock(0, 2) == clock(1, 1) == 0
    assert clock(0, 1) == pytest.approx(2048 / 8)


def test_shared_memory_is_a_bus_of_its_own() -> None:
    def cycles_with(shared: int) -> tuple[float, float, float]:
        target = replace(SMALL, memory=replace(SMALL.memory, local_bytes=16384, shared_bytes=shared, shared_bandwidth=32.0))
        program = serial([flat_copy("LOAD", "DATA", 0, 0, 4096)], target=target)
        t = timeline_of(program, order_of(program))
        return t.cycles, float(t.moved.sum()), float(t.shared.sum())

    slow, fast = cycles_with(0), cycles_with(4096)
    assert slow[1:] == (4096, 0) and fast[1:] == (0, 4096)
    assert slow[0] - fast[0] == pytest.approx(4096 / 4 - 4096 / 32)
    assert cycles_with(4095) == slow            # a transfer that leaves it goes outside
