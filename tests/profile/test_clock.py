"""The clock: what limits a layer shows, the critical path adds up, and a mutation of
either form is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import targets as shipped
from npuflow.base.tables import read
from npuflow.hw.encode import decode, encode
from npuflow.hw.isa import Terms
from npuflow.hw.target import Compute, Dma, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.kernels import cycles
from npuflow.program.order import order_of
from npuflow.quantise.config import Quantize
from npuflow.report.profile import Profile, profile
from npuflow.report.profile.schedule import apart, compare
from npuflow.schedule import banks, cores, parts, time
from npuflow.schedule import cycles as tile
from npuflow.search import cost
from npuflow.search.plan import plan_network
from npuflow.sim import clock
from npuflow.sim.clock import timeline_of
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, machine
from tests.networks.small import Builder, mixed
from tests.sim.cases import random_case
from tests.sim.programs import flat_copy, serial
from tests.tiers import often

TARGETS = sorted(Path(str(shipped.__file__)).parent.glob("*.toml"))
EDGE = Target(
    compute=Compute(array_rows=32, array_cols=64, depthwise_macs=288),
    memory=Memory(external_bandwidth=16.0),
    dma=Dma(),
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
        return b.add(
            OPS["gemm"](transB=1), b.input("x", (1, 1024)), b.const((1024, 1024), 0.03), b.const((1024,), 0.1)
        )

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
    assert row["stalls"]["edge"] / useful == pytest.approx(
        compute.macs / compute.depthwise_macs - 1, rel=0.01
    )


def conv_terms(
    target: Target, channels: int, out: int, groups: int = 1, size: int = 14, kernel: int = 3
) -> Terms:
    case = random_case(0, "CONV")
    case.fields.update(
        x_dims=(1, channels, size, size),
        batch=1,
        out_channels=out,
        out_height=size,
        out_width=size,
        groups=groups,
        kernel=(kernel, kernel),
        x_type="int8",
        w_type="int8",
    )
    return cycles.terms_of(decode(encode("CONV", case.fields, queue=2)), target)


def test_edges_of_the_array() -> None:
    """33 channels on 32 rows cost two passes, 65 outputs on 64 columns too; what is not
    multiplying is reported as edge."""
    full, deep, wide = (conv_terms(EDGE, *n) for n in ((32, 64), (33, 64), (32, 65)))
    assert full.edge == 0 and full.array == 9 * 14 * 14
    assert deep.array + deep.edge == wide.array + wide.edge == 2 * full.array
    assert deep.array == pytest.approx(full.array * 33 / 32)
    assert full.total == EDGE.compute.command_cycles + EDGE.compute.fill_cycles + full.array
    eight = replace(EDGE, compute=replace(EDGE.compute, array_pixels=8, pass_cycles=100))
    found = conv_terms(eight, 32, 64)
    # 196 positions, eight at a time
    assert found.reload == 9 * 100 and found.array + found.edge == 9 * 25


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "out", "theirs"),
    [(56, 1, 64, 64, 12_919), (56, 3, 64, 64, 116_279), (7, 1, 2048, 512, 146_431)],
    ids=["CB2a_1", "CB2a_2", "IB5c_1"],
)
def test_cycles_are_those_of_a_published_simulator(
    size: int, kernel: int, channels: int, out: int, theirs: int
) -> None:
    """SCALE-Sim 3.0.0's compute cycles of ResNet-50 layers on a weight-stationary 32 x 32
    array: see benchmarks/scalesim."""
    compute = Compute(array_rows=32, array_cols=32, fill_cycles=0, command_cycles=0, pass_cycles=3 * 32 - 2)
    found = conv_terms(replace(EDGE, compute=compute), channels, out, 1, size, kernel)
    assert found.total == pytest.approx(theirs, rel=0.001)


@pytest.mark.parametrize("path", often(TARGETS, 5), ids=lambda p: p.stem)
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


LEVELS = (0, 1, 3)
ALONE = 1                 # the level at which every group is one layer with its followers


def tiled(graph: Graph, target: Target, level: int) -> Profile:
    return profile(build(graph, target, plan_network(graph, machine(target), target.numerics, level)))


@pytest.mark.parametrize("level", often(LEVELS[::-1], 3))
@pytest.mark.parametrize("path", often(TARGETS, 5), ids=lambda p: p.stem)
def test_schedule_and_clock_agree_term_by_term(path: Path, level: int) -> None:
    """The network within 5 %, its terms within 3 %, every group within 15 %."""
    target = load(path)
    graph, _ = mixed(target.numerics)
    found = tiled(graph, target, level)
    assert len(compare(found)) >= 4
    assert not apart(found), "\n".join(map(str, apart(found)))


@pytest.mark.parametrize("path", often(TARGETS, 3), ids=lambda p: p.stem)
def test_what_the_search_goes_by_is_near_the_clock(path: Path) -> None:
    target = load(path)
    graph, _ = mixed(target.numerics)
    for row in compare(tiled(graph, target, ALONE), "searched")[1:]:
        # tiny layers, sums over partial tiles
        assert abs(row.error) < (0.2 if row.name == "vector" else 0.13), str(row)


def without_edges(command, target):  # type: ignore[no-untyped-def]
    """A clock that fills the array perfectly."""
    return replace(real_terms(command, target), edge=0.0)


def scaled(name: str, factor: float):  # type: ignore[no-untyped-def]
    """A clock of which one term is wrong by a factor."""
    def terms_of(command, target):  # type: ignore[no-untyped-def]
        found = real_terms(command, target)
        return replace(found, **{name: round(getattr(found, name) * factor)})

    return lambda m: m.setattr(clock, "terms_of", terms_of)


def dma(**wrong: float):  # type: ignore[no-untyped-def]
    """A schedule with other constants of DMA or array."""
    def mutate(m: pytest.MonkeyPatch) -> None:
        def other(rows, run, machine):  # type: ignore[no-untyped-def]
            return real_rows(rows, run, replace(machine, dma=replace(machine.dma, **wrong)))

        for where in (tile, cores):
            m.setattr(where, "rows_transfer", other)

    return mutate


def array(**wrong: int):  # type: ignore[no-untyped-def]
    return lambda m: m.setattr(
        parts, "array_cycles", lambda layer, extents, c: real_array(layer, extents, replace(c, **wrong))
    )


def one_row(rows, run, machine):  # type: ignore[no-untyped-def]
    return real_rows(1, rows * run, machine)


def slow_table(m: pytest.MonkeyPatch) -> None:
    m.setattr(
        time, "Timetable", lambda w, n, buses, banks: real_table(w, n, tuple(b / 2 for b in buses), banks)
    )


def filled(layer, mac, extents, points, c):  # type: ignore[no-untyped-def]
    return real_passes(layer, mac, extents, points, c)[0] // 2, 0


real_terms, real_rate = cycles.terms_of, clock._Clock._rate
real_rows, real_array, real_passes, real_table = (
    tile.rows_transfer,
    tile.array_cycles,
    tile._passes,
    time.Timetable,
)
MUTATED = replace(  # every term matters
    SMALL,
    compute=replace(SMALL.compute, fill_cycles=64, command_cycles=8),
    dma=replace(SMALL.dma, row_cycles=4),
    memory=replace(SMALL.memory, burst=64, local_bytes=1 << 14),
)
MUTATIONS = {
    "clock: half the set-up": scaled("setup", 0.5),
    "clock: rows for nothing": scaled("rows", 0.0),
    "clock: no fill": scaled("fill", 0.0),
    "clock: twice the decoding": scaled("issue", 2.0),
    "clock: slow vectors": scaled("vector", 1.5),
    "clock: no edges": lambda m: m.setattr(clock, "terms_of", without_edges),
    "clock: no bursts": lambda m: m.setattr(clock, "burst_bytes", lambda c, t: np.prod(cycles.rows_of(c))),
    "clock: half the bus": lambda m: m.setattr(
        clock._Clock, "_rate", lambda self, place: real_rate(self, place) / 2
    ),
    "schedule time: half the set-up": dma(setup_cycles=SMALL.dma.setup_cycles // 2),
    "schedule time: rows for nothing": dma(row_cycles=0),
    "schedule time: no fill": array(fill_cycles=0),
    "schedule time: no edges": lambda m: m.setattr(tile, "_passes", filled),
    "schedule time: one row, one burst": lambda m: [
        m.setattr(where, "rows_transfer", one_row) for where in (tile, cores)
    ],
    "schedule time: slow vectors": lambda m: m.setattr(
        parts, "vector_cycles", lambda *a: round(1.5 * tile.vector_cycles(*a))
    ),
    "schedule time: half the bus": slow_table,
}


@pytest.mark.parametrize("level", often([0, 3], 2))
@pytest.mark.parametrize("name", often(MUTATIONS, 3))
def test_a_mutation_of_either_form_is_noticed(name: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = replace(MUTATED.memory, external_bandwidth=2.0)          # its bus binds in every plan
    graph, target = mixed(MUTATED.numerics)[0], replace(MUTATED, memory=narrow)
    assert not apart(tiled(graph, target, level))
    MUTATIONS[name](monkeypatch)
    assert apart(tiled(graph, target, level)), name


SEARCHED = {
    "edges": ("array", lambda m: m.setattr(cost, "_passes", lambda layer, mac, c, grid: iter(()))),
    "bursts": ("bus", lambda m: m.setattr(cost, "_bursts", lambda total, run, burst: total)),
    "rows": ("set-up", lambda m: m.setattr(cost, "_runs", one_run)),
}
real_runs = cost._runs


def one_run(*args):  # type: ignore[no-untyped-def]
    rows, run = real_runs(*args)
    return np.ones_like(rows), run


@pytest.mark.parametrize("name", SEARCHED)
def test_a_mutation_of_what_the_search_goes_by_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = mixed(MUTATED.numerics)[0], replace(MUTATED, compute=SMALL.compute)
    term, mutate = SEARCHED[name]

    def error() -> float:
        return abs({row.name: row.error for row in compare(tiled(graph, target, ALONE), "searched")}[term])

    assert error() < 0.04
    mutate(monkeypatch)
    assert error() > 0.04, name


BANKED = replace(MUTATED, memory=replace(MUTATED.memory, local_banks=2, bank_ports=1, local_bandwidth=2))
UNBANKED = {
    "clock": lambda m: m.setattr(clock._Clock, "_conflict", lambda *a: 0.0),
    "schedule time": lambda m: m.setattr(banks.Banks, "wait", lambda *a: 0.0),
}


@pytest.mark.parametrize("name", UNBANKED)
def test_conflicts_of_banks_are_in_both_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed(BANKED.numerics)[0]
    assert not apart(tiled(graph, BANKED, 3))
    UNBANKED[name](monkeypatch)
    assert apart(tiled(graph, BANKED, 3))


def test_banks() -> None:
    """A load and a computation in one single-ported bank take turns; in two banks, or
    with two ports, they do not."""
    def waited(bank: int, ports: int) -> float:
        memory = replace(SMALL.memory, local_bytes=16384, local_banks=4, bank_ports=ports, local_bandwidth=8)
        target = replace(SMALL, memory=memory)
        fill = (
            "FILL",
            {
                "y": bank * 4096,
                "y_type": "int8",
                "y_strides": (0, 0, 0, 1),
                "dims": (1, 1, 1, 2048),
                "value": 0,
            },
        )
        program = serial([flat_copy("LOAD", "DATA", 0, 0, 2048), fill], target=target)
        words = program.commands[0]
        words[:, 2:10] = 0                     # no waits: both start at once
        return float(timeline_of(program, order_of(program)).banks.sum())

    assert waited(0, 0) == waited(0, 2) == waited(1, 1) == 0
    assert waited(0, 1) == pytest.approx(2048 / 8)


def test_shared_memory_is_a_bus_of_its_own() -> None:
    def cycles_with(shared: int) -> tuple[float, float, float]:
        target = replace(
            SMALL, memory=replace(SMALL.memory, local_bytes=16384, shared_bytes=shared, shared_bandwidth=32.0)
        )
        program = serial([flat_copy("LOAD", "DATA", 0, 0, 4096)], target=target)
        t = timeline_of(program, order_of(program))
        return t.cycles, float(t.moved.sum()), float(t.shared.sum())

    slow, fast = cycles_with(0), cycles_with(4096)
    assert slow[1:] == (4096, 0) and fast[1:] == (0, 4096)
    assert slow[0] - fast[0] == pytest.approx(4096 / 4 - 4096 / 32)
    assert cycles_with(4095) == slow            # a transfer that leaves it goes outside
