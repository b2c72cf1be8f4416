"""Outputs of several samples as one set of arrays."""

from __future__ import annotations

import numpy as np

from npuflow.runner.ports import joined


def test_outputs_of_one_shape_are_joined_and_others_stay_apart() -> None:
    samples = [{"y": np.full((1, 3), i), "boxes": np.zeros((2 + i, 6)), "n": np.float32(i)} for i in range(2)]
    found = joined(samples)
    assert {name: array.shape for name, array in found.items()} == {
        "y": (2, 3), "boxes[0]": (2, 6), "boxes[1]": (3, 6), "n": (2,),
    }
