"""Columns of inputs and their sums: what a layer multiplies, exact in any order."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Op
from npuflow.ir.types import Array
from npuflow.ir.windows import Taps
from npuflow.tune.error import outputs_of
from npuflow.tune.rounding.columns import ChosenColumns, Codes, ColumnObserver, columns, gathered
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.moments import Moments, of_columns
from npuflow.tune.rounding.rounded import matrix
from tests.networks.floats import Net


def fixed(x: Array, fraction: int) -> Codes:
    """The rows of a matrix as columns of one group."""
    rows, terms = x.shape
    return gathered(Taps(np.arange(rows)[:, None] * terms, 1, terms), 1, x, fraction)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_merged_in_any_order_and_subtracted(data: Any) -> None:
    groups, terms = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    parts = [
        rng.integers(-(2**15) + 1, 2**15, size=(groups, data.draw(st.integers(1, 9)), terms)).astype(np.int16)
        for _ in range(data.draw(st.integers(2, 6)))
    ]
    whole = of_columns(parts, 5)
    assert whole is not None and whole.count == sum(p.shape[1] for p in parts)
    wide = np.concatenate(parts, axis=1).astype(object)
    exact = np.stack([w.T @ w for w in wide])
    assert (whole.gram == exact).all()
    each = [of_columns([p], 5) for p in data.draw(st.permutations(parts))]
    some = reduce(Moments.plus, [e for e in each if e is not None], Moments.empty(groups, terms, 5))
    assert _bytes(some) == _bytes(whole)
    first = of_columns(parts[:1], 5)
    rest = of_columns(parts[1:], 5)
    assert first is not None and rest is not None and _bytes(whole.minus(first)) == _bytes(rest)


def _bytes(one: Moments) -> tuple[int, bytes, bytes]:
    return one.count, one.sums.tobytes(), one.gram.tobytes()


def test_other_grids_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        Moments.empty(1, 2, 3).plus(Moments.empty(1, 2, 4))


def test_centred_moments_are_those_of_the_numbers() -> None:
    rng = np.random.default_rng(1)
    x = np.rint(rng.normal(2.0, 1.0, size=(50, 4)) * 64) / 64
    found = of_columns([fixed(x, 6)], 6)
    assert found is not None
    np.testing.assert_allclose(found.around(found.mean)[0], np.cov(x.T, bias=True), atol=1e-12)
    np.testing.assert_allclose(found.around(None)[0], x.T @ x / 50, atol=1e-12)


def test_what_no_grid_holds() -> None:
    real = np.float32([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.26, 0.125, 0.375, -0.375, 8191.8])
    codes = fixed(real[None], 2)
    assert codes.tolist() == [[[32767, -32767, 0, 32767, -32767, 1, 0, 2, -2, 32767]]]


def test_padding_is_zero_whatever_lies_beside_it() -> None:
    taps = Taps(np.array([[-1, 0], [2, -1]]), 3, 2)
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3) + 1
    assert gathered(taps, 2, x, 0).tolist() == [[[0, 1, 0, 4], [3, 0, 6, 0]], [[0, 7, 0, 10], [9, 0, 12, 0]]]


def columns_of(op: Op, x: Array, at: Array) -> Array:
    """[groups, places, terms] in float64, by numpy alone."""
    taps, groups = op.columns(x.shape, at), op.column_groups()
    channel = np.arange(groups * taps.channels).reshape(groups, 1, taps.channels, 1) * taps.step
    index = taps.first[None, :, None, :]
    return np.where(index < 0, 0, x.reshape(-1)[index + channel * (index >= 0)]).reshape(groups, len(at), -1)


@pytest.mark.parametrize("name", ["conv", "gemm", "matmul"])
def test_columns_times_rows_are_the_layer(name: str) -> None:
    """For every case of the operator's own suite whose weight is a constant matrix."""
    seen = 0
    for sample in OPS[name].samples(np.random.default_rng(4)):
        x, weight = sample.inputs[0], sample.inputs[1]
        assert x is not None and weight is not None
        if 1 not in sample.constant:
            continue
        net = Net(0, *x.shape)
        net.add("y", sample.op.with_(clip=None), "x", net.const("w", weight))
        graph = net.graph("y")
        node = graph.nodes[0]
        count = node.op.places(graph.site(node))
        if not count:
            continue
        seen += 1
        (real,) = node.op.reference(x.astype(np.float64), weight.astype(np.float64))
        found = columns_of(node.op, x.astype(np.float64), np.arange(count))
        one = matrix(graph, 0, "w", ("y",), name)
        made = np.matmul(one.rows(weight), found.swapaxes(1, 2))          # [groups, outputs, places]
        flat = np.moveaxis(real, 1, 0) if name == "conv" else np.moveaxis(real, -1, 0)
        gain = float(getattr(node.op, "alpha", 1.0))
        np.testing.assert_allclose(gain * made.reshape(-1, count), flat.reshape(-1, count), atol=1e-9)
        assert (one.tensor_of(one.rows(weight), "float64") == weight.astype(np.float64)).all()
    assert seen >= 2


