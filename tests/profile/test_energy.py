"""The energy of a program: sums by hand, layers that add up, and nothing without a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.tables import canonical, read
from npuflow.cli._app import application
from npuflow.hw.energy import Energy, FloatMacEnergy, MacEnergy
from npuflow.hw.ranges import FloatName
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.partition import is_npu
from npuflow.program.container import Program, target_meta
from npuflow.program.container import fingerprint as machine_of
from npuflow.report.profile import Profile, profile
from npuflow.report.profile.energy import PARTS, PICO
from tests.networks.by_hand import Net, chain
from tests.networks.harness import SMALL, build, local
from tests.networks.small import mixed

TABLE = Energy(
    "a test", (MacEnergy(8, 8, 1.0), MacEnergy(16, 16, 4.0)), (FloatMacEnergy("bfloat16", 2.0),),
    local_byte=10.0, shared_byte=20.0, external_byte=100.0, vector_op=3.0, idle_mw=2.0,
)
ROOMY = local(replace(SMALL, memory=replace(SMALL.memory, burst=1)), 1 << 19)


def convolution() -> Graph:
    net = Net(1, 4, 6, 6)
    net.conv("c", "x", 8)
    return net.quantised(["c"]).graph


def dense() -> Graph:
    net = Net(16, 32)
    net.const("w", net.rng.normal(size=(8, 32)))
    net.const("b", net.rng.normal(size=8))
    net.add("y", OPS["gemm"](transB=1), "x", "w", "b")
    return net.quantised(["y"]).graph


def depthwise() -> Graph:
    net = Net(1, 6, 8, 8)
    net.const("w", net.rng.normal(size=(6, 1, 3, 3)))
    net.const("b", net.rng.normal(size=6))
    net.add("y", OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 6), "x", "w", "b")
    return net.quantised(["y"]).graph


def pooled() -> Graph:
    return chain().quantised(["c2"]).graph


def several() -> Graph:
    return mixed(SMALL.numerics)[0]


NETWORKS: dict[str, Callable[[], Graph]] = {
    "convolution": convolution, "dense": dense, "depthwise": depthwise, "pooled": pooled, "several": several,
}


def measured(graph: Graph, target: Target = ROOMY) -> Profile:
    return profile(build(graph, target), TABLE)


def products(graph: Graph) -> int:
    """Multiply-accumulates by the shapes of the float network's weights and results."""
    count = 0
    for node in graph.nodes:
        if is_npu(node) and node.op.onnx in ("Conv", "Gemm"):
            weight = graph.type(node.inputs[1]).shape
            per = prod(weight[1:]) if node.op.onnx == "Conv" else graph.type(node.inputs[0]).shape[1]
            count += prod(graph.type(node.outputs[0]).shape) * per
    return count


@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_is_counted_work_times_the_table(name: str) -> None:
    """Against counts of the test's own: products by shapes, bytes by what transfers say of themselves."""
    graph = NETWORKS[name]()
    found = measured(graph)
    total, work, commands = found.totals(), found.work(), found.program.decoded[0]
    transfers = [c for c in commands if c.opcode in ("LOAD", "STORE")]
    moved = sum(prod(c.vector("dims")) * c.number("element") for c in transfers)
    assert work.external == total["bytes"] == moved
    assert sum(work.macs.values()) == products(graph) == total["macs"] > 0
    milliseconds = total["cycles"] / ROOMY.compute.clock_mhz / 1000
    by_hand = {
        "array": products(graph) * 1.0, "vector": work.operations * 3.0, "local": work.local * 10.0,
        "shared": 0.0, "external": moved * 100.0, "idle": milliseconds * 2.0 / PICO,
    }
    assert total["energy"] == pytest.approx({k: v * PICO for k, v in by_hand.items()}, rel=1e-12)
    assert total["energy_uj"] == pytest.approx(sum(by_hand.values()) * PICO, rel=1e-12)


def test_a_convolution_and_a_product_to_the_last_byte() -> None:
    """What two layers do, worked out on paper.

    The convolution makes 8 x 6 x 6 numbers of 4 x 3 x 3 products each. Its 144 bytes of input, 288 of weights
    with 64 of their scales, and 288 of results cross the bus once. In local memory are, besides, read: the
    input and the weights by two commands of four channels; written and read: sums of 4 bytes; read: the
    scales; written: the results.
    """
    work = measured(convolution()).work()
    assert work.macs == {(8, 8, ""): 8 * 36 * 36} and work.operations == 288
    assert work.external == 144 + 288 + 64 + 288
    assert work.local == work.external + 2 * 144 + 288 + 2 * 4 * 288 + 64 + 288
    work = measured(dense()).work()
    assert work.macs == {(8, 8, ""): 16 * 8 * 32} and work.operations == 16 * 8
    assert work.external == 16 * 32 + 8 * 32 + 8 * 8 + 16 * 8
    total = measured(dense()).totals()
    assert total["energy"]["array"] == pytest.approx(4096e-6)
    assert total["energy"]["external"] == pytest.approx(960 * 100e-6)


