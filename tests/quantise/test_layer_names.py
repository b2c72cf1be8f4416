"""Layers that a recipe names and a rewrite replaced: the fault says what became of them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from npuflow.base.errors import RecipeError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.place.names import LayerPatterns, answers, unknown_layers
from npuflow.place.place import op_name
from npuflow.rewrite.rewrite import Applied, rewrite

REPLACED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0, 0},
     float[2] v = {1, 1}> {
    c = Conv (x, w) n = BatchNormalization (c, s, b, m, v) g = Sigmoid (n) y = Mul (n, g) }"""


def rewritten_here() -> tuple[Graph, tuple[Applied, ...]]:
    reading = FRONTENDS["onnx"]().read(parser.parse_model(REPLACED).SerializeToString(), Bindings())
    done = rewrite(reading.graph)
    return done.graph, done.applied


@pytest.mark.parametrize(
    ("pattern", "rule", "now"),
    [
        ("batchnormalization", "fold_scale", "conv"),
        ("BatchNormalization", "fold_scale", "conv"),
        ("sigmoid", "recognise_gated", "silu"),
    ],
)
def test_a_layer_that_a_rewrite_replaced_is_said_with_what_it_became(
    pattern: str, rule: str, now: str
) -> None:
    graph, history = rewritten_here()
    with pytest.raises(RecipeError) as error:
        unknown_layers(graph, [("quantize.overrides[0].layers", (pattern,))], history)
    (fault,) = error.value.faults()
    node = next(node for node in graph.nodes if op_name(node) == now)
    assert fault.message == f'no layer is called "{pattern}"' and rule in fault.because
    assert f'is now part of {now} "{node.name}"' in fault.because
    assert fault.hint == f'layers = ["{node.name}"]'


def test_an_operator_in_other_letters_is_named() -> None:
    graph, history = rewritten_here()
    with pytest.raises(RecipeError) as error:
        unknown_layers(graph, [("quantize.overrides[0].layers", ("Conv",))], history)
    assert error.value.faults()[0].hint == '"conv"'


WORDS = st.text("ab*?[]/", min_size=1, max_size=4)


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, max_size=3), WORDS)
def test_names_answer_as_each_pattern_alone_does(patterns: list[str], names: list[str], op: str) -> None:
    alone = any(p == op or any(p == n or fnmatchcase(n, p) for n in names) for p in patterns)
    assert answers(patterns, names, op) == alone
    assert LayerPatterns.of(patterns).answer(names, op) == alone
