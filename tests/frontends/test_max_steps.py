"""Loops whose end depends on data, with a stated number of steps: what onnxruntime computes of the file."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.base.errors import ModelError, NpuflowError
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
from tests.frontends.test_loops import loop
from tests.networks.ending_loops import CASES, NAME, NESTED, REFUSED, SIZES, TRIPS, feed
from tests.tiers import spread

MOST = 12


def read(data: bytes, most: int | dict[str, int] | None = MOST) -> Graph:
    return verify(FRONTENDS["onnx"]().read(data, Bindings(max_steps=most)).graph, "reading")


def padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The rows of the steps that ran, and zeros behind them."""
    behind = shape[0] - len(array) if array.shape != shape else 0
    return np.concatenate([array, np.zeros((behind, *shape[1:]), array.dtype)]) if behind else array


@pytest.mark.parametrize(("name", "most"), spread(list(CASES), [MOST, 3]))
def test_results_of_several_ends(name: str, most: int) -> None:
    """More than three steps are a loop of the graph, fewer are written out."""
    graph = rewrite(read(CASES[name], most), careful=True).graph
    assert [one.steps for one in loops(graph)] == ([] if most == 3 else [8 if name == "counters" else MOST])
    verify(from_text(to_text(graph), graph.consts), "read again")
    model, seen = export_model(graph), set[int]()
    for size, trip in zip(SIZES, TRIPS, strict=True):
        given = feed(size, graph.inputs, trip)
        wanted = run(CASES[name], given)
        if len(wanted[-1]) > most:
            continue
        seen.add(len(wanted[-1]))
        for found, array in zip(run(model, given), wanted, strict=True):
            assert found.dtype == array.dtype
            np.testing.assert_allclose(found, padded(array, found.shape), 1e-5, 1e-6)
    assert len(seen) > 1


def test_an_end_that_is_not_reached_is_that_of_the_last_step() -> None:
    graph = read(CASES["plain"], 6)
    given = feed(SIZES[-1], graph.inputs, 0)
    _, rows = run(CASES["plain"], given)
    assert len(rows) > 6
    np.testing.assert_allclose(run(export_model(graph), given)[1], rows[:6], 1e-5)
    (ends,) = (n for n in graph.nodes if n.op.border_of_loop == "last" and border(n)[1].goes_on)
    assert run(export_model(graph, [ends.outputs[0]]), given)[0] == [1.0]


@pytest.mark.parametrize("name", NESTED)
def test_loops_around_and_in_it(name: str) -> None:
    """One of two loops stays; a branch of a known condition is taken."""
    data, steps = NESTED[name]
    graph = rewrite(read(data), careful=True).graph
    assert [one.steps for one in loops(graph)] == steps
    assert not place(graph, Target()).reasons()
    for size in SIZES[:3]:
        given = feed(size, graph.inputs, 0)
        for found, array in zip(run(export_model(graph), given), run(data, given), strict=True):
            np.testing.assert_allclose(found, padded(array, found.shape), 1e-5, 1e-6)


def test_without_a_number_it_stays_with_what_to_try() -> None:
    for data in (CASES["plain"], CASES["a trip count"]):
        (place_,) = place(rewrite(read(data, None)).graph, Target()).places
        assert place_.reason.endswith("[model] max_steps = N makes a loop of N steps of it")


def test_a_number_by_name() -> None:
    assert [one.steps for one in loops(read(CASES["plain"], {NAME: 7}))] == [7]


@pytest.mark.parametrize(
    ("data", "most", "said", "code", "hint"),
    [
        (CASES["plain"], {"serach": 7}, 'no loop "serach" has an end', "NF-MODEL-542", '"search"'),
        (loop(9), 7, "no loop of the model has an end that depends on data", "NF-MODEL-541", "leave"),
        (loop(9), {"again": 7}, "no loop of the model has an end", "NF-MODEL-541", "leave"),
    ],
)
def test_numbers_for_other_loops(
    data: bytes, most: int | dict[str, int], said: str, code: str, hint: str
) -> None:
    with pytest.raises(NpuflowError, match=said) as caught:
        read(data, most)
    (fault,) = caught.value.faults()
    assert isinstance(fault, ModelError) and fault.code == code and hint in fault.hint
    assert fault.where.key.startswith("model.max_steps")


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_mask_can_hold_is_the_reason(name: str) -> None:
    """It runs on the host as it did."""
    data, reason = REFUSED[name]
    graph = FRONTENDS["onnx"]().read(data, Bindings(max_steps=MOST)).graph
    assert [one.reason for one in place(rewrite(graph).graph, Target()).places] == [reason]
