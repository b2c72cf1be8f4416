"""A program that is far from its float model is told, with the place where the error begins."""

from __future__ import annotations

import pytest

from npuflow.engine.evaluate import Score
from npuflow.engine.fidelity import Fidelity
from npuflow.engine.report.page import render
from npuflow.engine.report.quality import judged
from npuflow.ir.graph import Graph, Node
from npuflow.ir.op import OPS
from npuflow.ir.types import TensorType, Value


@pytest.fixture
def chain() -> Graph:
    """x -> a -> b -> c -> y, and an output of its own after a."""
    names = ["x", "a", "b", "c", "y", "side"]
    values = {name: Value(name, TensorType((1, 4))) for name in names}
    relu = OPS["relu"]()
    wires = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "y"), ("a", "side")]
    nodes = tuple(Node(relu, (a,), (b,), (f"make_{b}",)) for a, b in wires)
    return Graph(("x",), ("y", "side"), nodes, values)


def of(**sqnr: float | None) -> dict[str, Fidelity]:
    return {name: Fidelity(one, 1.0, 0.0) for name, one in sqnr.items()}


def score(agreement: float | None = None, **sqnr: float) -> Score:
    return Score("sqnr", 24, {"sqnr_db": 0.0}, {"sqnr_db": 200.0}, sqnr, agreement, 1.0)


def test_a_good_program_is_not_warned_of(chain: Graph) -> None:
    assert judged(chain, of(a=40.0, b=38.0, c=30.0, y=12.0, side=None), {}) is None
    assert judged(chain, of(a=3.0, y=3.0), {}, score(0.95, y=11.0)) is None      # the evaluation knows better
    assert judged(chain, {}, {}, score(None, side=-200.0)) is None               # an output that is always 0


def test_a_poor_output_names_the_first_tensor_that_falls(chain: Graph) -> None:
    told = judged(chain, of(a=40.0, b=38.0, c=6.0, y=5.0, side=39.0), {})
    assert told is not None
    assert 'the SQNR of the output "y" is 5.0 dB (less than 10 dB)' in told.text
    assert '"c" (6.0 dB from 38.0 dB), made by "make_c"' in told.hint
    assert 'layers = ["make_c"], bits = 16' in told.hint and "choose-widths" in told.hint
    wide = judged(chain, of(a=40.0, b=38.0, c=6.0, y=5.0), {"c": 16})
    assert wide is not None and "16 bits already" in wide.hint and "float = true" in wide.hint


def test_only_what_leads_to_the_poor_output_is_named(chain: Graph) -> None:
    told = judged(chain, of(a=40.0, b=1.0, c=0.5, y=30.0, side=2.0), {})
    assert told is not None and '"side" (2.0 dB from 40.0 dB)' in told.hint


def test_an_error_that_grows_slowly_names_the_first_poor_tensor(chain: Graph) -> None:
    told = judged(chain, of(a=13.0, b=11.0, c=9.5, y=8.0), {})
    assert told is not None and '"c" (9.5 dB from 11.0 dB)' in told.hint


def test_answers_that_differ_are_told_whatever_the_decibels(chain: Graph) -> None:
    told = judged(chain, of(a=40.0, b=30.0, c=20.0, y=20.0), {}, score(0.1667, y=20.0))
    assert told is not None and "on 17 % of 24 samples" in told.text and "SQNR" not in told.text
    assert "no single tensor" in told.hint


def test_the_page_tells_warnings_and_fits_narrow_windows() -> None:
    page = render({"title": "npuflow report on x", "warnings": [{"message": "far </script>", "hint": "16 bits"}]})
    assert "<title>npuflow report on x</title>" in page and 'id="warnings"' in page and "far <\\/script>" in page
    assert "@media (max-width: 900px)" in page
    # A drawing that a narrow panel shrinks needs a box of its own, or its right end and its numbers are cut off.
    assert "svg { max-width: 100%; height: auto; }" in page and "viewBox: `-2 0 ${W + 4} ${H + 34}`, width: W" in page
