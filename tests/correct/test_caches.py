"""Caches of 8 bits: found in every family, rounded once with a scale for each head, and the same function in
floats."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize
from npuflow.run.floats import FloatRun
from npuflow.run.state import zeros
from npuflow.tune.correct.caches import BITS, FLAG, HeadScales, cache_scales, growing_caches, narrowed
from tests.checkpoints.running import FAMILIES, Running
from tests.networks.floats import Feed
from tests.tiers import spread

CONTEXT = 16
NAMES = sorted(p.name for p in FAMILIES.iterdir() if (p / "config.json").exists())


def steps(graph: Graph, count: int) -> list[Feed]:
    """Tokens one after another, with the state before each."""
    run, held, found = FloatRun.of(graph, graph.outputs), zeros(graph), list[Feed]()
    for token in np.random.default_rng(3).integers(3, 80, count):
        found.append({**held, "tokens": np.array([[token]])})
        made = run.run(found[-1])
        held = {given: made[output] for output, given in graph.state}
    return found


@pytest.mark.parametrize(("name", "chunk"), spread(NAMES, [1, 4]))
def test_keys_and_values_of_every_layer_are_caches(name: str, chunk: int) -> None:
    graph, _ = Running(FAMILIES / name, context=CONTEXT).graph(chunk)
    wanted = {given for _, given in graph.state if given.startswith("cache.")}
    assert {one.given for one in growing_caches(graph)} == wanted


def test_a_state_that_is_no_cache_is_none() -> None:
    graph, _ = Running(FAMILIES / "llama", context=CONTEXT).graph(1)
    assert not list(growing_caches(graph.replaced(state=(("position:next", "position"),))))


def test_every_head_has_the_scale_of_its_own_largest_number() -> None:
    graph, _ = Running(FAMILIES / "llama", context=CONTEXT).graph(1)
    feeds = steps(graph, 6)
    scales = cache_scales(graph, feeds, power_of_two=False)
    last = FloatRun.of(graph, graph.outputs).run(feeds[-1])
    for made, given in graph.state:
        if given.startswith("cache."):
            reach = np.abs(last[made]).max((0, 2, 3))
            assert len(set(scales[given].scales)) == len(reach) > 1
            assert np.allclose(scales[given].scales, reach / FLAG.hi, rtol=1e-6)
    assert all(np.log2(s) % 1 == 0 for own in cache_scales(graph, feeds, True).values() for s in own.scales)


@pytest.mark.parametrize("scheme", [Quantize(), Quantize(mode="bf16")], ids=["integers", "floats"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_in_floats_nothing_changes(chunk: int, scheme: Quantize) -> None:
    graph, run = Running(FAMILIES / "llama", context=CONTEXT).graph(chunk)
    made = narrowed(graph, {one.given: HeadScales((0.1, 0.2), 3.0) for one in growing_caches(graph)}, scheme)
    feed = {**zeros(graph), "tokens": np.arange(chunk)[None] + 5}
    wanted, found = run.run(feed), FloatRun.of(made.graph, graph.outputs).run(feed)
    assert all(np.array_equal(wanted[name], found[name]) for name in graph.outputs)
    cached = {name: quant for name, quant in made.types.items() if quant.bits == BITS and quant != FLAG}
    assert {(quant.axis, quant.scale) for quant in cached.values()} == {(1, (0.1, 0.2))}
    assert {given for _, given in graph.state} - {"position"} <= set(cached)


def test_heads_of_integers_have_one_multiplier() -> None:
    """Queries by the inverse of what keys have, sums by what values have, in 16 bits."""
    graph, _ = Running(FAMILIES / "llama", context=CONTEXT).graph(1)
    own = HeadScales((0.1, 0.25), 3.0)
    types = narrowed(graph, {one.given: own for one in growing_caches(graph)}, Quantize()).types
    queries, sums = types["cache.0.key:queries"], types["cache.1.value:sums"]
    assert queries.bits == sums.bits == 16
    assert np.ptp(np.multiply(queries.scale, own.scales)) < 1e-12
    assert np.ptp(np.divide(sums.scale, own.scales)) < 1e-12
    assert 3.0 < queries.hi * queries.scale[0] * own.scales[0] < 8.0
    assert sums.lo * sums.scale[0] == -128 * own.scales[0]
