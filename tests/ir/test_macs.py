"""Multiply-accumulates and elements of operators that only the host has, against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.elements import node_elements
from npuflow.ir.graph import Graph
from npuflow.ir.macs import CALL, graph_macs, macs_known, node_macs, pass_macs
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value

Shape = tuple[int, ...]
MS = "com.microsoft"


def net(
    kind: str, inputs: list[Shape | None], output: Shape, family: str = "", **attributes: object
) -> tuple[Graph, Node]:
    """One host node; inputs of None are absent."""
    names = tuple(f"i{k}" if shape is not None else "" for k, shape in enumerate(inputs))
    values = {n: Value(n, TensorType(s)) for n, s in zip(names, inputs, strict=True) if s is not None}
    values["y"] = Value("y", TensorType(output))
    op = OPS["host"](
        op_type=kind, family=family, attributes=tuple(attributes.items()), types=(TensorType(output),)
    )
    node = Node(op, names, ("y",), (f"/{kind}",))
    return Graph(tuple(n for n in names if n), ("y",), (node,), values, {}), node


@pytest.mark.parametrize(
    ("kind", "family", "inputs", "output", "attributes", "want"),
    [
        ("LSTM", "", [(7, 2, 5), (1, 12, 5), (1, 12, 3)], (7, 1, 2, 3), {}, 7 * 2 * (4 * 3 * 5 + 4 * 3 * 3)),
        (
            "LSTM",
            "",
            [(7, 2, 5), (2, 12, 5), (2, 12, 3)],
            (7, 2, 2, 3),
            {},
            2 * 7 * 2 * (4 * 3 * 5 + 4 * 3 * 3),
        ),
        (
            "GRU",
            "",
            [(2, 7, 5), (1, 9, 5), (1, 9, 3), None],
            (2, 7, 1, 3),
            {"layout": 1},
            14 * (3 * 3 * 5 + 3 * 3 * 3),
        ),
        ("RNN", "", [(4, 1, 5), (1, 3, 5), (1, 3, 3)], (4, 1, 1, 3), {}, 4 * (3 * 5 + 3 * 3)),
        ("Conv", "", [(1, 2, 6, 6, 6), (4, 2, 3, 3, 3)], (1, 4, 6, 6, 6), {}, 4 * 216 * 2 * 27),
        ("DeformConv", "", [(1, 2, 6, 6), (4, 2, 3, 3), (1, 18, 6, 6)], (1, 4, 6, 6), {}, 4 * 36 * 18),
        ("Einsum", "", [(3, 4), (4, 5)], (3, 5), {"equation": "ij,jk->ik"}, 3 * 4 * 5),
        (
            "Einsum",
            "",
            [(2, 6, 3, 4), (2, 6, 5, 4)],
            (2, 6, 3, 5),
            {"equation": "...id, ...jd -> ...ij"},
            12 * 3 * 4 * 5,
        ),
        ("Einsum", "", [(3, 4)], (4, 3), {"equation": "ij->ji"}, 0),
        (
            "Attention",
            "",
            [(1, 2, 8, 16), (1, 2, 10, 16), (1, 2, 10, 24)],
            (1, 2, 8, 24),
            {},
            2 * 8 * 10 * (16 + 24),
        ),
        (
            "Attention",
            "",
            [(1, 8, 32), (1, 10, 32), (1, 10, 32)],
            (1, 8, 32),
            {"q_num_heads": 2},
            8 * 10 * 64,
        ),
        ("MatMul", "", [(2, 3, 4), (4, 5)], (2, 3, 5), {}, 2 * 3 * 4 * 5),
        ("FusedMatMul", MS, [(4, 3), (4, 5)], (3, 5), {"transA": 1}, 3 * 4 * 5),
        ("FusedConv", MS, [(1, 2, 6, 6), (4, 2, 3, 3), (4,)], (1, 4, 6, 6), {}, 4 * 36 * 18),
        ("QGemm", MS, [(3, 4), (), (), (4, 5)], (3, 5), {}, 3 * 4 * 5),
        ("MatMulNBits", MS, [(3, 64), (5, 2, 16)], (3, 5), {"K": 64, "N": 5}, 3 * 64 * 5),
        ("Attention", MS, [(1, 8, 20), (20, 48)], (1, 8, 16), {"num_heads": 2}, 8 * 20 * 48 + 8 * 8 * 32),
        ("MultiHeadAttention", MS, [(1, 8, 32), (1, 10, 32), (1, 10, 32)], (1, 8, 32), {}, 8 * 10 * 64),
        (
            "GroupQueryAttention",
            MS,
            [(1, 1, 32), (1, 1, 16), (1, 1, 16), (1, 2, 9, 8)],
            (1, 1, 32),
            {},
            10 * 64,
        ),
        ("Softsign", "", [(3, 4)], (3, 4), {}, 0),
    ],
)
def test_counts_of_host_operators(
    kind: str,
    family: str,
    inputs: list[Shape | None],
    output: Shape,
    attributes: dict[str, object],
    want: int,
) -> None:
    graph, node = net(kind, inputs, output, family, **attributes)
    assert node_macs(graph, node) == graph_macs(graph) == want and macs_known(graph, node)


def test_an_einsum_is_counted_as_the_loop_over_all_its_indices() -> None:
    """Numpy's own count of multiplications and additions, two of which are a multiply-accumulate."""
    shapes = [(2, 3, 4), (2, 4, 5)]
    graph, node = net("Einsum", [*shapes], (2, 3, 5), equation="bij,bjk->bik")
    _, reported = np.einsum_path("bij,bjk->bik", *map(np.zeros, shapes), optimize=False)
    naive = float(next(line.split(":")[1] for line in reported.splitlines() if "Naive FLOP" in line))
    assert node_macs(graph, node) == naive / 2


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [("LSTM", [(-1, 1, 5), (1, 12, 5), (1, 12, 3)]), ("LSTM", [(7, 1, 5)]), ("Loop", [(3,)])],
)
def test_what_cannot_be_counted_is_known_to_be_so(kind: str, inputs: list[Shape | None]) -> None:
    graph, node = net(kind, inputs, (3,))
    assert node_macs(graph, node) == 0 and not macs_known(graph, node)


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "attributes", "want"),
    [
        ("Reshape", [(3, 4)], (12,), {}, 0),
        ("Transpose", [(3, 4)], (4, 3), {}, 12),
        ("Softsign", [(3, 4)], (3, 4), {}, 12),
        ("ReduceProd", [(3, 4)], (3, 1), {}, 12),
        ("Gather", [(1000, 4), (2,)], (2, 4), {}, 8),
        ("MaxPool", [(1, 2, 6, 6)], (1, 2, 4, 4), {"kernel_shape": (3, 3)}, 32 * 9),
        ("LSTM", [(7, 2, 5), (1, 12, 5), (1, 12, 3)], (7, 1, 2, 3), {}, 42),
        ("NonZero", [(3, 4)], (2, -1), {}, 0),
    ],
)
def test_elements(
    kind: str, inputs: list[Shape | None], output: Shape, attributes: dict[str, object], want: int
) -> None:
    graph, node = net(kind, inputs, output, **attributes)
    assert node_elements(graph, node) == want


def test_a_pass_of_small_nodes_takes_the_time_to_call_them() -> None:
    graph, _ = net("Softsign", [(3, 4)], (3, 4))
    assert graph_macs(graph) == 0 and pass_macs(graph) == CALL * len(graph.nodes) > 0
