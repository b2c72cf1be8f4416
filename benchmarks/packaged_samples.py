"""Samples like those that networks inside Python packages are for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

Array = np.ndarray
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


# --- pictures
def pictures(data: Path, part: str, count: int) -> Iterator[Image.Image]:
    for path in sorted((data / "data" / "photos" / part).glob("*"))[:count]:
        yield Image.open(path).convert("RGB")


def faces(data: Path, part: str) -> Array:
    """uint8[n, 48, 48, 3]; of the evaluation set those that are faces."""
    held = np.load(data / "data2" / "face" / f"{part}.npz")
    if part == "calib":
        return held["image"].transpose(0, 2, 3, 1)
    return np.repeat(held["image"][held["labels"] == 1], 3, axis=1).transpose(0, 2, 3, 1)


def scenes(size: int, data: Path, part: str, name: str = "input") -> Iterator[dict[str, Array]]:
    """One face somewhere, -1 to 1."""
    for one in np.load(data / "data2" / "box" / f"{part}.npz")["input"]:
        resized = cv2.resize(np.repeat(one, 3, -1), (size, size))
        yield {name: resized.astype(np.float32)[None] / 127.5 - 1}


def portraits(data: Path, part: str) -> Iterator[dict[str, Array]]:
    for one in faces(data, part):
        resized = cv2.resize(one, (192, 192), interpolation=cv2.INTER_CUBIC)
        yield {"input_1": resized.astype(np.float32)[None] / 255}


def eyes(data: Path, part: str) -> Iterator[dict[str, Array]]:
    for one in faces(data, part):
        resized = cv2.resize(one[10:26, 4:24], (64, 64), interpolation=cv2.INTER_CUBIC)
        yield {"input_1": resized.astype(np.float32)[None] / 255}


def lines(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Lines of text, every other one upside down."""
    for i, one in enumerate(np.load(data / "data2" / "lines" / f"{part}.npz")["x"]):
        resized = cv2.resize(one.transpose(1, 2, 0), (192, 48))
        turned = resized[::-1, ::-1] if i % 2 else resized
        yield {"x": ((turned.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]}


def photos(data: Path, part: str) -> Iterator[dict[str, Array]]:
    for picture in pictures(data, part, 128 if part == "calib" else 100):
        resized = np.asarray(picture.resize((320, 320)), np.float32)
        yield {"images": resized.transpose(2, 0, 1)[None] / 255}


def lettered(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Photos with four large letters each, in BGR."""
    from PIL import ImageDraw, ImageFont

    rng = random.Random(part)
    for picture in pictures(data, part, 128 if part == "calib" else 100):
        resized = picture.resize((416, 416))
        pen = ImageDraw.Draw(resized)
        for _ in range(4):
            at, size = (rng.randint(0, 350), rng.randint(0, 350)), rng.randint(30, 60)
            colour = tuple(rng.randint(0, 255) for _ in range(3))
            pen.text(at, rng.choice(LETTERS), fill=colour, font=ImageFont.load_default(size))
        yield {"images": np.asarray(resized, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]}


def words(part: str) -> Iterator[tuple[str, Image.Image]]:
    """Four letters as the package captcha draws them."""
    from captcha.image import ImageCaptcha

    rng, drawn = random.Random(part), ImageCaptcha(160, 60)
    for _ in range(128 if part == "calib" else 200):
        text = "".join(rng.choice(LETTERS) for _ in range(4))
        random.seed(text)                                   # the package's own choices
        yield text, drawn.generate_image(text).convert("RGB")


def coloured(data: Path, part: str) -> Iterator[dict[str, Array]]:
    for _, picture in words(part):
        yield {"image": np.asarray(picture, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]}


def grey(data: Path, part: str) -> Iterator[dict[str, Array]]:
    for _, picture in words(part):
        resized = picture.convert("L").resize((168, 64), Image.Resampling.LANCZOS)
        yield {"input1": np.asarray(resized, np.float32)[None, None] / 255}


# --- other samples
def files(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Both ends of files of the Python installation and of the data, as the package's own code reads them."""
    import sysconfig

    roots = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "scripts")] + [data]
    kinds: dict[str, list[Path]] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.stat().st_size > 64:
                kinds.setdefault(path.suffix, []).append(path)
    rng = random.Random(0)
    found = [path for some in kinds.values() for path in rng.sample(some, min(len(some), 30))]
    rng.shuffle(found)
    for path in found[:128] if part == "calib" else found[128:428]:
        held = path.read_bytes()
        begin, end = held[:4096].lstrip()[:1024], held[-4096:].rstrip()[-1024:]
        codes = np.full((1, 2048), 256, np.int32)
        codes[0, : len(begin)] = list(begin)
        codes[0, 2048 - len(end) :] = list(end)
        yield {"bytes": codes}


def turned(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Pages of text, turned by a quarter, a half, three quarters or not."""
    for i, one in enumerate(np.load(data / "data2" / "text" / f"{part}.npz")["x"]):
        page = np.rot90(one.transpose(1, 2, 0), i % 4)
        yield {"x": _standard(cv2.resize(np.ascontiguousarray(page), (224, 224)))}


def pages(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Pages with lines of text, as the detectors' package feeds them."""
    for one in np.load(data / "data2" / "text" / f"{part}.npz")["x"]:
        yield {"x": _standard(one.transpose(1, 2, 0))}


def _standard(picture: Array) -> Array:
    """[1, 3, height, width] with ImageNet's mean and deviation."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((picture / 255 - mean) / deviation).astype(np.float32).transpose(2, 0, 1)[None]


def upright_lines(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Lines of text, 48 x 320, -1 to 1."""
    for one in np.load(data / "data2" / "lines" / f"{part}.npz")["x"]:
        yield {"x": ((one.astype(np.float32) / 255 - 0.5) / 0.5)[None]}


def small_faces(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Grey faces of 64 x 64, -1 to 1."""
    for one in faces(data, part):
        resized = cv2.resize(one[..., 0], (64, 64), interpolation=cv2.INTER_CUBIC)
        yield {"x": (resized.astype(np.float32)[None, :, :, None] / 255 - 0.5) * 2}


def whole(
    size: int, low: float, data: Path, part: str, name: str = "input_1"
) -> Iterator[dict[str, Array]]:
    """Whole photos, `low` to 1."""
    for picture in pictures(data, part, 128 if part == "calib" else 100):
        resized = np.asarray(picture.resize((size, size)), np.float32)[None] / 255
        yield {name: resized * (1 - low) + low}


def digits(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Five digits as the package captcha draws them, 0 to 1."""
    from captcha.image import ImageCaptcha

    rng, drawn = random.Random(part), ImageCaptcha(155, 50)
    for _ in range(128 if part == "calib" else 200):
        text = "".join(rng.choice(LETTERS[:10]) for _ in range(5))
        random.seed(text)
        yield {"input": np.asarray(drawn.generate_image(text).convert("RGB"), np.float32)[None] / 255}


def turned_pages(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Pages of text, turned by quarters, 320 x 320."""
    for i, one in enumerate(np.load(data / "data2" / "text" / f"{part}.npz")["x"]):
        yield {"x": _standard(np.ascontiguousarray(np.rot90(one.transpose(1, 2, 0)[..., ::-1], i % 4)))}
