"""Single operators through PT2E, lowering and the runtime: what is delegated, what stays, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch", reason="the extra executorch is not installed")
pytest.importorskip("torchao", reason="the extra executorch is not installed")

import torch
from executorch.exir import to_edge_transform_and_lower

from npuflow.apps.executorch import NpuflowPartitioner, NpuflowQuantizer
from npuflow.apps.executorch import runtime as runtimes
from tests.executorch.networks import quantised

torch.manual_seed(0)
X, WORDS = torch.randn(6, 10), torch.tensor([[1, 0, 3], [2, 2, 5]])


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def lowered(
    module: torch.nn.Module, folder: Path, *sample: Any, flat: tuple[Any, ...] = ()
) -> tuple[NpuflowPartitioner, Any, Any]:
    """The partitioner, what the .pte gives of the sample, and what PT2E's module gives. `flat`: the sample
    without tuples in it."""
    quantizer = NpuflowQuantizer("edge-4t")
    program = quantised(module, quantizer, [sample])
    partitioner = NpuflowPartitioner(quantizer, samples=[sample], cache=folder)
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
    (got,) = runtimes.load(bytes(edge.to_executorch().buffer))(*(flat or sample))
    return partitioner, got, program.module()(*sample)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_constants_that_lowering_makes(cache: Path) -> None:
    """EXIR lifts the numbers of x + 1 into constants that no state dictionary had: samples run with them."""
    partitioner, got, want = lowered(Applied(lambda x: torch.log10(x.abs() + 1) * 10), cache, X)
    assert not partitioner.left_out
    assert torch.allclose(got, want, atol=0.2)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dim", [None, 1])
def test_positions_are_integers(dim: int | None, keep: bool, cache: Path) -> None:
    """ArgMax runs on the NPU; its integers are made on the program's border."""
    x = torch.arange(60.0).reshape(6, 10).flip(0)
    partitioner, got, want = lowered(Applied(lambda x: torch.argmax(x, dim, keep)), cache, x)
    assert not partitioner.left_out
    assert got.dtype == torch.int64 and torch.equal(got, want)


def test_equal_codes_have_one_place(cache: Path) -> None:
    """Numbers beyond the observed range have one code, and PyTorch's module takes the first of them, too."""
    quantizer = NpuflowQuantizer("edge-4t")
    program = quantised(Applied(lambda x: torch.argmax(x)), quantizer, [X])
    partitioner = NpuflowPartitioner(quantizer, samples=[(X,)], cache=cache)
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
    method = runtimes.load(bytes(edge.to_executorch().buffer))
    for x in (X * 5, X.flip(1) * 5, X.flip(0) * 9):
        assert method(x)[0] == program.module()(x) != torch.argmax(x)


def test_words_are_integers(cache: Path) -> None:
    partitioner, got, want = lowered(
        torch.nn.Sequential(torch.nn.Embedding(8, 6), torch.nn.Linear(6, 4)).eval(), cache, WORDS
    )
    assert not partitioner.left_out
    assert torch.allclose(got, want, atol=0.05)


def test_tuples_of_inputs(cache: Path) -> None:
    """x[i, j] = values: positions of several dimensions come as one tuple, and are turned on the border."""
    places, values = (torch.tensor([0, 2]), torch.tensor([1, 1])), torch.tensor([1.0, 2.0])
    put = Applied(lambda x, i, v: torch.index_put(x, list(i), v))
    partitioner, got, want = lowered(put, cache, X, places, values, flat=(X, *places, values))
    assert not partitioner.left_out
    assert torch.allclose(got, want, atol=0.05)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_a_threshold(value: float, cache: Path) -> None:
    partitioner, got, want = lowered(torch.nn.Threshold(0.5, value), cache, X)
    assert not partitioner.left_out
    assert torch.allclose(got, want, atol=0.05)


def test_a_cast_alone_stays(cache: Path) -> None:
    partitioner, got, want = lowered(Applied(lambda x: x.to(torch.int32)), cache, X * 10)
    assert [reason[:5] for reason in partitioner.left_out.values()] == ["Cast:"]
    assert torch.equal(got, want)


def test_quotients_that_are_rounded_down_stay(cache: Path) -> None:
    """Rounded to a code first, 3 could become 2.99, and 2."""
    x = torch.arange(-30.0, 30.0).reshape(6, 10)
    partitioner, got, want = lowered(Applied(lambda x: torch.floor_divide(x, 2)), cache, x)
    assert len(partitioner.left_out) == 1 and "to whole steps" in next(iter(partitioner.left_out.values()))
    assert torch.equal(got, want)


def test_floats_of_other_types_stay(cache: Path) -> None:
    partitioner, got, want = lowered(Applied(lambda x: torch.mean(x, dtype=torch.float64)), cache, X)
    (reason,) = partitioner.left_out.values()
    assert reason.endswith(" is float64, and floats of a program are float32")
    assert torch.equal(got, want)


def test_padding_that_wraps_around(cache: Path) -> None:
    """EXIR spells it in operators of its own that npuflow lacks; the convolution is npuflow's."""
    net = torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular").eval()
    partitioner, got, want = lowered(net, cache, torch.randn(1, 3, 8, 8))
    assert partitioner.left_out and not any("conv" in name for name in partitioner.left_out)
    assert torch.allclose(got, want, atol=0.05)
