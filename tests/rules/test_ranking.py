"""Rankings of one element: sequences sorted by their lengths, in a model of one sequence."""

from __future__ import annotations

import numpy as np

from tests.networks.onnx_text import model, normal, ops, rewritten


def test_sorting_one_sequence_is_nothing() -> None:
    """What PyTorch writes around a packed sequence: sort, gather, and back by the inverse order."""
    body = """
        sorted, order = TopK<axis=0>(lengths, one)
        again, back = TopK<axis=0, largest=0>(order, one)
        picked = Gather<axis=1>(x, order)
        y = Gather<axis=1>(picked, back)
        z = Mul(y, three)
    """
    data = model(
        "float[5,1,3] x, int64[1] lengths => float[5,1,3] z",
        body,
        {"one": np.array([1], np.int64), "three": np.array(3, np.float32)},
    )
    done = rewritten(data, feeds={"x": normal(7, 5, 1, 3), "lengths": np.array([5], np.int64)})
    assert ops(done) == ["mul"]


def test_positions_of_one_element_are_zero() -> None:
    body = "at = ArgMax<axis=1, keepdims=0>(x) y = Gather<axis=0>(table, at) z = Add(y, one)"
    weights = {"table": normal(3, 4, 6), "one": np.array(1, np.float32)}
    done = rewritten(model("float[2,1] x => float[2,6] z", body, weights))
    assert "host:argmax" not in ops(done)


def test_more_elements_are_ranked() -> None:
    body = "v, at = TopK<axis=0>(x, two) y = Add(v, v)"
    done = rewritten(model("float[3] x => float[2] y", body, {"two": np.array([2], np.int64)}))
    assert "topk" in ops(done)
