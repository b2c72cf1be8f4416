"""Random graphs with layers in float and block types, mixed with integers, on targets that have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from npuflow.hw.target import FloatRate, Target
from npuflow.ir.forms import block_type
from npuflow.ir.graph import Graph
from npuflow.quantise.config import BLOCKS, Activations, Mode, Override, Quantize, Weights
from tests.networks.random_graphs import Subject, extended, grow
from tests.networks.random_operators import MAKERS, Array, Draw
from tests.networks.random_targets import fitting, scheme, target

TYPES: tuple[Mode, ...] = ("int", "bf16", "fp16", *BLOCKS)
LISTED = ("bfloat16", "float16", *BLOCKS)
SUMS = ("conv", "matmul", "gemm", "softmax", "reduction")  # what a long axis is summed by


class Long(Draw):
    """Tensors with room for an axis of several chunks and blocks."""

    largest = 1200


def subject(seed: int) -> Subject:
    """Every other graph begins with a sum over a long axis."""
    d = Long(seed) if seed % 2 else Draw(seed)
    graph = long(d) if seed % 2 else grow(d)
    feeds = [{i: d.arrays[i] for i in graph.inputs}]
    if d.chance(0.4):
        feeds.append({i: d.array(d.shape(i), 1.5) for i in graph.inputs})
    ranges = {k: (float(a.min()), float(a.max())) for k, a in d.arrays.items()}
    config, chip = typed(d, scheme(d), seed), listed(d, target(d))
    if config.mode != "int" and d.chance(0.3):
        feeds.append({i: odd(d, d.array(d.shape(i))) for i in graph.inputs})
    level = d.rng.choice((0, 0, 1, 2, 3, 3, 4, 5))
    return Subject(graph, tuple(feeds), ranges, fitting(config, chip.numerics), chip, level)


def long(d: Draw) -> Graph:
    """A sum over up to seventy terms, and operators behind it."""
    rank = d.rng.choice((2, 2, 3, 4, 4, 4))
    tail = [d.rng.randint(1, 5) for _ in range(rank - 2)]
    d.input((1 if tail else d.rng.randint(1, 4), d.rng.randint(2, 40 if tail else 70), *tail))
    firsts = [make for make in MAKERS if make.__name__ in SUMS]
    for _ in range(20):
        made = d.rng.choice(firsts)(d, d.inputs[0])
        if made is not None and made[0] is not None and d.add(*made):
            break
    return extended(d, d.rng.randint(2, 6))


def typed(d: Draw, config: Quantize, seed: int) -> Quantize:
    """The scheme with a type for the network, by the seed, and others for some of its layers."""
    mode = TYPES[seed // 2 % len(TYPES)]
    names = [n.name for n in d.nodes]
    own = [Override((name,), type=d.rng.choice(TYPES)) for name in names if d.chance(0.25)]
    overrides = (*(one for one in config.overrides if mode == "int" or one.float), *own)
    mixed = replace(config, mode=mode, overrides=overrides)
    if not mixed.integers and mode != "int":
        mixed = replace(mixed, weights=Weights(), activations=Activations())
    return mixed


def listed(d: Draw, chip: Target) -> Target:
    """The target with all types; in every third, local memory has room for tables of functions."""
    chunk = d.rng.choice((1, 2, 3, 4, 8, 16, 64))
    numerics = replace(chip.numerics, float_types=LISTED, float_chunk=chunk)
    rates = tuple(FloatRate(name, d.rng.choice((0.25, 0.5, 1.0))) for name in LISTED)
    memory = replace(chip.memory, local_bytes=1 << 18) if d.chance(0.35) else chip.memory
    return replace(chip, numerics=numerics, compute=replace(chip.compute, float_rates=rates), memory=memory)


def odd(d: Draw, array: Array) -> Array:
    """Numbers of very different sizes, subnormal ones, infinities and NaN among them."""
    how = d.numbers.random(array.shape)
    with np.errstate(over="ignore"):
        wide = (array * np.exp(d.numbers.normal(0, 20, array.shape))).astype(np.float32)
    found = np.where(how < 0.4, wide, array)
    for below, value in ((0.06, -0.0), (0.04, 3e-39), (0.02, np.inf), (0.01, -np.inf), (0.005, np.nan)):
        found = np.where(how < below, np.float32(value), found)
    return np.asarray(found, np.float32)


def reported(s: Subject, graph: Graph) -> Iterator[str]:
    """Of every node on the NPU its operator and type; the network's type."""
    yield f"mode {s.config.mode}"
    for node in graph.nodes:
        if node.is_integer:
            site = graph.site(node)
            yield f"{node.op.onnx} {block_type(site) or site.number or 'integer'}"
