"""Profiles as rows, pictures, traces and workbooks; two programs beside each other."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from npuflow.cli._app import application
from npuflow.hw.region import CONST
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.report.figures.export import svg
from npuflow.report.figures.program import maps, memory_map
from npuflow.report.figures.roofline import roofline as roofline_figure
from npuflow.report.figures.spec import Spec
from npuflow.report.profile import Profile, cores, difference, memory, profile, roofline, tables, timeline
from npuflow.report.profile.memory import text_map
from npuflow.search.plan import plan_network
from tests.networks.harness import SMALL, build, local, machine
from tests.networks.small import mixed


@pytest.fixture(scope="module")
def programs() -> tuple[Program, Program]:
    graph, _ = mixed(SMALL.numerics)
    larger = local(SMALL, 1 << 14)
    return build(graph, SMALL), build(
        graph, larger, plan_network(graph, machine(larger), SMALL.numerics, level=0)
    )


@pytest.fixture(scope="module")
def found(programs: tuple[Program, Program]) -> Profile:
    return profile(programs[0])


def test_rows_add_up(found: Profile) -> None:
    commands, layers, total = list(found.commands()), found.layers(), found.totals()
    assert len(commands) == total["commands"]
    assert (
        sum(r["bytes"] for r in commands)
        == total["bytes"]
        == sum(r["load_bytes"] + r["store_bytes"] for r in layers)
    )
    assert sum(r["macs"] for r in layers) == total["macs"]
    for row in commands:
        spent = row["set-up"] + row["array"] + row["edge"] + row["vector"] + row["banks"]
        assert row["end"] - row["start"] >= spent - 1e-6
        assert row["stall"] == 0 or row["cause"] != "none"
    for name, amount in total["terms"].items():
        assert sum(r["terms"][name] for r in layers) == pytest.approx(amount)
    for row in layers:
        assert row["const_bytes"] <= row["load_bytes"]
        assert row["stall"] == "" or row["stalls"][row["stall"]] == max(row["stalls"].values())


def test_figures_show_every_layer_and_every_slot(found: Profile) -> None:
    data = roofline.data(found)
    said = titles(roofline_figure(**data))
    for point in data["points"]:
        assert any(t.startswith(point["name"] + ":") for t in said)
        assert point["rate"] <= found.peak
        # no dot above a roof
        assert point["rate"] <= point["intensity"] * SMALL.memory.external_bandwidth * 1.001
    parts = [memory_map(**one) for one in (memory.external_map(found), *memory.local_maps(found))]
    assert len(titles(maps("p", parts))) == len(memory.external(found)) + len(memory.local(found))


def titles(spec: Spec) -> list[str]:
    """What the marks of a figure say under the pointer."""
    page = ElementTree.fromstring(svg(spec))
    return [e.text or "" for e in page.iter("{http://www.w3.org/2000/svg}title")]


def test_local_slots_of_one_moment_overlap_only_within_a_layer(found: Profile) -> None:
    slots = memory.local(found)
    assert slots and max(s["address"] + s["size"] for s in slots) <= SMALL.memory.local_bytes
    assert all(s["start"] < s["end"] <= found.cycles for s in slots)
    for core, commands in enumerate(found.program.decoded):     # what a load brings lives until it is used
        loads = [c for c in commands if c.opcode == "LOAD" and any(r.space == CONST for r in regions(c))]
        own = [s for s in slots if s["core"] == core and s["kind"] == "constants"]
        assert bool(own) == bool(loads)
        starts = [
            r["start"] for r in found.commands() if r["core"] == core and r["queue"] in ("TENSOR", "VECTOR")
        ]
        assert all(any(s["start"] <= t < s["end"] for t in starts) for s in own)
    reported, laid = text_map(found), found.program.meta["memory"]
    assert "w constants, # values" in reported and "w" in reported and "#" in reported
    assert all(f"  {v['value']}: {v['size']:,} bytes" in reported for v in memory.external(found)[:1])
    assert "local bytes are used" in reported
    for used, bound in (
        (found.program.meta["data_bytes"], laid["bound"]),
        (laid["local_used"], laid["local_bound"]),
    ):
        assert f"at least {bound:,} live at once (gap {used / bound:.2f})" in reported and used >= bound


def test_trace_has_every_command_once(found: Profile) -> None:
    events = timeline.trace(found)["traceEvents"]
    commands = [e for e in events if e["ph"] == "X"]
    assert len(commands) == found.totals()["commands"]
    assert {e["args"]["command"] for e in commands if e["pid"] == 0} == set(
        range(sum(e["pid"] == 0 for e in commands))
    )
    ends: dict[tuple[int, int], float] = {}
    for e in sorted(commands, key=lambda e: e["ts"]):
        assert e["ts"] >= ends.get((e["pid"], e["tid"]), 0.0) - 1e-6        # a queue does one thing at a time
        ends[e["pid"], e["tid"]] = e["ts"] + e["dur"]
    assert [e for e in events if e["ph"] == "C"][-1]["args"]["bytes"] == pytest.approx(0)


def test_csv_and_workbook(found: Profile, tmp_path: Path) -> None:
    operators = found.operators()
    assert sum(r["cycles"] for r in operators) == pytest.approx(found.cycles)
    assert sum(r["macs"] for r in operators) == found.totals()["macs"]
    assert len({r["group"] for r in operators}) == len(found.layers())
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(found.layers()))))
    assert len(rows) == len(found.layers())
    assert float(rows[0]["clock array"]) == found.layers()[0]["terms"]["array"]
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    tables.save_workbook(tmp_path / "p.xlsx", found)
    book = openpyxl.load_workbook(tmp_path / "p.xlsx")
    assert book.sheetnames == ["totals", "layers", "groups", "commands", "external memory", "local memory"]
    assert book["commands"].max_row == found.totals()["commands"] + 1
    names = [c.value for c in next(book["layers"].iter_rows(max_row=1))]
    assert names.count("name") == 1 and "stall edge" in names


def test_two_programs_beside_each_other(
    programs: tuple[Program, Program], found: Profile, tmp_path: Path
) -> None:
    other = profile(programs[1])
    rows = {r["what"]: r for r in difference.totals(found, other)}
    assert rows["cycles"]["change"] == pytest.approx(other.cycles - found.cycles)
    layers = difference.layers(found, other)
    assert sum(r["change"] for r in layers) == pytest.approx(other.cycles - found.cycles)
    only = [r["name"] for r in layers if r["cycles a"] is None or r["cycles b"] is None]
    assert set(only) <= {"Concat_6"}, "where its parts are written where it lies, it has no commands"
    for name, program in zip("ab", programs, strict=True):
        program.save(tmp_path / f"{name}.npu")
    result = CliRunner().invoke(
        application("profile"), ["profile", str(tmp_path / "a.npu"), str(tmp_path / "b.npu"), "--json"]
    )
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert lines[0]["name"] == layers[0]["name"] and "total" in lines[-1]
    shown = CliRunner().invoke(
        application("profile"), ["profile", str(tmp_path / "a.npu"), str(tmp_path / "b.npu")]
    )
    assert shown.exit_code == 0, shown.output
    table = {line.split("  ")[0]: line.split()[-1] for line in shown.output.splitlines() if line.strip()}
    assert (
        table["cycles"] == table["milliseconds"] == f"{other.cycles / found.cycles:.3f}"
        and "utilisation" in table
    )


def test_the_verb_writes_every_kind_of_file(programs: tuple[Program, Program], tmp_path: Path) -> None:
    programs[0].save(tmp_path / "a.npu")
    files = {f"--{kind}": tmp_path / name for kind, name in (
        ("roofline", "r.svg"), ("memory-map", "m.svg"), ("trace", "t.json"), ("csv", "p.csv"))}
    options = [str(part) for pair in files.items() for part in pair]
    result = CliRunner().invoke(application("profile"), ["profile", str(tmp_path / "a.npu"), *options])
    assert result.exit_code == 0, result.output
    assert all(path.stat().st_size > 500 for path in files.values())
    for words in ("critical path:", "schedule time", "by term: array", "lower bounds:", "Conv_0"):
        assert words in result.output
    assert (
        "Conv_0"
        in CliRunner()
        .invoke(application("profile"), ["profile", str(tmp_path / "a.npu"), "--commands"])
        .output
    )


def test_what_cores_gain_is_no_more_than_the_truth() -> None:
    """The gain is counted from the least that one core needs: a program that was
    made for one core shows more."""
    graph, _ = mixed(SMALL.numerics)
    one, four = (replace(SMALL, compute=replace(SMALL.compute, cores=n)) for n in (1, 4))
    alone, together = profile(build(graph, one)), profile(build(graph, four))
    row = cores.cores(together)
    assert cores.cores(alone) is None and cores.text(alone) == ""
    assert (
        row is not None
        and 0 < row["speed_up"] <= alone.cycles / together.cycles
        and row["speed_up"] <= row["most"] <= 4
    )
    assert len(row["busy"]) == 4 and all(0 <= share <= 1 for share in row["busy"]) and max(row["busy"]) > 0.05
    busiest = sum(
        r["end"] - r["start"]
        for r in together.commands()
        if r["core"] == 0 and r["queue"] in ("TENSOR", "VECTOR")
    )
    assert row["busy"][0] <= busiest / together.cycles + 1e-9
    assert f"at most {row['most']:.2f} ({row['limit']})" in cores.text(together)
    for point in roofline.points(together):                          # their queues meet at one bus
        assert point["rate"] <= point["intensity"] * four.memory.external_bandwidth * 1.001
    fast = replace(
        four, memory=replace(four.memory, external_bandwidth=four.memory.external_bandwidth * 1000)
    )
    free = cores.cores(profile(build(graph, fast)))
    assert free is not None and free["limit"] == "their number"
    assert 3.9 < free["most"] <= 4.0                 # but for the first load and the last store
