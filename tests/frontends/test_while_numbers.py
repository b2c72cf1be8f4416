"""WHILEs of TFLite that carry whole numbers, which depend on data, against LiteRT's values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiers import spread

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import border, loops
from npuflow.ir.text import from_text, to_text
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from tests.networks.while_numbers import (
    MOST,
    STEPS,
    WIDE,
    behind_each_other,
    decoder,
    drawn,
    looked_up,
    refused,
    repeated,
    samples,
    witness,
)
from tests.tiers import often

FORMS = [(dtype, alone, old) for dtype in ("int32", "int64") for alone in (False, True)
         for old in (False, True)]


def read(data: bytes, most: int | None = None) -> Graph:
    graph = verify(FRONTENDS["tflite"]().read(data, Bindings(max_steps=most)).graph, "reading")
    return rewrite(graph, careful=True).graph


def agrees(graph: Graph, data: bytes, count: int = 6) -> list[list[np.ndarray]]:
    """Whole numbers are LiteRT's, and floats within what other kernels add; LiteRT's values."""
    verify(from_text(to_text(graph), graph.consts), "read again")
    model, found = export_model(graph), []
    for x in samples(count):
        wanted = witness(data, x)
        for mine, theirs in zip(run(model, {graph.inputs[0]: x}), wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)
        found.append(wanted)
    return found


def ranges(graph: Graph) -> list[tuple[int, ...]]:
    """Of the whole numbers that are carried."""
    return [border(n)[1].whole for n in graph.nodes if n.op.border_of_loop == "carry" and border(n)[1].whole]


@pytest.mark.parametrize(("dtype", "alone", "old"), FORMS)
def test_a_decoder_of_a_number_of_steps(dtype: str, alone: bool, old: bool) -> None:
    """Its tokens are carried, read by the next step, and stacked; no host has a part of a step."""
    data = decoder(dtype=dtype, alone=alone, old=old).data()
    graph = read(data)
    assert [one.steps for one in loops(graph)] == [STEPS] and ranges(graph) == [(0, WIDE - 1)]
    assert {what for what, _ in place(graph, Target()).reasons()} <= {"Cast"}
    tokens = {tuple(rows.reshape(-1)) for _, _, rows in agrees(graph, data)}
    assert len(tokens) > 3 and max(len(set(row)) for row in tokens) > 3


@pytest.mark.parametrize(
    ("form", "most"), spread(FORMS, [MOST, 20]),
    ids=lambda one: "-".join(map(str, one)) if isinstance(one, tuple) else None,
)
def test_a_decoder_until_a_token_ends_it(form: tuple[str, bool, bool], most: int) -> None:
    """Rows behind the end are 0, and the token stays. The number of rows bounds the steps, too."""
    dtype, alone, old = form
    data = decoder(ending=True, dtype=dtype, alone=alone, old=old).data()
    graph = read(data, most)
    assert [one.steps for one in loops(graph)] == [MOST] and (0, WIDE - 1) in ranges(graph)
    ended = {int(np.count_nonzero(rows)) for _, _, rows in agrees(graph, data, 12)}
    assert len(ended) > 3


def test_few_steps_until_an_end_are_written_out() -> None:
    data = decoder(ending=True, old=True).data()
    graph = read(data, 3)
    assert not loops(graph)
    for x in samples():
        rows, found = witness(data, x)[2], run(export_model(graph), {graph.inputs[0]: x})[2]
        np.testing.assert_array_equal(found[:3], rows[:3])


@pytest.mark.parametrize("seed", often(range(60), 6))
def test_random_bodies(seed: int) -> None:
    one = drawn(seed)
    data = one.data()
    graph = read(data, one.bound)
    assert [loop.steps for loop in loops(graph)] == [one.steps]
    if one.bound is None:
        assert len(ranges(graph)) == len({*one.states} - {"h", "signed"})     # which no step reads
    agrees(graph, data, 3)


@pytest.mark.parametrize("kind", ["no range", "16 bits", "an input"])
def test_numbers_of_no_known_range_are_written_out(kind: str) -> None:
    """Where the number of steps is known, as all other numbers than counters were."""
    data = refused(kind).data()
    graph = read(data)
    assert not loops(graph)
    for x in samples():
        feeds = [x, *([np.array([3], np.int32)] if kind == "an input" else [])]
        found = run(export_model(graph), dict(zip(graph.inputs, feeds, strict=True)))
        for mine, theirs in zip(found, witness(data, *feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def test_only_the_loop_of_no_known_range_is_written_out() -> None:
    """Of two WHILEs."""
    for first, second in ((decoder(), refused("no range")), (refused("16 bits"), decoder())):
        data = behind_each_other(first, second)
        graph = read(data)
        assert [one.steps for one in loops(graph)] == [STEPS]
        agrees(graph, data, 2)


def test_a_decoder_in_the_body_of_another_while() -> None:
    data = repeated(decoder(), 5).data()
    graph = read(data)
    assert [one.steps for one in loops(graph)] == [STEPS] * 5
    agrees(graph, data, 2)


def test_tokens_that_a_layer_behind_the_loop_reads() -> None:
    data = looked_up(decoder())
    graph = read(data)
    assert [one.steps for one in loops(graph)] == [STEPS] and not place(graph, Target()).reasons()
    agrees(graph, data)


@pytest.mark.parametrize(("kind", "reason"), [
    ("no range", "it carries whole numbers of no known range"),
    ("16 bits", "it carries whole numbers that leave 16 bits"),
    ("an input", 'of int32 is carried and depends on data'),
    ("another type", 'the type of "k:first for last" changes from step to step'),
    ("another shape", 'the shape of "k:first for last" changes from step to step'),
])
def test_numbers_until_an_end_that_no_mask_can_hold_are_one_error(kind: str, reason: str) -> None:
    with pytest.raises(ModelError, match="1 operator of the TFLite model cannot be converted") as caught:
        read(refused(kind, ending=True).data(), MOST)
    (fault,) = caught.value.faults()
    assert fault.code == "NF-MODEL-066" and fault.where.node and reason in fault.because
    assert "a constant number of steps" in fault.hint
