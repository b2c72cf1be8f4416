"""Statistics: exact, the same for any sharding and order, and as subtractable as they are mergeable."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper

from npuflow.base.errors import DataError, InternalError, ModelError
from npuflow.flow.artifact import Reader, Writer
from npuflow.ir.types import TensorType
from npuflow.run.floats import float_session
from npuflow.stages.statistics import Observed
from npuflow.statistics.kernels import MANTISSA
from npuflow.statistics.observe import Counter, Observation, Observer, Scratch
from npuflow.statistics.statistics import ObservedStatistics, added, beside, empty, merged
from npuflow.testing.calibrator import statistics_of

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
VECTORS = hnp.arrays(np.float32, 24, elements=FLOATS)


@pytest.fixture(scope="module")
def observer() -> Observer:
    """A model with a hidden tensor `y` = 2 x and its Relu `z`."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [24])  # noqa: E731
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y"), info("z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return Observer(model.SerializeToString(), {"x": TensorType((24,))}, ["x", "y", "z"])


def same(a: ObservedStatistics, b: ObservedStatistics, ordered: bool = True) -> bool:
    rows = slice(None)
    if not ordered:
        rows = [a.samples.index(name) for name in b.samples]
    return (
        set(a.samples) == set(b.samples)
        and all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("offsets", "keys", "counts"))
        and all(np.array_equal(getattr(a, f)[rows], getattr(b, f)) for f in ("lo", "hi", "tails", "totals"))
    )


def shards(observer: Observer, samples: list[np.ndarray]) -> list[tuple[str, Observation]]:
    return [(str(i), observer.observe({"x": x})) for i, x in enumerate(samples)]


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(VECTORS, min_size=1, max_size=6), order=st.randoms(), cut=st.integers(0, 6))
def test_any_sharding_and_order_gives_the_same(observer, samples, order, cut) -> None:
    parts = shards(observer, samples)
    whole = merged(parts)
    assert whole is not None
    two = empty(observer.names).plus(parts[:cut]).plus(parts[cut:])
    assert same(whole, two)
    shuffled = list(parts)
    order.shuffle(shuffled)
    assert same(whole, empty(observer.names).plus(shuffled), ordered=False)


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(VECTORS, min_size=2, max_size=6), keep=st.integers(1, 5))
def test_taking_samples_away_is_as_if_they_had_never_been(observer, samples, keep) -> None:
    parts = shards(observer, samples)
    less = empty(observer.names).plus(parts).minus(dict(parts[keep:]))
    assert same(less, empty(observer.names).plus(parts[:keep]))


def tree(parts: list[ObservedStatistics], draw: Any) -> ObservedStatistics:
    """The parts merged in a tree of any shape."""
    while len(parts) > 1:
        start = draw.randint(0, len(parts) - 2)
        stop = draw.randint(start + 2, len(parts))
        parts = [*parts[:start], added(parts[start:stop]), *parts[stop:]]
    return parts[0]


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(VECTORS, min_size=1, max_size=9), cuts=st.sets(st.integers(1, 8)), draw=st.randoms())
def test_any_tree_of_shards_gives_the_same_bytes(observer, samples, cuts, draw) -> None:
    parts = shards(observer, samples)
    ends = [0, *sorted(cut for cut in cuts if cut < len(parts)), len(parts)]
    leaves = [empty(observer.names).plus(parts[a:b]) for a, b in pairwise(ends)]
    whole, other = merged(parts), tree(leaves, draw)
    assert whole is not None and same(whole, other) and whole.samples == other.samples
    fields = ("lo", "hi", "tails", "totals", "keys", "counts")
    assert all(getattr(whole, f).tobytes() == getattr(other, f).tobytes() for f in fields)


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(VECTORS, min_size=2, max_size=8), out=st.data())
def test_shards_come_and_go(observer, samples, out) -> None:
    parts = shards(observer, samples)
    gone = out.draw(st.sets(st.integers(0, len(parts) - 1), max_size=len(parts) - 1))
    kept = [one for i, one in enumerate(parts) if i not in gone]
    away = [one for i, one in enumerate(parts) if i in gone]
    whole = empty(observer.names).plus(parts)
    less = whole.without(empty(observer.names).plus(away))
    assert same(less, empty(observer.names).plus(kept)) and less.samples == tuple(name for name, _ in kept)
    assert same(less, whole.minus(dict(away)))
    assert same(added([less, empty(observer.names).plus(away)]), whole, ordered=False)


def test_statistics_hold_what_is_taken_away(observer) -> None:
    parts = shards(observer, [np.ones(24, np.float32), np.zeros(24, np.float32)])
    with pytest.raises(DataError, match="lack the sample"):
        empty(observer.names).plus(parts[:1]).without(empty(observer.names).plus(parts[1:]))


