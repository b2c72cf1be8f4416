"""A program as a module: in place of the network, samples along the first axis, several inputs, state."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.base.errors import DataError  # noqa: E402
from npuflow.runner.runner import Runner  # noqa: E402
from npuflow.torch import Module  # noqa: E402
from tests.runner.programs import accumulating, feeds, split  # noqa: E402


def test_a_program_in_a_network() -> None:
    program, (sample,) = split(), feeds(1)
    network = torch.nn.Sequential(Module(program), torch.nn.Flatten(0), torch.nn.Linear(128, 3))
    x = torch.from_numpy(sample["x"])
    want = Runner(program).run(sample)["y"]
    np.testing.assert_array_equal(network[0](x).numpy(), want)
    np.testing.assert_array_equal(network[0](x=x.clone().requires_grad_()).numpy(), want)
    assert network(x).shape == (3,) and not network[0](x).requires_grad


def test_samples_and_several_ends() -> None:
    module = Module(accumulating(), batch=2)
    x, carried = torch.arange(15.0).reshape(5, 3), torch.ones(5, 3)
    for y, total in (module(x, carried), module(x, carried=carried), module(carried=carried, x=x)):
        assert torch.equal(y, 2 * (x + 1)) and torch.equal(total, x + 1)
    y, total = module(x[:1], carried[:1])
    assert y.shape == (1, 3) and torch.equal(total, x[:1] + 1)
    with pytest.raises(DataError, match="3 inputs are given by place, 2 are left"):
        module(x, x, x)
    with pytest.raises(DataError, match='no data for the input "carried"'):
        module(x[:1])


def test_state() -> None:
    module = Module(accumulating(), state={"total": "carried"})
    assert [float(module(torch.ones(1, 3))[0][0, 0]) for _ in range(3)] == [2, 4, 6]
