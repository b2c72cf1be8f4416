"""Random inputs for operators' samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def draw(rng: np.random.Generator, *shape: int, mean: float = 0.0) -> npt.NDArray[np.float32]:
    """Normal values of unit variance."""
    return np.asarray(rng.normal(mean, 1.0, shape), np.float32)
