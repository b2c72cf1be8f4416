"""Samples joined with outputs of other components: rows of one position, left-out ones, labels, faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.base.tables import Location, read
from npuflow.input.data.config import Data, InputSample
from npuflow.input.data.joined import with_places
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.ir.types import TensorType


def handed_on(path: Path, positions: list[int], count: int, labels: list[object] | None = None) -> Path:
    """A file of outputs whose every value is its sample's position."""
    rows = [np.full((1, 2), at, np.float32) for at in positions]
    places = [(at, count) for at in positions]
    np.savez(path, **with_places({"h": np.asarray(rows)}, places, labels or [None] * len(rows)))  # type: ignore[arg-type]
    return path


def data(folder: Path, **table: object) -> Data:
    made, faults = read(Data, table)
    assert made is not None, faults
    beside = tuple(type(one)(Location(str(one.source), folder), one.arrays) for one in made.beside)
    return Data(**{**vars(made), "source": Location(str(made.source), folder), "beside": beside})


def fed(table: Data, kinds: dict[str, TensorType]) -> dict[str, dict[str, np.ndarray]]:
    listed = found(table)
    read_ones: dict[str, InputSample] = dict(samples({n: (o.files, o.detail) for n, o in listed.items()}))
    return {name: one.feed(kinds) for name, one in read_ones.items()}


KINDS = {"image": TensorType((1, 3), "float32"), "memory": TensorType((1, 2), "float32")}


def test_rows_of_one_position_meet_and_missing_ones_are_left_out(tmp_path: Path) -> None:
    """Samples without a name are of the one input that nothing else feeds; steps are theirs alone."""
    np.save(tmp_path / "x.npy", np.repeat(np.arange(6, dtype=np.uint8)[:, None], 3, 1))
    handed_on(tmp_path / "o.npz", [5, 0, 3], 6)
    beside = [{"source": "o.npz", "arrays": {"memory": "h"}}]
    steps = [{"normalize": {"mean": [1.0], "std": [2.0]}}]
    table = data(tmp_path, source="x.npy", beside=beside, steps=steps)
    made = fed(table, KINDS)
    assert list(made) == ["x.npy#0", "x.npy#3", "x.npy#5"]
    for name, one in made.items():
        at = int(name[-1])
        np.testing.assert_array_equal(one["memory"], np.full((1, 2), at))
        np.testing.assert_allclose(one["image"], np.full((1, 3), (at - 1) / 2))
    assert len(found(data(tmp_path, source="x.npy", beside=beside, count=2))) == 2


def test_outputs_alone_are_samples_with_the_labels_of_the_first(tmp_path: Path) -> None:
    handed_on(tmp_path / "one.npz", [1, 2, 4], 5, [7, 8, 9])
    handed_on(tmp_path / "two.npz", [4, 1], 5)
    table = data(tmp_path, source="one.npz", arrays={"image": "h"},
                 beside=[{"source": "two.npz", "arrays": {"memory": "h"}}])
    listed = found(table)
    assert [one.label for one in listed.values()] == [7, 9]
    assert [one.place for one in listed.values()] == [(1, 5), (4, 5)]
    kinds = {"image": TensorType((1, 2), "float32"), "memory": TensorType((1, 2), "float32")}
    for one, at in zip(fed(table, kinds).values(), (1, 4), strict=True):
        assert (one["image"] == at).all() and (one["memory"] == at).all()


def test_files_that_do_not_belong_together_are_errors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    np.savez(tmp_path / "plain.npz", h=np.zeros((4, 2)))
    handed_on(tmp_path / "o.npz", [0, 1], 5)
    handed_on(tmp_path / "apart.npz", [0, 1], 5)
    handed_on(tmp_path / "other.npz", [2, 3], 5)

    def fault(source: str, other: str) -> DataError:
        beside = [{"source": other, "arrays": {"memory": "h"}}]
        arrays = {} if source.endswith(".npy") else {"image": "h"}
        with pytest.raises(DataError) as caught:
            found(data(tmp_path, source=source, arrays=arrays, beside=beside))
        return caught.value

    assert fault("x.npy", "none.npz").code == "NF-DATA-281"
    assert fault("x.npy", "plain.npz").code == "NF-DATA-282"
    lengths = fault("x.npy", "o.npz")
    assert lengths.code == "NF-DATA-283" and "4 samples" in lengths.message and "has 5" in lengths.message
    assert fault("o.npz", "other.npz").code == "NF-DATA-284"
    with pytest.raises(DataError, match="labels of this kind"):
        with_places({"h": np.zeros((1, 1))}, [(0, 1)], [{"box": 1}])
