"""Rotated residual streams: the same outputs, the inverse folded into what reads them, or a reason."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.queries import kind
from npuflow.tune.correct.rotate import matrix_of, rotate
from tests.networks.floats import Net, floats

TOKENS, WIDTH = 5, 16


class Blocks(Net):
    """Blocks of a transformer without attention, over values [1, tokens, width]."""

    def __init__(self, mean: bool = True) -> None:
        super().__init__(0, 1, TOKENS, WIDTH)
        self.mean = mean

    def norm(self, name: str, x: str) -> str:
        rank2 = {"axes": (2,), "keepdims": 1}
        if self.mean:
            self.add(f"{name}.mean", OPS["reducemean"](**rank2), x)
            x = self.add(f"{name}.centred", OPS["sub"](), x, f"{name}.mean")
        self.add(f"{name}.square", OPS["mul"](), x, x)
        self.add(f"{name}.power", OPS["reducemean"](**rank2), f"{name}.square")
        self.add(f"{name}.offset", OPS["add"](), f"{name}.power", self.const(f"{name}.eps", 1e-3))
        self.add(f"{name}.root", OPS["sqrt"](), f"{name}.offset")
        y = self.add(f"{name}.quotient", OPS["div"](), x, f"{name}.root")
        factor = self.const(f"{name}.g", self.rng.normal(1, 0.4, WIDTH))
        y = self.add(f"{name}.scaled", OPS["mul"](), y, factor)
        if not self.mean:
            return y
        addend = self.const(f"{name}.b", self.rng.normal(size=WIDTH))
        return self.add(f"{name}.shifted", OPS["add"](), y, addend)

    def product(self, name: str, x: str, columns: int) -> str:
        rows = self.add(f"{name}.rows", OPS["reshape"]((TOKENS, self.values[x].type.shape[-1])), x)
        self.gemm(f"{name}.product", rows, columns)
        return self.add(name, OPS["reshape"]((1, TOKENS, columns)), f"{name}.product")

    def block(self, name: str, x: str) -> str:
        up = self.product(f"{name}.up", self.norm(f"{name}.norm", x), 24)
        self.add(f"{name}.act", OPS["relu"](), up)
        down = self.product(f"{name}.down", f"{name}.act", WIDTH)
        factor = self.const(f"{name}.l", self.rng.normal(size=WIDTH))
        down = self.add(f"{name}.gain", OPS["mul"](), down, factor)
        return self.add(f"{name}.sum", OPS["add"](), x, down)


def network(mean: bool) -> tuple[Blocks, Graph]:
    net = Blocks(mean)
    peaks = np.ones(WIDTH)
    peaks[3] = 40.0                                   # a channel that exceeds the others
    first = net.product("embedding", "x", WIDTH)
    first = net.add("positions", OPS["mul"](), first, net.const("peaks", peaks))
    last = net.block("b", net.block("a", first))
    net.product("head", net.norm("final", last), 4)
    return net, net.graph("head")


@pytest.mark.parametrize("mean", [True, False], ids=["layer norm", "rms norm"])
def test_outputs_stay_and_all_but_the_embedding_folds(mean: bool) -> None:
    net, graph = network(mean)
    done = rotate(graph)
    assert not done.obstacle and done.charged == ("positions",) and done.folded == 5
    for feed in net.feeds(3):
        want, found = floats(graph, feed), floats(done.graph, feed)
        np.testing.assert_allclose(found["head"], want["head"], rtol=1e-4, atol=1e-4)
        assert np.abs(found["a.sum"]).max() < 0.6 * np.abs(want["a.sum"]).max()
    kinds = [kind(node) for node in done.graph.nodes]
    assert kinds.count("matmul") == 1 and "sub" not in kinds
    assert len(kinds) < len(graph.nodes)


def test_rows_of_a_table_that_begin_the_stream_are_rotated_there() -> None:
    net = Net(0, TOKENS)                              # indices, whole numbers in float32
    blocks = Blocks(mean=False)
    blocks.values["x"] = net.values["x"]
    table = blocks.const("table", blocks.rng.normal(size=(1, 20, WIDTH)))
    rows = blocks.add("rows", OPS["lookup"](), table, "x")
    start = blocks.add("embedding", OPS["reshape"]((1, TOKENS, WIDTH)), rows)
    last = blocks.norm("final", blocks.block("a", start))
    blocks.product("head", last, 4)
    graph = blocks.graph("head")
    done = rotate(graph)
    assert not done.charged and [kind(node) for node in done.graph.nodes].count("matmul") == 0
    assert "table" not in done.graph.values
    for _ in range(3):
        feed = {"x": blocks.rng.integers(0, 20, TOKENS).astype(np.float32)}
        want, found = floats(graph, feed), floats(done.graph, feed)
        np.testing.assert_allclose(found["head"], want["head"], rtol=1e-4, atol=1e-4)


def test_a_reader_that_is_no_layer_gets_a_product_with_the_inverse() -> None:
    net = Blocks()
    last = net.block("a", net.product("embedding", "x", WIDTH))
    net.add("curve", OPS["relu"](), net.norm("final", last))
    graph = net.graph("curve")
    done = rotate(graph)
    assert done.charged == ("embedding", "final.quotient")
    for feed in net.feeds(2):
        np.testing.assert_allclose(
            floats(done.graph, feed)["curve"], floats(graph, feed)["curve"], rtol=1e-4, atol=1e-4
        )


def test_blocks_that_end_in_a_normalisation_are_refused() -> None:
    net = Blocks()
    x = net.product("embedding", "x", WIDTH)
    for name in "ab":
        down = net.product(f"{name}.down", x, WIDTH)
        net.add(f"{name}.sum", OPS["add"](), x, down)
        x = net.norm(f"{name}.norm", f"{name}.sum")
    graph = net.graph(net.product("head", x, 4))
    done = rotate(graph)
    assert done.graph is graph and "without a normalisation" in done.obstacle and "post-norm" in done.obstacle


def test_networks_without_normalisations_and_streams_that_leave_are_refused() -> None:
    net = Net(0, 1, 3, 4, 4)
    net.conv("a", "x", 8)
    assert "no LayerNorm or RMSNorm" in rotate(net.graph("a")).obstacle
    blocks = Blocks()
    last = blocks.block("a", blocks.product("embedding", "x", WIDTH))
    head = blocks.product("head", blocks.norm("final", last), 4)
    assert "is an output of the network" in rotate(blocks.graph(head, last)).obstacle


@pytest.mark.parametrize("order", [1, 2, 12, 20, 64, 384, 40, 7, 30])
def test_matrices_are_orthogonal_and_of_equal_numbers_where_there_are_such(order: int) -> None:
    made = matrix_of(order)
    np.testing.assert_allclose(made @ made.T, np.eye(order), atol=1e-12)
    if order not in (7, 30):
        np.testing.assert_allclose(np.abs(made), order**-0.5)
