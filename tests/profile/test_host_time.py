"""The host's part costs cycles: one price in the schedule time, the clock, profiles,
budgets and the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from typer.testing import CliRunner

from npuflow.base.errors import ModelError
from npuflow.cli._app import application
from npuflow.hw.target import HostProcessor, Limits, Target
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.op import OPS
from npuflow.place.host import HostPricing, HostWork, host_work, placed_work, total_work
from npuflow.place.islands import PlacementTable
from npuflow.place.partition import npu_share
from npuflow.place.place import NodePlacement, place
from npuflow.program.container import Program, fingerprint
from npuflow.quantise.config import Activations, Quantize
from npuflow.report.profile import difference, profile, tables
from npuflow.report.profile.budget import BudgetCase, MissedBudget, minimal, too_slow
from npuflow.report.profile.schedule import compare
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, machine
from tests.networks.small import Builder, mixed

TARGET = replace(
    SMALL,
    limits=Limits(refuse=("tanh", "gemm")),
    host=HostProcessor(macs_per_cycle=2.0, elements_per_cycle=0.5),
)


def network(refused: Target = TARGET) -> tuple[Graph, NodePlacement, Builder]:
    """Two convolutions with a function of the host between them, and a dense layer of the host at the end."""
    b = Builder()
    x = b.add(OPS["tanh"](), b.conv(b.input("x", (1, 4, 8, 8)), 4, 3))
    flat = b.add(OPS["reshape"]((1, 256)), b.conv(x, 4, 3))
    y = b.add(OPS["gemm"](transB=1), flat, b.const((5, 256), 0.1), b.const((5,), 0.1))
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    return graph, place(graph, refused, PlacementTable(min_macs=0)), b


def quantised(bits: int = 8) -> Graph:
    graph, placed, b = network()
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize(activations=Activations(bits=bits))
    return quantize_graph(
        graph, placed, ranges, config, TARGET.numerics
    ).graph


@pytest.fixture(scope="module")
def program() -> Program:
    return build(quantised(), TARGET)


# tanh: 256 elements in, out and computed; dense: 256 elements in, 5 made, 1280 MACs;
# the input and the output of the
# network are handed over in any case
WORK = HostWork(macs=1280, elements=3 * 256 + 256 + 5, bytes=3 * 256)
CYCLES = 1280 / 2.0 + (4 * 256 + 5) / 0.5 + 3 * 256 / 4.0


def test_what_the_host_does_is_counted_alike_before_and_after_quantisation() -> None:
    graph, placed, _ = network()
    assert placed.host == total_work(host_work(quantised())) == WORK
    assert WORK.cycles(TARGET) == sum(WORK.terms(TARGET).values()) == CYCLES
    assert total_work(host_work(quantised(16))) == replace(WORK, bytes=2 * WORK.bytes)
    everything = placed_work(graph, lambda _: False)
    assert everything.macs == graph_macs(graph) and everything.bytes == 0


def test_a_node_is_priced_where_it_stands() -> None:
    """One convolution more on the host: beside the host only one of its sides crosses."""
    graph = quantised()
    last = [n for n in graph.nodes if n.is_integer and n.op.onnx == "Conv"][-1]
    macs, codes = 4 * 64 * 36, 256
    alone = HostPricing(graph).work([last])
    # its input is the host's already
    assert alone == HostWork(macs, 256 + codes, codes)
    float_graph, placed, _ = network()
    first = float_graph.nodes[0]
    assert HostPricing(float_graph).work([first]) == HostWork(macs, 256 + codes, codes)
    on_npu = dict(zip(map(id, float_graph.nodes), (p.on_npu for p in placed.places), strict=True))
    beside_host = HostPricing(float_graph, lambda n: on_npu[id(n)])
    assert beside_host.work([first]).bytes == 0   # its reader is the host's


def test_the_share_is_of_the_float_network_and_nothing_on_the_npu_is_no_share() -> None:
    graph, placed, _ = network()
    total, convolutions = graph_macs(graph), 2 * 4 * 64 * 36
    assert placed.share == npu_share(quantised(), total) == convolutions / total
    smaller = replace(quantised(), nodes=tuple(n for n in quantised().nodes if n.op.onnx != "Gemm"))
    assert npu_share(smaller) == 1.0 and npu_share(smaller, total) == convolutions / total
    b = Builder()
    y = b.add(OPS["tanh"](), b.input("x", (1, 4)))
    nothing = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    assert place(nothing, TARGET).share == 0.0 and npu_share(nothing) == 0.0
    assert place(nothing, SMALL).share == 1.0


def test_figures_of_a_program_hold_the_hosts_term_on_both_sides(program: Program) -> None:
    found = profile(program)
    total = found.totals()
    assert total["host_cycles"] == CYCLES == sum(r["cycles"] for r in found.host_rows)
    assert total["cycles"] == total["npu_cycles"] + CYCLES and total["npu_cycles"] == found.cycles > 0
    assert total["schedule_cycles"] == program.meta["plan"]["cycles"] + CYCLES
    assert total["host_macs"] == WORK.macs and total["milliseconds"] == total["cycles"] / 1e6
    assert sum(total["path"].values()) == pytest.approx(total["cycles"])
    # clock and schedule time compare what they compute, the NPU
    cycles = compare(found)[0]
    assert (cycles.clock, cycles.schedule) == (found.cycles, program.meta["plan"]["cycles"])


def test_a_faster_host_changes_the_hosts_term_alone(program: Program) -> None:
    fast = replace(TARGET, host=HostProcessor(4.0, 1.0))
    other = build(quantised(), fast)
    assert [w.tolist() for w in other.commands] == [w.tolist() for w in program.commands]
    assert fingerprint(fast) == fingerprint(TARGET) and other.const == program.const
    a, b = profile(program), profile(other)
    assert a.cycles == b.cycles and b.host_cycles == CYCLES - (CYCLES - 3 * 256 / 4.0) / 2
    rows = {r["what"]: r for r in difference.totals(a, b)}
    assert rows["host_cycles"]["change"] == rows["cycles"]["change"] == b.host_cycles - a.host_cycles < 0
    changes = sum(r["change"] for r in difference.layers(a, b))
    assert changes == pytest.approx(b.host_cycles - a.host_cycles)


def test_a_network_that_the_host_runs_alone_has_a_program_and_its_time() -> None:
    graph, _, _ = network()
    done = quantize_graph(graph, lambda _: False, {}, Quantize(), TARGET.numerics).graph
    found = profile(build(done, TARGET))
    total, work = found.totals(), total_work(host_work(done))
    assert total["cycles"] == total["host_cycles"] == work.cycles(TARGET) and work.macs == graph_macs(graph)
    assert total["npu_cycles"] == total["macs"] == 0 and not compare(found)


def test_programs_without_a_host_part_have_the_figures_of_the_npu() -> None:
    found = profile(build(mixed(SMALL.numerics)[0], SMALL))
    total = found.totals()
    assert (
        total["cycles"] == found.cycles
        and not found.host
        and not found.host_rows
        and "host" not in total["path"]
    )


def test_the_command_line_shows_the_hosts_part(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "a.npu"
    program.save(path)
    shown = CliRunner().invoke(application("profile"), ["profile", str(path)]).output
    assert f"host {CYCLES:,.0f} cycles: 1,280 MACs 640" in shown and "host_macs".replace("_", " ") in shown
    lines = CliRunner().invoke(application("profile"), ["profile", str(path), "--json"]).output.splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[-1]["total"]["host_macs"] == 1280
    assert sum(r["cycles"] for r in rows[:-1] if r.get("limit") == "host") == CYCLES
    assert "host_macs" in tables.csv_text([*profile(program).operators(), *profile(program).host_rows])


DAMAGED = [{"macs": -1, "elements": 0, "bytes": 0}, {"macs": 1}, 7, {"macs": 1.5, "elements": 0, "bytes": 0}]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_host_entry_is_a_clear_error(program: Program, damage: object) -> None:
    nodes = [dict(n) for n in program.meta["nodes"]]
    nodes[0]["host"] = damage
    broken = replace(program, meta={**program.meta, "nodes": nodes})
    with pytest.raises(ModelError, match="host"):
        Program.from_bytes(broken.to_bytes())


def test_a_budget_that_the_host_alone_misses_is_explained() -> None:
    case = BudgetCase(quantised(), TARGET, 1)
    found = profile(case.program())
    bounds = plan_network(case.graph, machine(TARGET), TARGET.numerics, 1).bounds
    one = MissedBudget(case, found, bounds, found.cycles + 0.6 * found.host_cycles)
    assert one.at(TARGET) == case.cycles() == found.whole_cycles
    assert "host" in minimal(one)
    error = too_slow(one, {})
    assert "a host of 2 MACs and 0.5 elements per cycle" in str(error.because)
    assert "target.host.macs_per_cycle >= 4" in str(error.hint)
