"""Loops in a report: their layers have the figures of all steps, and the picture shows each as one box."""

from __future__ import annotations

import json
from typing import Any

import pytest
import vl_convert

from npuflow.place.place import place
from npuflow.report.gather import ReportSources, by_node, report_data
from npuflow.report.page import network
from npuflow.report.profile import profile
from tests.frontends.test_nested_loops import layer_in_scan
from tests.networks.looped import program_of, quantised
from tests.networks.onnx_text import rewritten
from tests.program.test_repeats import TARGET
from tests.rules.test_recurrent import layer

STEPS = 17


@pytest.fixture(scope="module")
def made() -> tuple[dict[str, Any], Any]:
    model = layer("GRU", steps=STEPS, states="input")
    graph, _ = quantised(model, TARGET)
    found = profile(program_of(graph, TARGET))
    placement = place(rewritten(model).graph, TARGET)
    sources = ReportSources("a", graph, placement, (), found, {}, {}, {}, lambda value: None, ())
    return report_data(sources), found


def test_layers_of_a_loop_have_what_all_steps_take(made: tuple[dict[str, Any], Any]) -> None:
    data, found = made
    (loop,) = data["loops"]
    inner = [row for row in data["nodes"] if row.get("loop") == loop["loop"]]
    assert (loop["steps"], loop["carried"], len(loop["stacks"])) == (STEPS, 1, 1)
    assert len(inner) == loop["nodes"] < len(data["nodes"])
    for key in ("macs", "cycles"):
        wanted = sum(row[key] for row in found.operators()) + sum(
            row["host_macs" if key == "macs" else key] for row in found.host_rows
        )
        assert sum(row.get(key) or 0 for row in data["nodes"]) == pytest.approx(wanted)
    products = [row for row in inner if row.get("macs")]
    assert products and all(row["macs"] % STEPS == 0 and row["limit"] for row in products)


def test_events_of_the_timeline_are_of_the_networks_layers(made: tuple[dict[str, Any], Any]) -> None:
    data, _ = made
    nodes, queues = data["nodes"], data["timeline"]["queues"]
    arrays = {node for queue, _, _, node, _ in data["timeline"]["events"] if queues[queue] == "TENSOR"}
    assert arrays and all(nodes[node].get("macs") for node in arrays)


def test_the_picture_has_one_box_for_a_loop(made: tuple[dict[str, Any], Any]) -> None:
    data, _ = made
    spec = network(data["nodes"], data["loops"])
    assert spec is not None and vl_convert.vegalite_to_vega(spec)["marks"]
    boxes = {row["name"]: row for row in spec["data"]["values"]}
    loop = data["loops"][0]["loop"]
    assert boxes[f"loop {loop}"]["text"] == f"{STEPS} x Loop"
    assert len(spec["data"]["values"]) == len(data["nodes"]) - data["loops"][0]["nodes"] + 1
    assert json.dumps(data, allow_nan=False)


@pytest.mark.slow
def test_a_loop_in_a_loop_is_in_the_box_of_the_outer_one() -> None:
    """Its layers have what all steps of both take, and say in which of them they stand."""
    model = layer_in_scan("GRU", 3, 12, 5)
    graph, _ = quantised(model, TARGET)
    found, placement = profile(program_of(graph, TARGET)), place(rewritten(model).graph, TARGET)
    sources = ReportSources("a", graph, placement, (), found, {}, {}, {}, lambda value: None, ())
    data = report_data(sources)
    (loop,) = data["loops"]
    (inner,) = loop["inner"]
    rows = [row for row in data["nodes"] if row.get("inner") == inner["loop"]]
    assert len(rows) == inner["nodes"] and all(row["loop"] == loop["loop"] for row in rows)
    assert sum(row.get("loop") == loop["loop"] for row in data["nodes"]) == loop["nodes"] > len(rows)
    products = [row for row in rows if row.get("macs")]
    assert products and all(row["macs"] % (12 * 5) == 0 for row in products)
    for key in ("macs", "cycles"):
        wanted = sum(row[key] for row in found.operators()) + sum(
            row["host_macs" if key == "macs" else key] for row in found.host_rows
        )
        assert sum(row.get(key) or 0 for row in data["nodes"]) == pytest.approx(wanted)
    spec = network(data["nodes"], data["loops"])
    assert spec is not None and vl_convert.vegalite_to_vega(spec)["marks"]
    assert len(spec["data"]["values"]) == len(data["nodes"]) - loop["nodes"] + 1


def test_rows_of_steps_become_one() -> None:
    rows = {
        0: {"macs": 4, "cycles": 10.0, "utilisation": 0.5, "limit": "array", "schedule": None},
        3: {"macs": 4, "cycles": 30.0, "utilisation": 0.1, "limit": "bus", "schedule": 7.0},
        5: {"cycles": 1.0, "energy_uj": 2.0},
    }
    found = by_node(rows, [0, None, None, 0, None, None])
    assert found == {
        0: {"macs": 8, "cycles": 40.0, "utilisation": pytest.approx(0.2), "limit": "bus", "schedule": 7.0}
    }
    assert by_node(rows, None) == rows
