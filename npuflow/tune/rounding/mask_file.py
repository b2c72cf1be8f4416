"""Masks of weights as one file that numpy reads: an array for every weight, by its name."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np


def packed(masks: Mapping[str, Any]) -> bytes:
    """The file."""
    file = io.BytesIO()
    np.savez_compressed(file, **masks)
    return file.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """The arrays of a file."""
    with np.load(io.BytesIO(data), allow_pickle=False) as held:
        return {name: held[name] for name in held.files}
