"""The PT2E quantiser: a target's schemes, exceptions by layer, what is left in floats, with the reason."""

from __future__ import annotations

import logging
from math import frexp
from typing import Any

import pytest

pytest.importorskip("executorch", reason="the extra executorch is not installed")
pytest.importorskip("torchao", reason="the extra executorch is not installed")

import torch

from npuflow.apps.executorch import NpuflowQuantizer
from npuflow.base.errors import RecipeError, UsageError
from tests.executorch.networks import inputs, parted, quantised, small


def roundings(program: Any, kind: str) -> dict[str, tuple[Any, ...]]:
    """What the program's roundings state, by the node that they round."""
    return {
        node.args[0].name: node.args[1:]
        for node in program.graph.nodes
        if f"quantized_decomposed.{kind}." in str(node.target)
    }


def test_a_targets_schemes() -> None:
    program = quantised(small(), NpuflowQuantizer("edge-4t"), inputs(4, 1, 3, 8, 8))
    values = roundings(program, "quantize_per_tensor")
    # the convolution and its ReLU are one layer: it is rounded once
    assert [n for n in values if n.startswith(("x", "relu", "conv2d", "linear"))] == [
        "x", "relu", "conv2d_1", "linear"
    ]
    assert all(row[2:] == (-128, 127, torch.int8) for row in values.values())
    weights = roundings(program, "dequantize_per_channel")
    assert [row[2:] for row in weights.values()] == 3 * [(0, -127, 127, torch.int8)]
    # what moves numbers changes no scale
    assert len({values[name][:2] for name in ("hardswish", "getitem", "getitem_1", "cat")}) == 1


def test_exceptions_by_layer() -> None:
    tables = {"overrides": [{"layers": ["point"], "bits": 16}, {"layers": ["head"], "weight_per": "tensor"}]}
    program = quantised(small(), NpuflowQuantizer("edge-4t", quantize=tables), inputs(2, 1, 3, 8, 8))
    values = roundings(program, "quantize_per_tensor")
    assert values["conv2d_1"][2:] == (-32768, 32767, torch.int16)
    assert values["relu"][2:] == (-128, 127, torch.int8)
    assert len(roundings(program, "dequantize_per_channel")) == 2


def test_an_exception_that_names_no_layer() -> None:
    """It is in the report, as what is left in floats is."""
    layers = [["haed"], ["point", "hed.*"], ["no.*", "none"]]
    rules = {"overrides": [{"layers": one, "bits": 16} for one in layers]}
    quantizer = NpuflowQuantizer("edge-4t", quantize=rules)
    quantised(small(), quantizer, inputs(2, 1, 3, 8, 8))
    assert quantizer.unmatched == ("haed", "no.*, none")
    lines = quantizer.report().splitlines()
    assert lines[1:] == [f"  overrides: no layer answers to {one}" for one in quantizer.unmatched]


def test_powers_of_two() -> None:
    samples = inputs(4, 1, 3, 8, 8)
    program = quantised(small(), NpuflowQuantizer("edge-pow2"), samples)
    scales = [row[0] for row in roundings(program, "quantize_per_tensor").values()]
    assert scales and all(frexp(scale)[0] == 0.5 for scale in scales), scales
    plain = quantised(small(), NpuflowQuantizer("edge-4t"), samples).module()(samples[0])
    assert torch.allclose(program.module()(samples[0]), plain, atol=0.1)


def test_what_is_left_in_floats(caplog: pytest.LogCaptureFixture) -> None:
    quantizer = NpuflowQuantizer("edge-4t")
    with caplog.at_level(logging.WARNING, logger="npuflow.executorch"):
        program = quantised(parted(), quantizer, inputs(2, 1, 8))
    assert quantizer.left_out == {"asin": "no operator of npuflow: aten.asin.default"}
    assert quantizer.report().splitlines()[0] == "1 of 5 operators left in floats:"
    assert caplog.messages == [quantizer.report()]
    assert "asin" not in roundings(program, "quantize_per_tensor") or "add" in str(program.graph)


@pytest.mark.parametrize(("tables", "code"), [
    ({"quantize": {"activations": {"bits": 32}}}, "NF-"),
    ({"quantize": {"weights": {"symmetric": False}}}, "NF-QUANT-001"),
    ({"quantize": {"weight": {}}}, "NF-RECIPE"),
])
def test_schemes_that_are_none(tables: dict[str, Any], code: str) -> None:
    with pytest.raises(RecipeError) as caught:
        NpuflowQuantizer("edge-4t", **tables)
    assert any(one.code.startswith(code) for one in caught.value.faults())


def test_tables_of_a_build_that_have_no_place() -> None:
    with pytest.raises(UsageError, match=r"takes no tables \[model\] and \[data\]"):
        NpuflowQuantizer("edge-4t", data={"source": "random"})
