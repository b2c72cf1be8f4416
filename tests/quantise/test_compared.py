"""Activations compared with constants: every code is on its side of the bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npuflow
from npuflow.ir.codes import decode
from npuflow.ir.types import Array, QuantType
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.testing.target import load, scheme
from tests.networks.onnx_text import model

TARGETS = Path(npuflow.__file__).parent / "targets"
COUNT = 256
ENDS = {"x": (-0.9, 0.9), "d": (-2.5, 2.5), "y": (-1.0, 1.0)}
SIXTHS = (np.arange(7, dtype=np.float32) - 3)[:, None] / 3  # between the rows of an image of six
UNEVEN = np.array([0.0131, -0.4003, 0.7777], np.float32)[:, None]


def compared(
    target: str, bounds: Array, difference: bool = False
) -> tuple[Array, Array, dict[str, QuantType]]:
    """The signs of x - bounds for every code of x, those of the program and real ones, and the types.
    `difference`: it is an output as well."""
    hardware, shape = load(TARGETS / f"{target}.toml"), f"float[{bounds.size},{COUNT}]"
    text = f"float[1,{COUNT}] x => {shape} y{f', {shape} d' if difference else ''}"
    body = "d = Sub(x, bounds) y = Sign(d)"
    graph = rewrite(graph_of(model(text, body, {"bounds": bounds}))).graph
    on_npu = place(graph, hardware).on_npu
    made = quantize_graph(graph, on_npu, ENDS, scheme(hardware), hardware.numerics).graph
    types = {k: v.quant for k, v in made.values.items() if v.quant is not None}
    x = types["x:q"]
    given = decode(np.arange(x.lo, x.lo + COUNT), x).astype(np.float32).reshape(1, COUNT)
    found = interpret(made, {"x": given}, hardware.numerics)["y"]
    return found, np.sign(given.astype(np.float64) - bounds), types


@pytest.mark.parametrize("target", ["edge-4t", "bm1684x", "zhouyi-x2", "edge-pow2", "ethos-u65-256"])
@pytest.mark.parametrize("bounds", [SIXTHS, UNEVEN], ids=["sixths", "uneven"])
def test_several_bounds(target: str, bounds: Array) -> None:
    """In 8 bits they had one scale, in which no code was any of them."""
    found, wanted, _ = compared(target, bounds)
    np.testing.assert_array_equal(np.rint(found), wanted)


@pytest.mark.parametrize("bound", [0.1, -0.3, 0.0131])
@pytest.mark.parametrize("target", ["edge-4t", "cv18xx", "edge-pow2"])
def test_one_bound(target: str, bound: float) -> None:
    """With multipliers of 8 bits the ratio of its own scale to that of the difference was 7 % off."""
    found, wanted, _ = compared(target, np.full((1, 1), bound, np.float32))
    np.testing.assert_array_equal(np.rint(found), wanted)


def test_one_bound_beyond_half_of_the_codes() -> None:
    """There it is the nearest code of the activation, which counts as the bound itself."""
    found, wanted, _ = compared("cv18xx", np.full((1, 1), 0.85, np.float32))
    (wrong,) = np.flatnonzero(np.rint(found) != wanted)
    assert found[0, wrong] == 0


def test_a_bound_that_its_code_holds_keeps_its_type() -> None:
    _, _, types = compared("edge-4t", np.full((1, 1), 0.3, np.float32))
    (bound,) = (q for k, q in types.items() if "bounds" in k)
    assert (bound.bits, round(bound.scale[0] * 255, 6)) == (8, 0.3)


def test_a_difference_that_others_read_keeps_the_type_of_its_range() -> None:
    _, _, types = compared("edge-4t", SIXTHS, difference=True)
    (bounds,) = (q for k, q in types.items() if "bounds" in k)
    assert bounds.scale[0] == pytest.approx(2 / 255) and types["d:q"].scale[0] == pytest.approx(5 / 255)
