"""Training: the same bytes however often it is stopped, masks that hold, losses against the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.base.errors import DataError, UsageError  # noqa: E402
from npuflow.torch import Pruner, PruningSchedule, Training, distillation_loss  # noqa: E402
from npuflow.torch.target_graph import source_name  # noqa: E402
from tests.torch.networks import prepared, small, tables  # noqa: E402


@pytest.fixture(scope="module")
def images() -> Any:
    torch.manual_seed(1)
    return torch.randn(64, 3, 8, 8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def training(images: Any, cache: Path, pattern: str = "", **options: Any) -> Training:
    teacher = small()
    network = prepared(teacher, images, tables(4, 4), cache)

    def loss(network: Any, x: Any, labels: Any) -> Any:
        with torch.no_grad():
            wanted = teacher(x)
        return distillation_loss(network(x), wanted, form="values")

    pruner = Pruner(network, pattern, schedule=PruningSchedule(1, 5), skip=("head",)) if pattern else None
    return Training(network, images, None, loss, 8, batch=16, rate=5e-3, pruner=pruner, **options)


def test_training_comes_closer_to_the_float_model(images: Any, cache: Path) -> None:
    run = training(images, cache)
    before = loss_of(run, images)
    run.steps = 30
    run.run()
    assert loss_of(run, images) < before and not run.network.training


def loss_of(run: Training, images: Any) -> float:
    with torch.no_grad():
        return float(run.loss(run.network.eval(), images, None))


def test_a_stopped_training_ends_with_the_same_bytes(images: Any, cache: Path, tmp_path: Path) -> None:
    whole = training(images, cache, "2:4")
    whole.run()
    path = tmp_path / "state.pt"
    training(images, cache, "2:4", checkpoint=path).run(until=5)
    resumed = training(images, cache, "2:4", checkpoint=path)
    assert resumed.step == 5
    resumed.run()
    assert resumed.losses == whole.losses
    ours, theirs = resumed.network.state_dict(), whole.network.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_file_that_is_no_state(images: Any, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="does not hold the state"):
        training(images, cache, checkpoint=path)


def test_zeros_come_by_and_by_and_stay(images: Any, cache: Path) -> None:
    run = training(images, cache, "2:4")
    shares = []
    while run.step < run.steps:
        run.one()
        assert run.pruner is not None
        shares.append(run.pruner.zeros())
    assert shares[0] == 0.0 and shares == sorted(shares) and shares[-1] == 0.5
    graph = run.network.integer_graph()
    found = [
        graph.const(n.inputs[1])
        for n in graph.nodes
        if len(n.inputs) > 1 and source_name(run.network.target.graph, n.inputs[1]) == "point.weight"
    ]
    (codes,) = found
    assert codes is not None and ((codes.reshape(8, 2, 4) != 0).sum(-1) <= 2).all() and np.any(codes)


def test_rows_outputs_and_masks_of_a_file(images: Any, cache: Path, tmp_path: Path) -> None:
    run = training(images, cache)
    network = run.network
    rows = Pruner(network, "rows", share=0.25, layers=("point",))
    rows.step(0)
    weight = network.constant("point.weight")
    assert ((weight == 0).reshape(8, -1).sum(1) >= 2).all() and rows.zeros() == 0.25
    Pruner(network, "outputs", share=0.5, layers=("point",)).step(0)
    assert int((network.constant("point.weight").reshape(8, -1) == 0).all(1).sum()) == 4
    keep = np.zeros((8, 8, 1, 1), np.bool_)
    keep[0] = True
    np.savez(tmp_path / "masks.npz", **{"point.weight": keep})
    Pruner(network, masks=tmp_path / "masks.npz").step(0)
    assert bool((network.constant("point.weight")[1:] == 0).all())
    with pytest.raises(DataError, match="fits no weight"):
        network.set_mask("point.weight", np.ones((2, 2)))


def test_what_a_pruner_refuses(images: Any, cache: Path) -> None:
    network = training(images, cache).network
    with pytest.raises(UsageError, match="is no pattern"):
        Pruner(network, "4")
    with pytest.raises(UsageError, match="one of them has to be given"):
        Pruner(network)


def test_distillation_loss() -> None:
    torch.manual_seed(0)
    own, teacher = torch.randn(8, 5, requires_grad=True), torch.randn(8, 5)
    assert float(distillation_loss(teacher, teacher, 3.0)) == pytest.approx(0.0, abs=1e-6)
    wanted = torch.nn.functional.kl_div(
        torch.log_softmax(own / 3, -1), torch.softmax(teacher / 3, -1), reduction="batchmean"
    )
    torch.testing.assert_close(distillation_loss(own, teacher, 3.0), 9 * wanted)
    both = distillation_loss((own, own), (teacher, own), form="values")
    torch.testing.assert_close(both, (own - teacher).square().mean() / teacher.square().mean())
