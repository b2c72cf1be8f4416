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
