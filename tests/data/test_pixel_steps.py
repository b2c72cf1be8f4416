"""Steps of stored bytes: the axis of numbers per channel, and what is left of the steps
when the network normalises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.base.tables import Locator, read
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding, adapted, folded
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.input.data.steps import applied
from npuflow.input.pixels.pixels import Pixels
from tests.data.test_data import IMAGE, pictures, table

__all__ = ["pictures"]                    # the fixture


def normalised(array: np.ndarray, **numbers: object) -> np.ndarray:
    return applied(
        array, [{"normalize": {"scale": 1.0, "mean": [1.0, 2.0, 3.0], "std": [2.0, 4.0, 8.0], **numbers}}]
    )


def test_numbers_per_channel_go_along_their_axis() -> None:
    mean, std = np.array([1.0, 2.0, 3.0], np.float32), np.array([2.0, 4.0, 8.0], np.float32)
    last = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    first = np.ascontiguousarray(last.transpose(2, 0, 1))
    np.testing.assert_array_equal(normalised(last), (last - mean) / std)
    np.testing.assert_array_equal(normalised(first), ((last - mean) / std).transpose(2, 0, 1))
    np.testing.assert_array_equal(normalised(first, axis=0), normalised(first))
    np.testing.assert_array_equal(normalised(first[None], axis=1), normalised(first[None], axis=-3))
    square = np.zeros((3, 4, 3), np.uint8)
    np.testing.assert_array_equal(normalised(square, axis=0), normalised(square, axis=-1).transpose(2, 1, 0))
    with pytest.raises(DataError, match="3 numbers per channel") as caught:
        normalised(square)
    assert "two axes" in caught.value.because and "axis = 0" in caught.value.hint
    with pytest.raises(DataError, match="3 numbers per channel"):
        normalised(first, axis=1)
    _, faults = read(
        Data,
        {"source": "x", "steps": [{"normalize": {"mean": [1.0, 2.0, 3.0], "std": [1.0, 2.0]}}]},
        Locator(),
    )
    assert "3 numbers for mean and 2 for std" in str(faults[0])


def test_what_normalisation_does_not_fit_is_said_before_samples_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((50, 4, 8, 8), np.uint8))
    data = table(tmp_path, "x.npy", steps=[{"normalize": {"mean": [1.0, 2.0, 3.0], "std": [1.0]}}])
    with pytest.raises(DataError, match=r"3 numbers per channel and the data are \[4, 8, 8\]") as caught:
        found(data)
    assert caught.value.where.key == "data.steps" and "x.npy" in caught.value.because


def test_bytes_keep_their_steps_but_for_the_normalisation(tmp_path: Path, pictures: Path) -> None:
    numerics, folding = Numerics(), Folding()
    normalize = {"normalize": {"mean": [127.0], "std": [128.0]}}
    data = table(pictures, ".", steps=[{"resize": [8, 8]}, {"channels": "bgr"}, normalize])
    assert folded(data, folding, numerics) == {"": Pixels((1 / 128,), (-127 / 128,), None, 127)}
    one = next(iter(adapted(found(data), data, folding, numerics).values()))
    assert [next(k for k in step if k != "input") for step in one.detail["steps"]] == [
        "resize",
        "channels",
        "normalize",
    ]
    assert one.detail["steps"][-1]["normalize"] == {"scale": 1.0, "mean": (127.0,), "std": (1.0,)}
    ((_, sample),) = samples({"one": (one.files, one.detail)})
    fed = sample.feed({"x": IMAGE})["x"]
    ((_, plain),) = samples({"one": (one.files, next(iter(found(data).values())).detail)})
    np.testing.assert_allclose(fed / 128, plain.feed({"x": IMAGE})["x"], atol=1e-7)
    assert set(np.unique(fed + 127)) <= set(range(256))
    for steps in (
        [normalize, {"resize": [8, 8]}],                                     # geometry over real numbers
        # channels change places after their numbers
        [normalize, {"channels": "bgr"}],
        [{"dtype": "int8"}, normalize],                                      # no bytes any more
        [normalize, {"dtype": "float16"}],                                   # rounds
    ):
        assert folded(table(pictures, ".", steps=steps), folding, numerics) == {}
    assert folded(data, Folding(fold_normalize=False), numerics) == {}
    np.savez(tmp_path / "two.npz", image=np.zeros((4, 3, 8, 8), np.uint8), other=np.zeros((4, 2), np.float32))
    both = table(tmp_path, "two.npz", steps=[normalize])
    assert folded(both, folding, numerics) == {}                             # what both need is done for both
    alone = table(tmp_path, "two.npz", steps=[{"input": "image", **normalize}])
    assert set(folded(alone, folding, numerics)) == {"image"}


def test_several_normalisations_are_one_and_layouts_move_their_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 6, 5, 3), np.uint8))
    second = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
    steps = [{"normalize": {"scale": 1 / 255}}, {"normalize": second}, {"layout": "nchw"}]
    (one,) = folded(table(tmp_path, "x.npy", steps=steps), Folding(), Numerics()).values()
    assert one.axis == -3 and one.zero == round(0.4 * 255)
    np.testing.assert_allclose(one.scale, [1 / 255 / s for s in (0.2, 0.3, 0.4)])
    np.testing.assert_allclose(one.shift, [-2.5, -0.4 / 0.3, -0.75])
    (one,) = folded(table(tmp_path, "x.npy", steps=steps[:2]), Folding(), Numerics()).values()
    assert one.axis == -1
    symmetric = Numerics(activation_zero_point=False, unsigned_activations=False)
    (one,) = folded(table(tmp_path, "x.npy", steps=steps), Folding(), symmetric).values()
    assert one.zero == 128


def test_an_array_of_another_name_is_for_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", images=np.arange(192, dtype=np.uint8).reshape(1, 3, 8, 8))
    data = table(tmp_path, "one.npz", steps=[{"normalize": {"mean": [127.0], "std": [128.0]}}])
    listed = adapted(found(data), data, Folding(), Numerics())
    ((_, sample),) = samples({name: (one.files, one.detail) for name, one in listed.items()})
    np.testing.assert_array_equal(sample.feed({"x": IMAGE})["x"].reshape(-1), np.arange(192) - 127.0)
    other = table(tmp_path, "one.npz", steps=[{"input": "x", "normalize": {"mean": [127.0], "std": [128.0]}}])
    assert folded(other, Folding(), Numerics()) == {}


def test_axes_in_another_order_before_a_normalisation(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3, 6, 8), np.uint8))
    normalize = {"normalize": {"mean": [1.0, 2.0, 3.0], "std": [2.0, 4.0, 8.0]}}
    for steps, axis in (
        ([normalize], -3),
        ([{"transpose": [1, 2, 0]}, {"resize": [4, 4]}, normalize, {"layout": "nchw"}], -3),
    ):
        (one,) = folded(table(tmp_path, "x.npy", steps=steps), Folding(), Numerics()).values()
        assert one.axis == axis
    (one,) = folded(
        table(tmp_path, "x.npy", steps=[{"transpose": [1, 2, 0]}, normalize]), Folding(), Numerics()
    ).values()
    assert one.axis == -1
    assert (
        folded(table(tmp_path, "x.npy", steps=[normalize, {"transpose": [1, 2, 0]}]), Folding(), Numerics())
        == {}
    )
