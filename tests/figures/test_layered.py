"""The layout of a graph in rows."""

from __future__ import annotations

import pytest

from npuflow.report.figures.layered import direct, layers, layout, ordered, routed
from npuflow.report.page import network

NEEDS = {"a": set[str](), "b": {"a"}, "c": {"b"}, "d": {"a", "c"}, "e": {"c"}}


def test_everything_stands_below_what_it_needs() -> None:
    assert layers(NEEDS) == [["a"], ["b"], ["c"], ["d", "e"]]
    deep = {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(3000)}
    assert len(layers(deep)) == 3000


def test_an_arrow_has_a_place_in_every_row_that_it_passes() -> None:
    rows = layers(NEEDS)
    found = routed(rows, NEEDS)
    routes = {(route[0], route[-1]): route for route in found}
    assert set(routes) == {(source, name) for name, mine in NEEDS.items() for source in mine}
    assert [len(route) for route in (routes["a", "d"], routes["c", "e"])] == [4, 2]
    assert [len(row) for row in rows] == [1, 2, 2, 2]
    assert sorted(map(sorted, ordered(rows, found))) == sorted(map(sorted, rows))


def test_no_two_boxes_overlap_and_routes_go_down() -> None:
    found = layout(NEEDS, (100, 30), (20, 20))
    assert set(found.places) == set(NEEDS)
    places = list(found.places.values())
    for i, (x, y) in enumerate(places):
        assert 50 <= x <= found.width - 50 and 0 <= y <= found.height - 30
        assert all(abs(x - a) >= 120 or abs(y - b) >= 50 for a, b in places[:i])
    for route in found.routes:
        assert [y for _, y in route] == sorted(y for _, y in route)


def test_what_another_need_has_already_is_left_out() -> None:
    assert direct(NEEDS) == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"c"}, "e": {"c"}}


def test_a_circle_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(ValueError, match="needs itself"):
        layers({"a": ["b"], "b": ["c"], "c": ["a"]})
    with pytest.raises(ValueError, match="needs itself"):
        layers({"a": ["a"]})


def test_layers_of_one_name_are_boxes_of_their_own() -> None:
    ports = [(["x"], ["a"]), (["a"], ["b"]), (["a", "b"], ["y"])]
    nodes = [
        {"name": "same", "op": "Add", "inputs": read, "outputs": made, "sqnr": None, "npu": True}
        for read, made in ports
    ]
    spec = network(nodes)
    assert spec is not None and [row["name"] for row in spec["data"]["values"]] == ["same"] * 3