def test_layers_and_groups_add_up_to_the_whole() -> None:
    found = measured(several(), SMALL)
    total = found.totals()
    for rows in (found.operators(), found.layers()):
        for part in PARTS[:-1]:
            assert sum(row["energy"][part] for row in rows) == pytest.approx(total["energy"][part])
    assert sum(row["energy_uj"] for row in found.operators()) == pytest.approx(total["energy_uj"])


def test_wider_operands_cost_what_their_entry_says() -> None:
    assert TABLE.mac(8, 8) == 1.0 and TABLE.mac(16, 8) == TABLE.mac(9, 4) == 4.0
    assert TABLE.mac(16, 16, "bfloat16") == 2.0
    assert TABLE.mac(8, 8, "int8_2of4") == 0.5                   # every other weight is a zero


def test_nothing_is_told_without_a_table() -> None:
    found = profile(build(dense(), ROOMY))
    names = {name for row in (*found.layers(), *found.operators(), found.totals()) for name in row}
    assert not [name for name in names if "energy" in name]


def test_a_program_does_not_depend_on_the_table() -> None:
    priced = replace(ROOMY, energy=TABLE)
    assert build(dense(), priced).to_bytes() == build(dense(), ROOMY).to_bytes()
    assert machine_of(priced) == machine_of(ROOMY) and target_meta(priced) == target_meta(ROOMY)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"external_byte": 100.0}, "[energy] says of no multiply-accumulate what it costs"),
        ({"macs": [{"activations": 8, "weights": 8, "pj": 1.0}]}, "no entry covers 16 by 16 bits"),
        ({"float_macs": [{"type": "bfloat16", "pj": 1.0}]}, "no figure for integers, which numerics lists"),
        ({"macs": [{"pj": -1.0}]}, "-1"),
    ],
)
def test_a_table_that_cannot_price_every_product_is_refused(table: dict, said: str) -> None:
    target, faults = read(Target, {"energy": table})
    assert target is None and said in " ".join(f"{one.message} {one.because}" for one in faults)


def test_float_types_need_a_figure_each() -> None:
    stated = canonical(Target(numerics=Numerics(float_types=("bfloat16",))))
    stated["compute"]["float_rates"] = [{"type": "bfloat16", "times": 0.5}]
    stated["energy"] = {"macs": [{"pj": 1.0}]}
    target, faults = read(Target, stated)
    assert target is None and "no figure for bfloat16" in faults[0].message


def test_the_verb_prints_a_column_and_where_the_figures_come_from(tmp_path: Path) -> None:
    path, table = tmp_path / "d.npu", tmp_path / "t.toml"
    build(dense(), ROOMY).save(path)
    table.write_text('[energy]\nsource = "my board"\nmacs = [{ pj = 1.0 }]\nexternal_byte = 100.0\n')
    app = application("profile")
    plain = CliRunner().invoke(app, ["profile", str(path)])
    assert plain.exit_code == 0 and "energy" not in plain.output       # no shipped target has this machine
    ran = CliRunner().invoke(app, ["profile", str(path), "--energy", str(table)])
    assert ran.exit_code == 0 and "energy uj" in ran.output and "(my board)" in ran.output
    ran = CliRunner().invoke(app, ["profile", str(path), "--energy", str(table), "--json"])
    rows = [json.loads(line) for line in ran.output.splitlines()]
    assert rows[-1]["total"]["energy_uj"] == pytest.approx((4096 + 960 * 100) * PICO)
    none = tmp_path / "n.toml"
    none.write_text("[compute]\ncores = 1\n")
    ran = CliRunner().invoke(app, ["profile", str(path), "--energy", str(none)])
    assert "says nothing of energy" in str(ran.exception)


def test_a_program_of_a_shipped_target_finds_its_table(tmp_path: Path) -> None:
    from npuflow.cli._energy import table_for
    from npuflow.stages.tiling import shipped_targets

    target = shipped_targets()["edge-4t"]
    net = Net(1, 4, 6, 6)
    net.conv("c", "x", 8)
    program: Program = build(net.quantised(["c"], numerics=target.numerics).graph, target)
    found = table_for(program, None)
    assert found == target.energy and found is not None and "Horowitz" in found.source
    other = replace(target, compute=replace(target.compute, fill_cycles=1))
    graph = net.quantised(["c"], numerics=target.numerics).graph
    assert table_for(build(graph, other), None) is None


def test_every_shipped_target_has_a_table_and_says_where_it_is_from() -> None:
    from npuflow.stages.tiling import shipped_targets

    for name, target in shipped_targets().items():
        assert target.energy is not None and target.energy.source, name
        generic = "generic" in target.energy.source
        assert not generic or "not of this part" in target.energy.source, name
        assert np.isfinite(target.energy.external_byte) and target.energy.external_byte > 0


def test_a_target_that_extends_a_shipped_one_may_have_other_types() -> None:
    """Its table has a figure for every type, so that other numerics are no fault."""
    from npuflow.stages.tiling import shipped_targets

    for name, target in shipped_targets().items():
        body = canonical(target)
        body["numerics"]["float_types"] = list(get_args(FloatName))
        body["compute"]["float_rates"] = [{"type": t, "times": 0.5} for t in body["numerics"]["float_types"]]
        body["numerics"]["weight_bits"] = body["numerics"]["activation_bits"] = [8, 16]
        found, faults = read(Target, body)
        assert found is not None, (name, faults)
