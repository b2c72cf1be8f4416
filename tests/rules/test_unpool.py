"""MaxUnpool by the indices of a MaxPool of the network."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.onnx.run import run
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import interpret
from tests.networks.onnx_text import TARGET, model, normal, on_npu, ops, refused, rewritten

POOL = "p, q = MaxPool<kernel_shape=[{0},{1}], strides=[{0},{1}]>(x) "
BACK = "y = MaxUnpool<kernel_shape=[{0},{1}], strides=[{0},{1}]>({2}, q)"


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (1, 4)])
def test_values_go_back_to_their_places(window: tuple[int, int]) -> None:
    body = (POOL + BACK).format(*window, "p")
    data = model("float[2,3,6,8] x => float[2,3,6,8] y", body)
    given = {"x": normal(3, 2, 3, 6, 8)}
    done = rewritten(data, feeds=given)
    assert not [o for o in ops(done) if o.startswith("host:")] and "maxpool" in ops(done)
    graph = on_npu(done, Quantize(activations=Activations(bits=16)), given)
    (found,), (wanted,) = interpret(graph, given, TARGET.numerics).values(), run(data, given)
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_other_values_take_the_places_of_an_earlier_pool() -> None:
    """As decoders of segmentation networks do. Equal elements: the first has the place."""
    body = POOL.format(2, 2) + "r = Relu(p) s = Neg(r) t = Mul(s, r) " + BACK.format(2, 2, "t")
    data = model("float[1,2,4,4] x => float[1,2,4,4] y", body)
    given = {"x": np.round(normal(5, 1, 2, 4, 4))}
    done = rewritten(data, feeds=given)
    assert not [o for o in ops(done) if o.startswith("host:")]
    on_npu(done, feeds=given)


def test_indices_that_others_read_keep_the_pool_on_the_host() -> None:
    body = POOL.format(2, 2) + BACK.format(2, 2, "p")
    data = model("float[1,2,4,4] x => float[1,2,4,4] y, int64[1,2,2,2] q", body)
    assert {o for o in ops(rewritten(data)) if o.startswith("host:")} == {"host:maxpool"}


def test_windows_that_overlap_stay() -> None:
    body = """p, q = MaxPool<kernel_shape=[3,3], strides=[1,1]>(x)
        y = MaxUnpool<kernel_shape=[3,3], strides=[1,1]>(p, q)"""
    done = rewritten(model("float[1,2,4,4] x => float[1,2,4,4] y", body))
    assert "not side by side" in refused(done, "spell_unpool")
