"""Moves whose elements lie between each other's are assembled in local memory and stored whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Memory, Target
from npuflow.ir.op import OPS, OpSample
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare
from npuflow.schedule.moves import assembled
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_tiles, quantised
from tests.networks.harness import machine

WIDE = Target(memory=Memory(local_bytes=1 << 14, local_align=16, burst=64, external_bandwidth=16.0))


def stacked(axis: int, *shapes: tuple[int, ...]) -> OpSample:
    rng = np.random.default_rng(1)
    return OpSample(OPS["concat"](axis), tuple(rng.normal(size=s).astype(np.float32) for s in shapes))


CASES = {
    "single elements": stacked(2, (1, 600, 1), (1, 600, 1), (1, 600, 1)),
    "several blocks": stacked(2, (90, 40, 3), (90, 40, 5)),
    "a dimension inside": stacked(1, (300, 2, 3), (300, 4, 3)),
}


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", CASES)
def test_every_element_is_in_its_place(name: str, bits: int) -> None:
    """Without hazards, as the reference has it, and as fast as bytes in and out, by clock and schedule."""
    sample, scheme = CASES[name], Quantize(activations=Activations(bits=bits))
    check_tiles(sample, WIDE, scheme)
    graph, _ = quantised(sample, WIDE.numerics, scheme)
    found = profile(generate(graph, plan_network(graph, machine(WIDE), WIDE.numerics), WIDE))
    size = sum(a.size for a in sample.inputs if a is not None) * bits // 8
    assert found.cycles < 2.2 * size / WIDE.memory.external_bandwidth + 1500
    assert compare(found)[0].error == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize(
    ("shape", "perm"), [((1, 61, 60, 3), (0, 3, 1, 2)), ((1, 3, 61, 60), (0, 2, 3, 1))]
)
def test_pictures_that_do_not_fit_change_their_layout_by_long_rows(
    shape: tuple[int, ...], perm: tuple[int, ...]
) -> None:
    """Cut between pixels, not between channels: as fast as bytes in and out."""
    rng = np.random.default_rng(1)
    sample = OpSample(OPS["transpose"](perm), (rng.normal(size=shape).astype(np.float32),))
    check_tiles(sample, WIDE, Quantize())
    graph, _ = quantised(sample, WIDE.numerics, Quantize())
    found = profile(generate(graph, plan_network(graph, machine(WIDE), WIDE.numerics), WIDE))
    assert found.cycles < 2.2 * np.prod(shape) / WIDE.memory.external_bandwidth + 2000
    assert compare(found)[0].error == pytest.approx(0, abs=0.001)


def test_only_what_fills_its_output_is_assembled() -> None:
    graph, _ = quantised(CASES["single elements"], WIDE.numerics, Quantize())
    node = next(n for n in graph.nodes if n.op.onnx == "Concat")
    moves = node.op.moves(graph.site(node))
    assert moves is not None
    found = assembled(moves, [1], machine(WIDE))
    assert found is not None and (found.blocks, found.block) == (600, 3)
    assert assembled(moves[:2], [1], machine(WIDE)) is None                  # a third is missing
    assert assembled([*moves[:2], moves[1]], [1], machine(WIDE)) is None     # or lies on another
    long = replace(moves[0], dims=(1, 1800), src_strides=(1800, 1), dst_strides=(1800, 1))
    assert assembled([long], [1], machine(WIDE)) is None
