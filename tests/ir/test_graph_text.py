"""The graph's text and invariants: everything prints, parses back to an equal graph, and faults are found."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import InputError, InternalError
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import QuantType, TensorType, Value
from npuflow.ir.verify import faults, verify

NAMES = st.text(min_size=1, max_size=12).filter(lambda s: s.strip() == s)
QUANTS = st.builds(
    QuantType, bits=st.integers(4, 16), signed=st.booleans(), scale=st.tuples(st.floats(1e-6, 1e3)),
    zero_point=st.just((0,)), narrow=st.booleans(),
)
FIELDS = st.recursive(
    st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=4,
)


def chain(names: list[str], quant: QuantType | None, field: Any) -> Graph:
    """input -> host -> relu, with a constant; the operators' fields are anything."""
    kind = TensorType((2, 3))
    weight, consts = constant(names[3], np.arange(6, dtype=np.float32).reshape(2, 3))
    host = OPS["host"]("Any", "some.domain", 3, (("a", field),), (), (kind,), "it's \"so\"\n")
    nodes = (
        Node(host, (names[0], "", names[3]), (names[1],), (names[1], "source")),
        Node(OPS["relu"](clip=(0.0, float("inf"))), (names[1],), (names[2],), (), (("m", 3), ("t", (1, 2)))),
    )
    values = {n: Value(n, kind, quant if n == names[2] else None) for n in names[:3]}
    values[names[3]] = weight
    return Graph((names[0],), (names[2],), nodes, MappingProxyType(values), MappingProxyType(consts))


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=4, max_size=4, unique=True), st.none() | QUANTS, FIELDS)
def test_text_round_trips(names: list[str], quant: QuantType | None, field: Any) -> None:
    graph = chain(names, quant, field)
    text = to_text(graph)
    again = from_text(text, graph.consts)
    assert again == graph and to_text(again) == text


GRAPH = chain(["x", "h", "y", "w"], None, 1)


def test_a_whole_graph_has_no_faults() -> None:
    assert verify(GRAPH) is GRAPH


def _values(**changes: Value) -> MappingProxyType[str, Value]:
    return MappingProxyType({**GRAPH.values, **changes})


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (replace(GRAPH, nodes=GRAPH.nodes[::-1]), "before it is produced"),
        (replace(GRAPH, outputs=("nope",)), "produced by nothing"),
        (replace(GRAPH, consts=MappingProxyType({})), "has no array"),
        (replace(GRAPH, nodes=(*GRAPH.nodes, GRAPH.nodes[0])), "defined twice"),
        (replace(GRAPH, values=_values(y=Value("y", TensorType((9,))))), "inferred"),
        (
            replace(GRAPH, values=_values(w=replace(GRAPH.values["w"], type=TensorType((3, 2))))),
            "declared (3, 2)",
        ),
        (
            replace(GRAPH, values=_values(y=Value("y", TensorType((2, 3)), QuantType(8, True, (0.0,))))),
            "scale",
        ),
        (
            replace(
                GRAPH, values=_values(y=Value("y", TensorType((2, 3)), QuantType(8, True, (1.0,), (300,))))
            ),
            "zero point",
        ),
        (
            replace(
                GRAPH, values=_values(y=Value("y", TensorType((2, 3)), QuantType(8, True, (1.0,), axis=1)))
            ),
            "1 scales",
        ),
        (replace(GRAPH, values=_values(z=Value("y", TensorType((2, 3))))), "filed under"),
        (replace(GRAPH, inputs=("x", "w")), "is a constant"),
    ],
)
def test_faults_are_found(graph: Graph, fault: str) -> None:
    assert any(fault in f for f in faults(graph)), list(faults(graph))
    with pytest.raises(InternalError, match="malformed"):
        verify(graph, "a test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a graph's text"),
        ("npuflow graph 1\ninput x float32[2]\n", "line 2"),
        ("npuflow graph 1\ninput x: float32[2]\ny: float32[2] = relu(x\n", "line 3"),
        ("npuflow graph 1\ninput x: float32[2]\ny: float32[2] = relu(x) wrong=1\n", "relu"),
        ("npuflow graph 1\ninput x: float32[2]\ny: float32[2] = nonesuch(x)\n", "nonesuch"),
        ("npuflow graph 1\ninput x: float32[2] and more\n", "should end"),
    ],
)
def test_faults_of_a_text_name_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_text(text)
