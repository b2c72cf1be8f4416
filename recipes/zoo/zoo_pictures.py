"""Pictures for networks that look at faces and people: faces of scikit-image's `lfw_subset`, and its photos.

Nothing is stored and nothing is downloaded: `pip install --no-deps scikit-image==0.26.0` brings both. Every
function yields the same samples in every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Samples = Iterator[tuple[Any, ...]]
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "motorcycle_left", "camera", "brick", "grass", "retina")
CALIBRATION, EVALUATION = 64, 50


def folder() -> Path:
    """Where scikit-image keeps its sample data; the package is not imported."""
    found = find_spec("skimage")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("scikit-image is not installed: pip install --no-deps scikit-image==0.26.0")
    return Path(found.origin).parent / "data"


def faces(part: int) -> np.ndarray:
    """uint8 [50, 25, 25]; the first 50 faces calibrate, the others evaluate."""
    held = np.load(folder() / "lfw_subset.npy")[50 * part : 50 * part + 50]
    return (255 * held / max(float(held.max()), 1e-9)).astype(np.uint8)


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    image = Image.fromarray(picture)
    return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC))


def photos(part: int, count: int, size: int) -> Iterator[np.ndarray]:
    """uint8 [size, size, 3]: cut-outs of the photos, mirrored or not; other photos for each part."""
    rng = np.random.default_rng(part)
    held = {}
    for name in PHOTOS:
        (path,) = folder().glob(f"{name}.*")
        held[name] = Image.open(path).convert("RGB")
    names = PHOTOS[part::2]
    for i in range(count):
        photo = held[names[i % len(names)]]
        side = int(min(photo.size) * rng.uniform(0.5, 1))
        x, y = (int(rng.integers(n - side + 1)) for n in photo.size)
        cut = photo.crop((x, y, x + side, y + side)).resize((size, size), Image.Resampling.BICUBIC)
        found = np.asarray(cut)
        yield np.ascontiguousarray(found[:, ::-1]) if rng.random() < 0.5 else found


def scenes(size: int, part: int) -> Samples:
    """A face somewhere in a photo, -1 to 1; the label is its box: x, y, width, height in pixels."""
    rng = np.random.default_rng(10 + part)
    some = faces(part)
    for i, photo in enumerate(photos(part, (CALIBRATION, EVALUATION)[part], size)):
        side = int(size * rng.uniform(0.3, 0.6))
        x, y = (int(v) for v in rng.integers(size - side, size=2))
        scene = (photo * 0.6).astype(np.uint8)
        scene[y : y + side, x : x + side] = resized(some[i % len(some)], side, side)
        yield f"{i}", scene.astype(np.float32)[None] / 127.5 - 1, [x, y, side, side]


def calibration_scenes_128() -> Samples:
    yield from scenes(128, 0)


def evaluation_scenes_128() -> Samples:
    yield from scenes(128, 1)


def calibration_scenes_192() -> Samples:
    yield from scenes(192, 0)


def evaluation_scenes_192() -> Samples:
    yield from scenes(192, 1)


def calibration_scenes_256() -> Samples:
    yield from scenes(256, 0)


def evaluation_scenes_256() -> Samples:
    yield from scenes(256, 1)


def portraits(part: int) -> Samples:
    """Faces as they fill a picture of 192, 0 to 1."""
    for i, one in enumerate(faces(part)):
        yield f"{i}", resized(one, 192, 192).astype(np.float32)[None] / 255


def calibration_portraits() -> Samples:
    yield from portraits(0)


def evaluation_portraits() -> Samples:
    yield from portraits(1)


def eyes(part: int) -> Samples:
    """The place of an eye, 64 wide, 0 to 1."""
    for i, one in enumerate(faces(part)):
        yield f"{i}", resized(one[5:14, 3:13], 64, 64).astype(np.float32)[None] / 255


def calibration_eyes() -> Samples:
    yield from eyes(0)


def evaluation_eyes() -> Samples:
    yield from eyes(1)


def small_faces(part: int) -> Samples:
    """Grey faces of 64, -1 to 1."""
    for i, one in enumerate(faces(part)):
        yield f"{i}", resized(one, 64, 64)[None, :, :, :1].astype(np.float32) / 127.5 - 1


def calibration_small_faces() -> Samples:
    yield from small_faces(0)


def evaluation_small_faces() -> Samples:
    yield from small_faces(1)


def whole(size: int, low: float, part: int) -> Samples:
    """Cut-outs of photos, `low` to 1."""
    for i, one in enumerate(photos(part, (CALIBRATION, EVALUATION)[part], size)):
        yield f"{i}", one.astype(np.float32)[None] / 255 * (1 - low) + low


def calibration_photos_192() -> Samples:
    yield from whole(192, 0, 0)


def evaluation_photos_192() -> Samples:
    yield from whole(192, 0, 1)


def calibration_photos_224() -> Samples:
    yield from whole(224, 0, 0)


def evaluation_photos_224() -> Samples:
    yield from whole(224, 0, 1)


def calibration_signed_photos_224() -> Samples:
    yield from whole(224, -1, 0)


def evaluation_signed_photos_224() -> Samples:
    yield from whole(224, -1, 1)
