"""People before a wall or a photo: a face of scikit-image's `lfw_subset` over drawn shoulders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from zoo_pictures import faces, photos, resized

Samples = Iterator[tuple[Any, ...]]
SIZE = 256


def person(rng: np.random.Generator, face: np.ndarray, ground: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [256, 256, 3] and where the person is, bool [256, 256]."""
    wide = int(SIZE * rng.uniform(0.28, 0.42))
    high = int(1.3 * wide)
    x, y = int(rng.integers(SIZE // 6, SIZE - SIZE // 6 - wide)), int(rng.integers(SIZE // 10, SIZE // 4))
    middle, chin = x + wide // 2, y + high
    head, body = (Image.new("L", (SIZE, SIZE)) for _ in range(2))
    ImageDraw.Draw(head).ellipse((x, y, x + wide, chin), fill=255)
    pen, half = ImageDraw.Draw(body), int(1.15 * wide)
    pen.ellipse((middle - half, chin + wide // 8, middle + half, chin + 2 * SIZE), fill=255)
    pen.rectangle((middle - wide // 4, chin - wide // 3, middle + wide // 4, chin + wide // 3), fill=255)
    shirt = Image.new("RGB", (SIZE, SIZE), tuple(int(v) for v in rng.integers(20, 200, 3)))
    skin = Image.new("RGB", (SIZE, SIZE))
    skin.paste(Image.fromarray(resized(face, wide, high)), (x, y))
    picture = Image.fromarray(ground)
    for part, colour in ((body, shirt), (head, skin)):
        picture.paste(colour, (0, 0), part.filter(ImageFilter.GaussianBlur(1)))
    return np.asarray(picture), (np.asarray(head) > 0) | (np.asarray(body) > 0)


def people(part: int) -> Samples:
    """Pictures of 256, 0 to 1; the label is 1 for each pixel of the person."""
    rng = np.random.default_rng(1500 + part)
    for i, ground in enumerate(photos(part, (48, 50)[part], SIZE)):
        picture, where = person(rng, faces(part)[i], (0.5 * ground + rng.uniform(40, 120)).astype(np.uint8))
        yield f"{i}", picture.astype(np.float32)[None] / 255, where.astype(int)


def calibration() -> Samples:
    yield from people(0)


def evaluation() -> Samples:
    yield from people(1)


def mask(outputs: dict[str, np.ndarray], reference: Any, labels: list[Any]) -> dict[str, float]:
    """IoU of person and mask."""
    truth = np.array(labels) > 0
    found = outputs["activation_10"].reshape(truth.shape) > 0.5
    return {"iou": float((found & truth).sum() / (found | truth).sum())}
