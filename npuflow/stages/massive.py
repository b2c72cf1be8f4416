"""The float graph with massive channels of the residual stream at a fraction of their scale, in networks with
state."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.stage import Items, log, stage
from npuflow.quantise.config import floats_alone
from npuflow.stages.fit import FitSample
from npuflow.stages.parse import Parsed
from npuflow.stages.samples import feeds
from npuflow.stages.sequences import stateful
from npuflow.tune.correct.massive import carried
from npuflow.tune.correct.massive import massive as found_in

LOOKED = 32                               # samples: first steps of sequences and others by turns


@stage(
    refines="parse",
    when="sequences",
    wanted=stateful,
    unless=floats_alone,
    after=("checked", "pixels", "pruned", "ordered", "equalize"),
    cpu="native",
    memory="1GB",
    floats=True,
    minor=True,
)
def massive(graph: Parsed, fit: Items[FitSample]) -> Parsed:
    """Find channels that reach far more than all others, and carry them scaled down, exactly."""
    found = found_in(graph.graph, list(feeds(fit, graph.graph, LOOKED)))
    if not found:
        log("no channel of a residual stream is far above all others, and no row: nothing is changed")
        return graph
    for root, one in found.items():
        by = ", ".join(f"{channel} by {1 << power}" for channel, power in one.channels)
        done = f"divided are channels {by}" if by else "some rows are massive; no channel is divided"
        log(f"{root}: up to {max(one.peaks.values()):.4g}; {done}")
    made = carried(graph.graph, graph.stated, found)
    return replace(graph, graph=made.graph, stated=made.stated, massive=made.streams)
