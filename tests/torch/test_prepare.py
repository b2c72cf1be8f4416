"""Prepared networks: the program's integers in evaluation, the user's parameters in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.base.errors import ModelError, UsageError  # noqa: E402
from npuflow.torch import PreparedNetwork, prepare  # noqa: E402
from tests.torch.networks import Block, agreement, compiled_codes, prepared, small, tables  # noqa: E402

INPUTS = 200


@pytest.fixture(scope="module")
def images() -> Any:
    torch.manual_seed(1)
    return torch.randn(INPUTS, 3, 8, 8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def trained(network: PreparedNetwork, x: Any, steps: int = 3) -> PreparedNetwork:
    """A few steps, so that weights and scales are no longer those of the build."""
    network.train()
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], 5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        network(x[:32]).square().mean().backward()
        optimizer.step()
    return network.eval()


def judged(network: PreparedNetwork, given: Any, x: Any, folder: Path) -> dict[str, tuple[int, float]]:
    found = agreement(network.codes(x), compiled_codes(network, given, x, folder))
    layers = {n.outputs[0] for n in network.integer_graph().nodes if n.is_integer and not n.op.moves_data}
    assert layers <= set(found), layers - set(found)
    return found


@pytest.mark.parametrize(("weights", "activations"), [(8, 8), (3, 4), (2, 4)])
def test_evaluation_is_the_compiled_program(
    weights: int, activations: int, images: Any, cache: Path, tmp_path: Path
) -> None:
    given = tables(weights, activations)
    network = trained(prepared(small(), images, given, cache), images)
    for name, (off, equal) in judged(network, given, images, tmp_path).items():
        assert off <= 1 and equal >= 0.99, f"{name}: {off} codes, {equal:.4f} equal"


def test_a_transformer_block(cache: Path, tmp_path: Path) -> None:
    torch.manual_seed(2)
    x, given = torch.randn(INPUTS, 5, 16), tables()
    network = trained(prepared(Block().eval(), x, given, cache), x)
    for name, (off, equal) in judged(network, given, x, tmp_path).items():
        assert off <= 1 and equal >= 0.99, f"{name}: {off} codes, {equal:.4f} equal"


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "half_away", "truncate"])
def test_training_sees_the_targets_rounding(rounding: str, images: Any, cache: Path) -> None:
    """Real numbers of the training mode are those that the integers stand for: whole tensors, all layers."""
    target = {"extends": "edge-4t", "numerics": {"rounding": rounding}}
    network = prepared(small(), images, tables(4, 6, target), cache)
    network.freeze_batch_norms()
    with torch.no_grad():
        fake = network.train()(images)
        whole = network.eval()(images)
    quant = network.integer_graph().values["head:q"].quant
    assert quant is not None
    off = ((fake - whole) / quant.scale[0]).abs()
    assert off.max() <= 1.01 and (off < 0.01).float().mean() >= 0.99


def test_parameters_are_the_users(images: Any, cache: Path) -> None:
    net = small()
    network = prepared(net, images, tables(4, 4), cache)
    named = dict(network.named_parameters())
    assert {f"source.{name}" for name, _ in net.named_parameters()} <= set(named)
    network.train()(images[:8]).sum().backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for n, p in named.items() if n.endswith("weight")
    )
    assert all(p.grad is not None for p in named.values() if p.requires_grad)
    assert net.stem[0].weight.grad is None  # the module that was given is another


def test_scales_that_stay(images: Any, cache: Path) -> None:
    network = prepared(small(), images, tables(4, 4), cache, learn_scales=False)
    before = {n: p.detach().clone() for n, p in network.named_parameters() if n.endswith("change")}
    trained(network, images)
    assert all(torch.equal(p, before[n]) for n, p in network.named_parameters() if n in before)


def test_running_statistics_move_until_they_are_frozen(images: Any, cache: Path) -> None:
    network = prepared(small(), images, tables(), cache)
    own = network.source.stem[1]
    before = own.running_mean.clone(), own.running_var.clone()
    network.train()(images + 1.0)
    with torch.no_grad():
        y = network.source.stem[0](images + 1.0)
    wanted = 0.9 * before[0] + 0.1 * y.mean((0, 2, 3)), 0.9 * before[1] + 0.1 * y.var((0, 2, 3))
    torch.testing.assert_close(own.running_mean, wanted[0], atol=0.01, rtol=0.05)
    torch.testing.assert_close(own.running_var, wanted[1], atol=0.01, rtol=0.05)
    network.freeze_batch_norms()
    held = own.running_mean.clone()
    network(images - 1.0)
    assert torch.equal(own.running_mean, held)


def test_overrides_and_powers_of_two(images: Any, cache: Path, tmp_path: Path) -> None:
    target = {
        "extends": "edge-4t",
        "numerics": {"power_of_two": True, "multiplier_bits": 1, "shift_left_max": 16},
    }
    given = tables(4, 8, target)
    given["quantize"]["overrides"] = [{"layers": ["conv"], "bits": 6}, {"layers": ["head"], "weight_bits": 8}]
    network = trained(prepared(small(), images, given, cache), images)
    quants = [
        v.quant for v in network.integer_graph().values.values() if v.quant is not None and v.const is None
    ]
    assert {q.bits for q in quants} >= {6, 8}
    assert all(float(np.log2(q.scale[0])).is_integer() for q in quants)
    assert all(off <= 1 and equal >= 0.99 for off, equal in judged(network, given, images, tmp_path).values())


def test_what_cannot_be_prepared(images: Any, cache: Path) -> None:
    with pytest.raises(UsageError, match="names no target"):
        prepare(small(), {}, images, cache=cache)

    class Sorted(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.topk(x, 2)[0]

    with pytest.raises(ModelError, match="no form in PyTorch for topk"):
        prepared(Sorted(), torch.randn(16, 8), tables(), cache)


def test_networks_of_files(images: Any, cache: Path, tmp_path: Path) -> None:
    """A file has no module: its weights become parameters of their own."""
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(small(), (images[:1],)), path)
    network = prepared(path, images, tables(4, 8), cache)
    found = [n for n, p in network.named_parameters() if n.startswith("constants.") and p.requires_grad]
    assert len(found) == 8 and network.source is None
    assert network.train()(images[:4]).requires_grad