def test_gathered_columns_are_those_of_the_operator() -> None:
    """Every case of the suite that has groups, pads, strides or dilations; the grid holds each number."""
    rng, seen = np.random.default_rng(5), 0
    for sample in OPS["conv"].samples(rng):
        shape = sample.inputs[0].shape
        x = rng.integers(-99, 99, shape).astype(np.float32) / 4
        net = Net(0, *shape)
        net.add("y", sample.op.with_(clip=None), "x", net.const("w", sample.inputs[1]))
        graph = net.graph("y")
        op = graph.nodes[0].op
        at = np.arange(op.places(graph.site(graph.nodes[0])))
        codes = gathered(op.columns(shape, at), op.column_groups(), x, 2)
        np.testing.assert_array_equal(codes, columns_of(op, x, at) * 4)
        seen += 1
    assert seen >= 5


def test_moments_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    parts = [rng.integers(-(2**15) + 1, 2**15, size=(2, 5, 7)).astype(np.int16) for _ in range(9)]
    whole = of_columns(parts, 3)
    monkeypatch.setattr("npuflow.tune.rounding.moments.AT_ONCE", 50)
    some = of_columns(parts, 3)
    assert whole is not None and some is not None and _bytes(whole) == _bytes(some)


def _layer(graph: Graph, places: int) -> WeightedLayer:
    return WeightedLayer(0, "c", "c.w", "x", "c.b", 10, places)


def test_places_are_drawn_by_the_sample_alone() -> None:
    net = Net(7, 1, 3, 9, 9)
    net.conv("c", "x", 4)
    graph = net.graph("c")
    x = net.feeds(1)[0]["x"]
    whole = columns(graph, _layer(graph, 81), x, ChosenColumns(np.arange(81)))
    (some,) = ColumnObserver(graph, [_layer(graph, 10)]).columns({"x": x})
    assert whole.shape == (1, 81, 27) and len({*some.chosen.places}) == 10
    np.testing.assert_array_equal(some.codes, whole[:, some.chosen.places])
    (again,) = ColumnObserver(graph, [_layer(graph, 10)]).columns({"x": x})
    assert (again.chosen.places == some.chosen.places).all()
    (other,) = ColumnObserver(graph, [_layer(graph, 10)]).columns({"x": x + 1})
    assert (other.chosen.places != some.chosen.places).any()


def test_an_observer_gives_each_sample_its_own_columns() -> None:
    """Its buffers are used again for the next sample, and what it found for one before stays."""
    net = Net(3, 1, 6, 9, 9)
    net.conv("a", "x", 6, depthwise=True)
    net.conv("b", "a", 8, 1)
    graph, feeds = net.graph("b"), net.feeds(3)
    layers = [
        WeightedLayer(k, name, f"{name}.w", source, f"{name}.b", 9, places)
        for k, (name, source, places) in enumerate((("a", "x", 7), ("b", "a", 81)))
    ]
    observer = ColumnObserver(graph, layers)
    found = [observer.columns(feed) for feed in feeds]
    inner = outputs_of(replace(graph, outputs=("a",)), feeds)[0]
    for feed, array, each in zip(feeds, inner, found, strict=True):
        for layer, source, one in zip(layers, (feed["x"], array), each, strict=True):
            np.testing.assert_array_equal(one.codes, columns(graph, layer, source, one.chosen))
