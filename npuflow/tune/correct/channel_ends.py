"""The least and the greatest value of every channel of some values, over samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.onnx.export import session_model
from npuflow.run.walk import Feed, plain_session
from npuflow.tune.correct.groups import CHANNEL

Real = npt.NDArray[np.float64]


def channel_ends(graph: Graph, names: Sequence[str], feeds: Sequence[Feed]) -> dict[str, tuple[Real, Real]]:
    """By value id, [channels] each."""
    if not names:
        return {}
    session = plain_session(session_model(graph, list(names)))
    fed = [i.name for i in session.get_inputs()]
    sizes = {n: graph.type(n).shape[CHANNEL] for n in names}
    found = {n: (np.full(size, np.inf), np.full(size, -np.inf)) for n, size in sizes.items()}
    for feed in feeds:
        for name, array in zip(names, session.run(list(names), {k: feed[k] for k in fed}), strict=True):
            axes = tuple(d for d in range(array.ndim) if d != CHANNEL)
            low, high = found[name]
            found[name] = np.minimum(low, array.min(axes)), np.maximum(high, array.max(axes))
    return found
