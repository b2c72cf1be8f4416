"""The float graph with key and value caches in codes of 8 bits, by head."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages.fit import FitSample
from npuflow.stages.parse import Parsed
from npuflow.stages.samples import feeds
from npuflow.stages.sequences import stateful
from npuflow.tune.correct.caches import BITS, cache_scales, narrowed, no_cache

LOOKED = 64                               # samples: first steps of sequences and others by turns


def as_wide(quantize: Quantize) -> str:
    """Why caches stay as they are, if they do."""
    return "" if quantize.cache else "the recipe has no [quantize] cache"


@stage(
    refines="parse",
    when="sequences",
    wanted=stateful,
    unless=as_wide,
    after=("checked", "pixels", "pruned", "ordered", "equalize", "massive"),
    cpu="native",
    memory="1GB",
    floats=True,
    minor=True,
)
def caches(graph: Parsed, fit: Items[FitSample], quantize: Quantize, numerics: Numerics) -> Parsed:
    """Find what keys and values reach, head by head, and state the codes of their caches."""
    scales = cache_scales(graph.graph, list(feeds(fit, graph.graph, LOOKED)), numerics.power_of_two)
    if not scales:
        raise no_cache(quantize.cache or BITS)
    made = narrowed(graph.graph, scales, quantize)
    for name, own in scales.items():
        log(f"{name}: scales of {', '.join(f'{s:.4g}' for s in own.scales)}")
    return replace(graph, graph=made.graph, caches=scales, narrow=made.types)
