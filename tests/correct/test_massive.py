"""Massive channels of a residual stream: the same function, codes that stay, and roots of mean squares whose
error is small beside a massive row and without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.grouped import WeightGroups
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.noise import decibels, energy
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, GroupedType
from npuflow.quantise.config import Activations, Quantize
from npuflow.tune.correct.massive import MassiveStream, carried, massive
from tests.networks.floats import Feed, Net, floats, integers, quantised

ROWS, WIDTH, FAR, SECOND = 6, 64, 7, 20
WIDE = Quantize(activations=Activations(bits=16))


class Blocks(Net):
    """Blocks of a decoder without attention, over values [rows, width]."""

    def __init__(self) -> None:
        super().__init__(0, ROWS, WIDTH)

    def norm(self, name: str, x: str) -> str:
        self.add(f"{name}.square", OPS["mul"](), x, x)
        self.add(f"{name}.mean", OPS["reducemean"](axes=(1,), keepdims=1), f"{name}.square")
        self.add(f"{name}.offset", OPS["add"](), f"{name}.mean", self.const(f"{name}.eps", 1e-5))
        self.add(f"{name}.root", OPS["sqrt"](), f"{name}.offset")
        y = self.add(f"{name}.quotient", OPS["div"](), x, f"{name}.root")
        gain = self.const(f"{name}.g", self.rng.uniform(0.2, 0.6, WIDTH))
        return self.add(f"{name}.scaled", OPS["mul"](), y, gain)

    def rows(self, massive: bool) -> Feed:
        """Rows as tokens have them: one channel reaches further in all of them. The first row is massive, or
        not."""
        x = self.rng.normal(0, 6.0, (ROWS, WIDTH)).astype(np.float32)
        x[:, FAR] *= 16.0
        if massive:
            x[0, FAR], x[0, SECOND] = 22_000.0, -1_700.0
        return {"x": x}


def normed() -> tuple[Blocks, Graph]:
    net = Blocks()
    net.add("y", OPS["relu"](), net.norm("n", "x"))
    net.add("z", OPS["neg"](), "n.scaled")
    return net, net.graph("y", "z")


def levels(graph: Graph, real: Graph, feeds: list[Feed], rows: slice) -> float:
    """dB of the norm's result on some rows, beside that of the numbers that its input's codes stand for."""
    made = quantised(graph, feeds, WIDE, room=1.1)
    quant = made.values["x:q"].quant
    assert quant is not None
    seen: list[Feed] = [{"x": decode(encode(f["x"], quant), quant)} for f in feeds]
    pairs = [(floats(real, f)["n.scaled"][rows], integers(made, f)["n.scaled"][rows]) for f in seen]
    want, found = (np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True))
    return decibels(energy(want), energy(found - want))


@pytest.mark.parametrize("far", [True, False], ids=["a massive row", "none"])
def test_a_root_mean_square_in_16_bits_is_close_on_every_row(far: bool) -> None:
    """By each row's own peak: 45 dB on ordinary rows beside a massive one, most of it the step of the stream
    itself, where squares of 16 bits leave nothing of them; 70 dB on the massive row and without one."""
    net, graph = normed()
    feeds = [net.rows(far) for _ in range(4)]
    found = {"x": MassiveStream(((FAR, 4),) if far else (), {"x": 22_000.0 if far else 300.0})}
    mended = carried(graph, {}, found).graph
    assert levels(mended, graph, feeds, slice(1, None)) > (45 if far else 70)
    assert levels(mended, graph, feeds, slice(0, 1)) > 70
    plain = levels(graph, graph, feeds, slice(1, None))
    assert plain < 0 if far else plain > 60


def decoder() -> tuple[Blocks, Graph]:
    """Two blocks; the first writes the massive channel."""
    net = Blocks()
    x = net.gemm("embedding", "x", WIDTH)
    for name in "ab":
        up = net.gemm(f"{name}.up", net.norm(f"{name}.norm", x), 32)
        down = net.gemm(f"{name}.down", net.add(f"{name}.act", OPS["relu"](), up), WIDTH)
        x = net.add(f"{name}.sum", OPS["add"](), x, down)
    last = net.add("last", OPS["slice"](starts=(ROWS - 1,), ends=(ROWS,), axes=(0,), steps=(1,)), x)
    net.gemm("head", net.norm("final", last), 5)
    return net, net.graph("head")


def planted(graph: Graph) -> Graph:
    """The bias of the first block's second product reaches far in one channel."""
    held = graph.const("a.down.b")
    assert held is not None
    held = held.copy()
    held[FAR] = 9_000.0
    value, stored = constant("a.down.b", held)
    return graph.replaced(values={**graph.values, "a.down.b": value}, consts={**graph.consts, **stored})


