"""Scatter and GatherND by indices that are computed or from outside: onnxruntime's results, on the NPU."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.run.interpret import interpret
from npuflow.testing.op import check_program
from tests.networks.onnx_text import TARGET, model, normal, ops, refused, rewritten
from tests.rules.test_lookups import quantised
from tests.tiers import spread

FORMS = ["none", "add", "max", "min", "mul"]
ONCE = np.array([4, -6, 3])  # each row once: without a reduction, twice is not defined
TWICE = np.array([4, 0, 4])


def check(data: bytes, given: dict[str, np.ndarray], bar: float = 0.06) -> None:
    """Nothing but Casts is the host's, the program is exact, and near the float result."""
    done = rewritten(data, feeds=given)
    assert {o for o in ops(done) if o.startswith("host:")} <= {"host:cast"}
    graph = quantised(done.graph, given)
    check_program(graph, given, TARGET, "scattered")
    wanted = interpret(done.graph, given, TARGET.numerics)
    for name, found in interpret(graph, given, TARGET.numerics).items():
        scale = np.abs(wanted[name]).max()
        assert np.abs(found - wanted[name]).max() <= bar * scale


@pytest.mark.parametrize("form", FORMS)
def test_rows_by_a_list_of_indices(form: str) -> None:
    data = model(
        "float[6,4] x, int64[3,1] i, float[3,4] u => float[6,4] y",
        f'y = ScatterND<reduction="{form}">(x, i, u)',
        opset=18,
    )
    picks = (ONCE if form == "none" else TWICE)[:, None]
    check(data, {"x": normal(1, 6, 4), "i": picks, "u": normal(2, 3, 4)})


@pytest.mark.parametrize(("form", "axis"), spread(FORMS, [0, 1, 2]))
def test_elements_along_an_axis(form: str, axis: int) -> None:
    """Along fewer places of the other dimensions than the data has."""
    picks = [2, 3, 2]
    picks[axis] = 3
    text = ",".join(map(str, picks))
    data = model(
        f"float[5,4,6] x, int64[{text}] i, float[{text}] u => float[5,4,6] y",
        f'y = ScatterElements<axis={axis}, reduction="{form}">(x, i, u)',
        opset=18,
    )
    along = [1, -2, 0] if form == "none" else [1, 0, 1]
    index = np.moveaxis(np.broadcast_to(along, (*_rest(picks, axis), 3)), -1, axis)
    feeds = {"x": normal(1, 5, 4, 6), "i": np.ascontiguousarray(index), "u": normal(2, *picks)}
    check(data, feeds, 0.1)


def _rest(picks: list[int], axis: int) -> list[int]:
    return [size for d, size in enumerate(picks) if d != axis]


@pytest.mark.parametrize("rows", [(5, 4), (4, 4)])
def test_indices_over_several_dimensions(rows: tuple[int, int]) -> None:
    """Those from outside are checked against their own dimension: the host separates what differs."""
    a, b = rows
    index = np.array([[1, 3], [-1, 0], [1, 2]])
    x = normal(1, a, b, 3)
    scatter = model(
        f"float[{a},{b},3] x, int64[3,2] i, float[3,3] u => float[{a},{b},3] y", "y = ScatterND(x, i, u)"
    )
    check(scatter, {"x": x, "i": index, "u": normal(2, 3, 3)})
    gather = model(f"float[{a},{b},3] x, int64[3,2] i => float[3,3] y", "y = GatherND(x, i)")
    check(gather, {"x": x, "i": index})
    every = model(f"float[{a},{b},3] x, int64[3,3] i => float[3] y", "y = GatherND(x, i)")
    check(every, {"x": x, "i": np.array([[1, 3, 2], [-1, 0, 0], [1, 2, -3]])})


def test_gathernd_of_a_batch() -> None:
    data = model("float[2,5,3,4] x, int64[2,3,2] i => float[2,3,4] y", "y = GatherND<batch_dims=1>(x, i)")
    index = np.random.default_rng(3).integers(-3, 3, (2, 3, 2))
    check(data, {"x": normal(1, 2, 5, 3, 4), "i": index})


def test_positions_that_the_npu_found() -> None:
    body = "p = ArgMax<axis=1>(s) q = ArgMax<axis=1>(t) i = Concat<axis=1>(p, q) y = {}"
    signature = "float[3,5] s, float[3,4] t, float[5,4,3] x"
    feeds = {"s": normal(1, 3, 5), "t": normal(2, 3, 4), "x": normal(3, 5, 4, 3)}
    gather = model(f"{signature} => float[3,3] y", body.format("GatherND(x, i)"))
    assert not [o for o in ops(rewritten(gather, feeds=feeds)) if o.startswith("host:")]
    check(gather, feeds)
    scatter = model(f"{signature}, float[3,3] u => float[5,4,3] y", body.format("ScatterND(x, i, u)"))
    check(scatter, {**feeds, "u": normal(4, 3, 3)})


def test_one_row_of_a_cache() -> None:
    """A table for each row is smaller than one of all rows."""
    data = model("float[40,4] x, int64[1,1] i, float[1,4] u => float[40,4] y", "y = ScatterND(x, i, u)")
    check(data, {"x": normal(1, 40, 4), "i": np.array([[17]]), "u": normal(2, 1, 4)})


def test_what_is_too_large_stays_with_the_reason() -> None:
    data = model("float[2000,1] x, int64[3,1] i, float[3,1] u => float[2000,1] y", "y = ScatterND(x, i, u)")
    feeds = {"x": normal(1, 2000, 1), "i": ONCE[:, None], "u": normal(2, 3, 1)}
    assert refused(rewritten(data, feeds=feeds), "spell_scatter") == "3 updates of (2000,) rows"
