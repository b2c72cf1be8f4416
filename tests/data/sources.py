"""Data tables as a recipe would have them, and a folder of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from npuflow.base.tables import Location, Locator, read
from npuflow.input.data.config import Data, InputSample
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples


def table(folder: Path, source: str, **more: object) -> Data:
    made, faults = read(Data, {"source": source, **more}, Locator())
    assert not faults, faults
    assert made is not None
    return Data(
        **{**{f: getattr(made, f) for f in made.__dataclass_fields__}, "source": Location(source, folder)}
    )


def loaded(data: Data) -> dict[str, InputSample]:
    return dict(samples({name: (one.files, one.detail) for name, one in found(data).items()}))


def painted(folder: Path) -> Path:
    """Four pictures of random pixels in three formats."""
    rng = np.random.default_rng(0)
    for i, suffix in enumerate(("png", "jpg", "webp", "png")):
        pixels = rng.integers(0, 256, (10 + i, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i}.{suffix}")
    return folder