def test_a_channel_far_above_all_others_is_found_and_carried() -> None:
    net, graph = decoder()
    feeds = net.feeds(4)
    assert massive(graph, feeds) == {}
    far = planted(graph)
    (root, one), = massive(far, feeds).items()
    assert root == "embedding" and [c for c, _ in one.channels] == [FAR]
    assert one.peaks["a.sum"] == pytest.approx(9_000, rel=0.01)
    made = carried(far, {}, {root: one}).graph
    for feed in feeds:
        want, found = floats(far, feed), floats(made, feed)
        np.testing.assert_allclose(found["head"], want["head"], rtol=1e-4, atol=1e-5)
        assert np.abs(found["a.sum"]).max() < 600
        ordinary = np.arange(WIDTH) != FAR
        some = [one["b.sum"][:, ordinary] for one in (found, want)]
        np.testing.assert_allclose(*some, rtol=1e-4, atol=1e-4)


def test_a_massive_row_of_many_channels_is_found_and_its_squares_leave_something_to_the_others() -> None:
    """As a rotation of the stream leaves it: no channel is far above the others, and a row is."""
    net, graph = normed()
    feeds = [net.rows(False) for _ in range(4)]
    for feed in feeds:
        feed["x"][:, FAR] /= 16.0
    assert massive(graph, feeds) == {}
    for feed in feeds:
        feed["x"][0] *= 200.0
    found = massive(graph, feeds)
    assert found["x"].channels == ()
    made = carried(graph, {}, found)
    for feed in feeds:
        np.testing.assert_allclose(floats(made.graph, feed)["z"], floats(graph, feed)["z"], rtol=1e-5)
    assert levels(made.graph, graph, feeds, slice(1, None)) > 45
    assert levels(graph, graph, feeds, slice(1, None)) < 20


def test_a_quiet_row_beside_others_is_found_and_its_squares_are_more_than_a_few_steps() -> None:
    """As what a layer makes of the first token is, before it is normalised; a row of zeros is none."""
    net, graph = normed()
    feeds = [net.rows(False) for _ in range(4)]
    for feed in feeds:
        feed["x"][:, FAR] /= 16.0
        feed["x"][1] = 0.0
    assert massive(graph, feeds) == {}
    for feed in feeds:
        feed["x"][0] /= 40.0
    found = massive(graph, feeds)
    assert found["x"].channels == ()
    made = carried(graph, {}, found)
    for feed in feeds:
        np.testing.assert_allclose(floats(made.graph, feed)["z"], floats(graph, feed)["z"], rtol=1e-4)
    quiet, others = slice(0, 1), slice(2, None)
    assert levels(made.graph, graph, feeds, quiet) > 60 > 40 > levels(graph, graph, feeds, quiet)
    assert levels(made.graph, graph, feeds, others) > 70


def test_a_stream_whose_channels_are_mostly_silent_stays() -> None:
    net, graph = decoder()
    feeds = net.feeds(2)
    value, stored = constant("embedding.w", np.zeros_like(graph.const("embedding.w")))
    bias, more = constant("embedding.b", np.eye(1, WIDTH, FAR, dtype=np.float32)[0])
    silent = graph.replaced(
        values={**graph.values, "embedding.w": value, "embedding.b": bias},
        consts={**graph.consts, **stored, **more},
    )
    assert massive(silent, feeds) == {}


def test_stated_codes_stay_and_scales_of_rows_are_divided() -> None:
    net, graph = decoder()
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 16, (WIDTH, 32)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (WIDTH, 1)).astype(np.float16).astype(np.float32)
    groups = WeightGroups(4, False, 32, scales, minima=(-8 * scales).astype(np.float16).astype(np.float32))
    weight = groups.numbers(codes).astype(np.float32)
    graph = turned(planted(graph), weight)
    kind = GroupedType.of(groups, 0)
    found = massive(graph, net.feeds(2))
    done = carried(graph, {"b.down.w": kind}, found)
    made, stated = done.graph, done.stated
    power = 2.0 ** dict(next(iter(found.values())).channels)[FAR]
    now = made.const("b.down.w")
    assert now is not None and np.array_equal(encode(now, stated["b.down.w"]), codes)
    assert np.array_equal(now[FAR], weight[FAR] / power)
    assert np.array_equal(np.delete(now, FAR, 0), np.delete(weight, FAR, 0))


def turned(graph: Graph, weight: Array) -> Graph:
    """The second block's last product by another matrix [outputs, inputs]."""
    value, stored = constant("b.down.w", weight)
    nodes = [
        replace(n, op=n.op.with_(transB=1)) if n.outputs[0] == "b.down" else n for n in graph.nodes
    ]
    return graph.replaced(
        nodes=tuple(nodes), values={**graph.values, "b.down.w": value}, consts={**graph.consts, **stored}
    )