def test_tensors_counted_apart_stand_beside_each_other(observer) -> None:
    x = [np.linspace(-3, i, 24, dtype=np.float32) for i in range(4)]
    whole = merged(shards(observer, x))
    counters = [Counter(["x"]), Counter(["y", "z"])]
    arrays = [([one], [one + one, np.maximum(one + one, 0)]) for one in x]
    apart = [
        merged([(str(i), counter.observe(pair[k])) for i, pair in enumerate(arrays)])
        for k, counter in enumerate(counters)
    ]
    assert whole is not None and all(apart)
    joined = beside([one for one in apart if one is not None])
    assert joined.names == whole.names and same(joined, whole)
    with pytest.raises(InternalError):
        beside([joined, empty(["w"])])


def test_an_observation_is_read_with_numpy_alone(tmp_path: Path) -> None:
    """From its file, as the reference page has it: the cells are a histogram of leading bits."""
    rng = np.random.default_rng(3)
    arrays = [
        rng.standard_normal(90_001).astype(np.float32),
        np.repeat(np.float32([-2.5, 0, 3, 1e-30]), [254, 255, 256, 70_000]),
        np.zeros(0, np.float32),
        rng.standard_normal(300).astype(np.float32),
    ]
    writer = Writer(tmp_path)
    Observed(Counter("abcd").observe(arrays), tuple("abcd")).save(writer)
    one = np.load(tmp_path / "observation.npz")
    counts = one["cells"].astype(np.int64)
    counts.reshape(-1)[one["large"][:, 0]] = one["large"][:, 1]
    for i, array in enumerate(arrays):
        part = slice(one["offsets"][i], one["offsets"][i + 1])
        keys = one["groups"][part, None] * np.int64(8) + np.arange(8)
        found = np.zeros(1 << 18, np.int64)
        found[keys] = counts[part]
        np.testing.assert_array_equal(found, np.bincount(array.view(np.uint32) >> 14, minlength=1 << 18))
    assert (one["large"][:, 1] >= 255).all() and {255, 256, 70_000} <= set(one["large"][:, 1])
    sealed = Reader(tmp_path, writer.seal("Observed", {}, {}))
    again = Observed.load(sealed).content
    assert again is not None
    whole, back = (merged([("s", x)]) for x in (Counter("abcd").observe(arrays), again))
    assert whole is not None and back is not None and same(whole, back)


def test_there_is_room_for_more_cells_than_expected() -> None:
    """The buffer of cells grows; what it holds stays."""
    scratch = Scratch()
    every = (np.arange(1 << 18, dtype=np.uint32) << np.uint32(14)).view(np.float32)
    every = every[np.isfinite(every)]
    found = merged([("s", Counter("abcdef", scratch).observe([every] * 6))])
    assert found is not None and (found.counts == 1).all() and len(found.keys) == 6 * every.size


@settings(max_examples=100, deadline=None)
@given(x=VECTORS)
def test_counts_and_extrema_are_exact(observer, x) -> None:
    found = merged(shards(observer, [x]))
    assert found is not None
    tensor = found["x"]
    finite = x[np.isfinite(x)]
    assert list(tensor.totals) == [24, np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum()]
    assert tensor.count == finite.size == tensor.counts.sum()
    if finite.size:
        # Magnitudes below 2.3e-41, the last cell before zero, may be taken for zero.
        assert (tensor.lo, tensor.hi) == pytest.approx(
            (float(finite.min()), float(finite.max())), rel=0, abs=2.3e-41
        )
        keys, counts = np.unique(finite.view(np.uint32) >> (23 - MANTISSA), return_counts=True)
        assert np.array_equal(tensor.keys, keys)
        assert np.array_equal(tensor.counts, counts)


