"""Constants that come late: which weights the last result of a layer meets, and the bound by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from npuflow.ir.op import OPS
from npuflow.report.profile import profile
from npuflow.schedule.bounds import BoundedNetwork
from npuflow.schedule.late import LateConstants
from tests.networks.harness import build, machine
from tests.networks.small import Builder
from tests.schedule.test_bounds import PLAIN, bound, integers

SMALL_MEMORY = replace(
    PLAIN, memory=replace(PLAIN.memory, local_bytes=2048, external_bandwidth=2.0, burst=16)
)


def behind(make: Callable[[Builder, str], str], size: int = 6) -> int:
    """Weight bytes that the last result of a first layer meets."""
    b = Builder()
    first = b.conv(b.input("x", (1, 4, size, size)), 8, 1)
    graph = integers(b, (make(b, first),), PLAIN)
    net = BoundedNetwork(graph, machine(PLAIN), PLAIN.numerics)
    late = LateConstants(graph, net.parts[0], net.moving, net.space, net.needed, net.packed_bytes)
    return late.behind(net.parts[0][0])


def flat(b: Builder, x: str) -> str:
    wide = b.add(OPS["reshape"]((1, 12 * 36)), b.conv(x, 12, 1))
    return b.add(OPS["gemm"](transB=1), wide, b.const((10, 12 * 36), 0.1), b.const((10,), 0.1))


def joined(b: Builder, x: str) -> str:
    both = b.add(OPS["concat"](1), b.conv(x, 8, 1), b.conv(x, 8, 3))
    return b.conv(both, 4, 1)


def shuffled(b: Builder, x: str) -> str:
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    return b.conv(b.add(OPS["gather"](order, (8,), 1), b.conv(x, 8, 1)), 4, 1)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        # one channel of eight
        (lambda b, x: b.conv(x, 16, 1), 16 * 1),
        # then all of sixteen
        (lambda b, x: b.conv(b.conv(x, 16, 1), 4, 1), 16 * 1 + 4 * 16),
        # in a corner a window meets it with four of nine taps
        (lambda b, x: b.conv(b.conv(x, 16, 1), 4, 3), 16 * 1 + 4 * 16 * 4),
        # two places beside each other meet all
        (lambda b, x: b.conv(b.conv(b.conv(x, 8, 1), 8, 3), 4, 3), 8 + 8 * 8 * 4 + 4 * 8 * 9),
        # a window with a stride of two over an even number of places: the last one is met by one tap
        (lambda b, x: b.conv(b.conv(x, 8, 1), 4, 3, 2), 8 + 4 * 8 * 1),
        # a channel of its own: its nine weights, of which four
        (lambda b, x: b.conv(b.conv(x, 8, 3, depthwise=True), 4, 1), 4 + 4),
        # all channels of one place of 36
        (flat, 12 + 10 * 12),
        # the mean of all places
        (lambda b, x: b.conv(b.add(OPS["globalaveragepool"](), b.conv(x, 8, 1)), 4, 1), 8 + 32),
        (joined, 8 + 8 * 4 + 4 * 16),
        (shuffled, 8 + 4 * 8),
        # the sum of a result and what depends on it
        (lambda b, x: b.conv(b.add(OPS["add"](), x, b.conv(x, 8, 1)), 4, 1), 8 + 4 * 8),
    ],
)
def test_weights_behind_the_last_result(make: Callable[[Builder, str], str], wanted: int) -> None:
    assert behind(make) == wanted


def pyramid(b: Builder) -> str:
    """Much work in front, many weights behind."""
    x = b.conv(b.input("x", (1, 4, 24, 24)), 8, 3)
    for _ in range(2):
        x = b.conv(x, 8, 3)
    x = b.add(OPS["reshape"]((1, 8)), b.add(OPS["globalaveragepool"](), x))
    for _ in range(3):
        size = b.arrays[x].shape[1]
        x = b.add(OPS["gemm"](transB=1), x, b.const((96, size), 0.1), b.const((96,), 0.1))
    return x


def test_work_and_weights_that_cannot_overlap_add_up() -> None:
    b = Builder()
    graph = integers(b, (pyramid(b),), SMALL_MEMORY)
    found, roomy = bound(graph, SMALL_MEMORY), bound(graph, PLAIN)
    assert found.binds == "weights" and roomy.late == 0.0
    assert found.late > 1.1 * max(found.compute, found.traffic, found.chain)
    assert found.late <= profile(build(graph, SMALL_MEMORY)).cycles


def test_what_the_caller_gets_to_see_is_no_passage() -> None:
    """Results that are outputs themselves, and branches of which one may be last."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 6, 6)), 4, 1)
    left, right = b.conv(x, 4, 1), b.conv(x, 4, 3)
    y = b.conv(b.add(OPS["add"](), left, right), 4, 1)
    for outputs in ((y,), (left, y)):
        graph = integers(b, outputs, PLAIN)
        net = BoundedNetwork(graph, machine(PLAIN), PLAIN.numerics)
        late = LateConstants(graph, net.parts[0], net.moving, net.space, net.needed, net.packed_bytes)
        first, ends = net.parts[0][0], [graph.nodes[n].op.onnx for n in late.through]
        assert ends == ["Add", "Conv"]
        assert all((first in before) == (outputs == (y,)) for before in late.through.values())


def test_weights_behind_a_layer_are_counted_once() -> None:
    b = Builder()
    x = b.conv(b.conv(b.conv(b.input("x", (1, 4, 6, 6)), 8, 1), 4, 3), 4, 1)
    graph = integers(b, (x,), PLAIN)
    net = BoundedNetwork(graph, machine(PLAIN), PLAIN.numerics)
    late = LateConstants(graph, net.parts[0], net.moving, net.space, net.needed, net.packed_bytes)
    for k, number in enumerate(late.nodes):
        behind = {d for n in late.nodes[k + 1 :] for d, _ in late.weights(n)}
        assert late.most(number) == sum(net.packed_bytes[d] for d in behind)
    assert late.most(late.nodes[0]) > late.most(late.nodes[-1]) == 0
