"""Additive masks in front of a Softmax are found by their bands of values, and nothing else is."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.statistics.observe import Counter
from npuflow.statistics.statistics import ObservedStatistics, merged
from npuflow.tune.precision.masks import NOTHING, ZERO, masked

SHAPE = TensorType((1, 2, 4, 4))


def attention() -> Graph:
    """scores + mask -> reshape -> softmax."""
    flat = TensorType((1, 8, 4))
    kinds = {"scores": SHAPE, "mask": SHAPE, "sum": SHAPE, "flat": flat, "out": flat}
    values = {name: Value(name, kind) for name, kind in kinds.items()}
    nodes = (
        Node(OPS["add"](), ("scores", "mask"), ("sum",)),
        Node(OPS["reshape"](), ("sum",), ("flat",)),
        Node(OPS["softmax"](axis=-1), ("flat",), ("out",)),
    )
    return Graph(("scores", "mask"), ("out",), nodes, MappingProxyType(values), MappingProxyType({}))


def statistics(mask: float) -> ObservedStatistics:
    rng = np.random.default_rng(0)
    names = ("scores", "mask", "sum", "flat")
    counter, parts = Counter(names), []
    for i in range(3):
        scores = rng.normal(0, 4, SHAPE.shape).astype(np.float32)
        hidden = np.zeros(SHAPE.shape, np.float32)
        hidden[..., 2:] = mask
        added = scores + hidden
        parts.append((str(i), counter.observe([scores, hidden, added, added.reshape(1, 8, 4)])))
    found = merged(parts)
    assert found is not None
    return found


def test_a_mask_of_a_cache_is_below_any_score_by_what_the_table_of_exponentials_has_as_zero() -> None:
    """Also below scores that are a quarter lower than those that were seen."""
    known, graph = statistics(-10000.0), attention()
    found = masked(graph.replaced(state=(("out", "scores"),)), known)
    low, high = known["sum"].hi, known["scores"].hi
    assert found["sum"][0] <= 1.25 * known["scores"].lo - ZERO + 1
    assert found["mask"][0] + high <= found["sum"][0] + (high - low)


def test_a_mask_takes_no_part_of_the_range() -> None:
    known = statistics(-10000.0)
    found = masked(attention(), known)
    scores = known["scores"]
    assert set(found) == {"mask", "sum", "flat"}
    for name in ("sum", "flat"):
        low, high = found[name]
        assert high == known[name].hi
        assert scores.lo - NOTHING - 1 <= low < -NOTHING and low > -100
    low, high = found["mask"]
    assert high == 0.0 and low < -NOTHING
    # Whatever score it is added to, a masked place stays below all others by what exp() makes nothing of.
    assert low + scores.hi <= found["sum"][0] + (scores.hi - known["sum"].hi) + 1e-3


def test_scores_without_a_mask_keep_their_range() -> None:
    assert masked(attention(), statistics(0.0)) == {}
    assert masked(attention(), statistics(-6.0)) == {}


def shared() -> tuple[Graph, ObservedStatistics]:
    """Two layers whose scores differ in size add one mask, which was moved into its form."""
    flat, names = TensorType((1, 32)), ("small", "large", "mask", "low", "high", "a", "b")
    kinds = dict.fromkeys(names, SHAPE)
    values = {name: Value(name, kind) for name, kind in {**kinds, "row": flat}.items()}
    nodes = (
        Node(OPS["reshape"](shape=SHAPE.shape), ("row",), ("mask",)),
        Node(OPS["add"](), ("large", "mask"), ("high",)), Node(OPS["softmax"](axis=-1), ("high",), ("a",)),
        Node(OPS["add"](), ("small", "mask"), ("low",)), Node(OPS["softmax"](axis=-1), ("low",), ("b",)),
    )
    graph = Graph(
        ("small", "large", "row"), ("a", "b"), nodes, MappingProxyType(values), MappingProxyType({})
    )
    rng, counter = np.random.default_rng(0), Counter(("small", "large", "row", "mask", "low", "high"))
    small, large = (rng.normal(0, size, SHAPE.shape).astype(np.float32) for size in (1, 8))
    mask = np.zeros(SHAPE.shape, np.float32)
    mask[..., 2:] = -1e9
    row = mask.reshape(1, 32)
    known = merged([("0", counter.observe([small, large, row, mask, small + mask, large + mask]))])
    assert known is not None
    return graph, known


def test_what_a_mask_was_moved_from_is_clipped_as_it_is_for_all_layers_that_add_it() -> None:
    graph, known = shared()
    found = masked(graph, known)
    assert found["row"] == found["mask"]
    low, high = found["mask"]
    assert high == 0.0 and low > -200
    for name in ("high", "low"):                 # below all of a layer's scores, by what exp makes nothing of
        assert low + known[name].hi <= found[name][0] + 1e-3