@pytest.mark.parametrize("size", [3_000, 40_001])                # with one table of counters, and with four
@pytest.mark.parametrize("kind", ["patterns", "rows of zeros", "edges of lines"])
def test_counts_of_any_size_survive_their_encoding(kind, size) -> None:
    """Counts around and far above what a byte holds, at the first and last keys of a
    line, in rows that are skipped."""
    rng = np.random.default_rng(size)
    bits = rng.integers(0, 1 << 32, size, np.uint32)
    if kind == "rows of zeros":
        bits = np.where(
            np.repeat(rng.random(size // 8 + 1) < 0.6, 8)[:size], 0, bits & 0x81FFFFFF | 0x3F000000
        ).astype(np.uint32)
    elif kind == "edges of lines":
        places = np.array([0, 1, 63, 64, 65, 127, 128, 65023, 131072, 131135, 131136, 196095], np.uint32)
        often = np.array([254, 255, 256, 1, 2, 382, 383, 3, 300, 128, 127, size])
        low = rng.integers(0, 1 << (23 - MANTISSA), size, np.uint32)
        bits = rng.permutation(np.repeat(places << (23 - MANTISSA), often)[:size] | low)
    x = bits.view(np.float32)
    one = Counter(["x"]).observe([x])
    finite = bits[np.isfinite(x)] >> (23 - MANTISSA)
    keys, counts = np.unique(finite, return_counts=True)
    for times in (1, 2):
        found = merged([(str(i), one) for i in range(times)])
        assert found is not None
        assert np.array_equal(found["x"].keys, keys) and np.array_equal(found["x"].counts, times * counts)
    assert not found.minus({"0": one, "1": one}).keys.size and np.array_equal(
        found.minus({"0": one})["x"].counts, counts
    )


def test_hidden_tensors_are_observed(observer) -> None:
    x = np.linspace(-3, 5, 24, dtype=np.float32)
    found = merged(shards(observer, [x, x + 1]))
    assert found is not None
    assert found["y"].lo == -6.0
    assert found["z"].lo == 0.0
    assert found["z"].hi == 12.0
    assert found["z"].zeros == int((np.concatenate([x, x + 1]) <= 0).sum())


def test_an_outlier_costs_nothing(observer) -> None:
    x = np.random.default_rng(0).normal(size=24).astype(np.float32)
    big = np.where(np.arange(24) == 3, np.float32(1e30), x).astype(np.float32)
    one, two = merged(shards(observer, [x])), merged(shards(observer, [big]))
    assert one is not None and two is not None
    kept = set(one["x"].keys.tolist()) - set(two["x"].keys.tolist())
    assert len(kept) <= 1


@pytest.mark.parametrize("kind", ["normal", "relu6", "heavy", "constant", "tiny"])
def test_derived_figures_against_raw_values(kind) -> None:
    rng = np.random.default_rng(1)
    raw = {
        "normal": rng.normal(0, 3, 20000),
        "relu6": np.clip(rng.normal(1, 3, 20000), 0, 6),
        "heavy": rng.standard_cauchy(20000),
        "constant": np.full(20000, 0.3),
        "tiny": rng.normal(0, 1e-20, 20000),
    }[kind].astype(np.float32)
    tensor = statistics_of(raw)
    lo, hi = tensor.lo, tensor.hi
    span = 2.0**-MANTISSA
    for share in (0.001, 0.01, 0.5, 0.9, 0.999, 1.0):
        exact = np.quantile(raw, share, method="inverted_cdf")
        assert tensor.quantile(share) == pytest.approx(exact, rel=span, abs=1e-30)
        top = np.quantile(np.abs(raw), share, method="inverted_cdf")
        assert tensor.quantile(share, absolute=True) == pytest.approx(top, rel=span, abs=1e-30)
    real = raw.astype(np.float64)
    assert tensor.mean == pytest.approx(real.mean(), abs=span * np.abs(real).mean() + 1e-30)
    assert tensor.std == pytest.approx(real.std(), rel=2e-3, abs=span * np.abs(real).mean())
    if hi > lo:
        mine = tensor.histogram(128, lo, hi)
        exact, _ = np.histogram(real, 128, (lo, hi))
        assert mine.sum() == pytest.approx(raw.size)
        assert np.abs(np.cumsum(mine) - np.cumsum(exact)).max() <= 0.01 * raw.size


def test_moments_below_one_place_are_those_of_an_array() -> None:
    tensor = statistics_of(np.random.default_rng(2).normal(0.5, 1, 4000).clip(0, 3).astype(np.float32))
    places = np.concatenate([np.linspace(-1, 4, 101), tensor.cells()[0][:50], tensor.cells()[1][-50:]])
    assert (
        np.array([tensor.moments.under(float(x)) for x in places]).T.tobytes()
        == tensor.moments.below(places).tobytes()
    )


def test_what_onnxruntime_refuses_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """By the error that is raised, with all of its text, and not on the terminal as well."""
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6] if name == "x" else None)
        for name in "xy"
    )
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [x, shape], [y])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    one = Observer(model, ["x", "s"], ["x"], ["y"])
    with pytest.raises(ModelError, match="does not run") as caught:
        one.run({"x": np.zeros((1, 6), np.float32), "s": np.array([4, 4])})
    assert "Reshape" in caught.value.because
    with pytest.raises(ModelError, match="cannot load"):
        float_session(b"no model")
    assert capfd.readouterr().err == ""
