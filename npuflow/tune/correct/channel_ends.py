"""The least and the greatest value of every channel of some values, over samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.run.floats import FloatRun
from npuflow.tune.correct.groups import CHANNEL
from npuflow.tune.walk import Feed

Real = npt.NDArray[np.float64]


def channel_ends(graph: Graph, names: Sequence[str], feeds: Sequence[Feed]) -> dict[str, tuple[Real, Real]]:
    """By value id, [channels] each."""
    if not names:
        return {}
    network = FloatRun.of(graph, names)
    sizes = {n: graph.type(n).shape[CHANNEL] for n in names}
    found = {n: (np.full(size, np.inf), np.full(size, -np.inf)) for n, size in sizes.items()}
    for feed in feeds:
        values = {**feed, **network.run(feed)}
        for name, array in ((name, values[name]) for name in names):
            axes = tuple(d for d in range(array.ndim) if d != CHANNEL)
            low, high = found[name]
            found[name] = np.minimum(low, array.min(axes)), np.maximum(high, array.max(axes))
    return found
