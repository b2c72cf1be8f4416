"""Random graphs and schemes on every shipped target at every level: the simulator makes
the reference's every integer.

Targets, levels, shares of local memory and 4-bit weights go round by the seed, so that none is
drawn more often than another.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Override, Quantize
from npuflow.testing.target import load
from tests.networks.random_graphs import Subject, subject
from tests.networks.random_targets import fitting
from tests.sim.campaigns import bounded, campaign
from tests.tiers import tiered

FOLDER = Path(__file__).resolve().parents[2] / "npuflow" / "targets"
SHIPPED = {p.stem: load(p) for p in sorted(FOLDER.glob("*.toml"))}
# the networks are in integers
TARGETS = {name: target for name, target in SHIPPED.items() if target.numerics.integers}
LEVELS = (0, 1, 2, 3, 4, 5)
LOCAL = (0, 8192, 2048, 32768)            # bytes of local memory; 0: what the target has
SHARD = 180
EACH = 30                                 # seeds of every pair of target and level
ROUND = len(TARGETS) * len(LEVELS)
SEEDS = range(*(int(n) for n in os.environ.get("NPUFLOW_SHIPPED_FUZZ", f"0:{EACH * ROUND}").split(":")))


def drawn(seed: int) -> tuple[str, int, int, bool]:
    """(target, level, local bytes, whether weights have 4 bits where the target packs them)."""
    name = list(TARGETS)[seed % len(TARGETS)]
    turn, lap = seed // len(TARGETS), seed // ROUND
    return (
        name,
        LEVELS[turn % len(LEVELS)],
        LOCAL[lap % len(LOCAL)],
        (turn + lap + lap // len(LOCAL)) % 2 == 0,
    )


def within(config: Quantize, numerics: Numerics) -> Quantize:
    """The scheme with no width that the target does not have."""
    w, a = max(numerics.weight_bits), max(numerics.activation_bits)

    def fit(rule: Override) -> Override:
        narrow = {
            k: min(b, most)
            for k, most in (("bits", a), ("input_bits", a), ("weight_bits", w))
            if (b := getattr(rule, k))
        }
        return replace(rule, **narrow)

    weights = replace(config.weights, bits=min(config.weights.bits, w))
    activations = replace(config.activations, bits=min(config.activations.bits, a))
    constants = min(config.constants, a) if config.constants else None
    overrides = tuple(map(fit, config.overrides))
    return replace(config, weights=weights, activations=activations, overrides=overrides, constants=constants)


def case(seed: int) -> Subject:
    name, level, size, narrow = drawn(seed)
    one, target = subject(50_000 + seed), TARGETS[name]
    if size and size < target.memory.local_bytes:
        align = min(target.memory.local_align, 64)             # 4096 of the largest part would leave no slots
        target = replace(target, memory=replace(target.memory, local_bytes=size, local_align=align))
    config = within(fitting(one.config, target.numerics), target.numerics)
    if narrow and 4 in target.numerics.weight_bits:
        config = replace(config, weights=replace(config.weights, bits=4))
    return replace(one, config=config, target=target, level=level)


def reported(s: Subject, graph: Graph) -> Iterator[str]:
    yield s.target.name
    yield f"{s.target.name} at level {s.level}"
    if s.config.weights.bits == 4 and 4 in s.target.numerics.weight_bits:
        widths = [q.bits for v in graph.values.values() if v.const is not None and (q := v.quant) is not None]
        yield from ["int4"] * any(bits <= 4 for bits in widths)


def test_the_draw_is_even() -> None:
    """Of as many seeds as the slow suite and the campaign have, every target has 180, and every pair of a
    target and a level 30; sizes and 4 bits come with each of them."""
    count, levels = len(TARGETS), len(LEVELS)
    assert (count >= 14 and len(SEEDS) >= EACH * ROUND) or "NPUFLOW_SHIPPED_FUZZ" in os.environ
    draws = [drawn(seed) for seed in range(EACH * ROUND)]
    assert set(Counter(d[0] for d in draws).values()) == {EACH * levels}
    assert set(Counter(d[1] for d in draws).values()) == {EACH * count}
    assert set(Counter(d[:2] for d in draws).values()) == {EACH} and len({d[:2] for d in draws}) == ROUND
    assert len({(d[0], d[2]) for d in draws}) == 4 * count and len({(d[0], d[3]) for d in draws}) == 2 * count
    assert len({(d[1], d[2], d[3]) for d in draws}) == 8 * levels
    several = [n for n, t in TARGETS.items() if t.compute.cores > 1]
    narrow = [n for n, t in TARGETS.items() if 4 in t.numerics.weight_bits]
    assert len(several) >= 4 and len(narrow) >= 2


def test_every_target_once() -> None:
    found = campaign(range(len(TARGETS)), case, 3, reported)
    assert found["compared"] >= 7 and found["tensors"] > 20, found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", tiered(SEEDS[::SHARD], 2))
def test_random_graphs_on_shipped_targets(first: int) -> None:
    """NPUFLOW_SHIPPED_FUZZ=FIRST:END chooses a share of the seeds for one of several processes."""
    seeds = range(first, min(first + SHARD, SEEDS.stop))
    found = campaign(seeds, case, 3, reported)
    print(
        f"{len(seeds)} graphs from seed {first}: "
        f"{', '.join(f'{n} {name}' for name, n in sorted(found.items()))}"
    )
    bounded(found, len(seeds))
    if len(seeds) == SHARD:
        assert all(found[name] >= 6 for name in TARGETS) and all(found[f"level {n}"] >= 12 for n in LEVELS), (
            found
        )
        assert found["int4"] > 3 and found["several cores"] > 10, found
