"""Drawn text for networks that read: words, lines, pages, and the same upside down or turned by quarters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Samples = Iterator[tuple[Any, ...]]
WORDS = (  # noqa: SIM905
    "about above across after again along always among animal answer around because before begin below "
    "between bring build carry change children city close color could country cover daily doctor during "
    "early earth every example family father field figure final follow found friend garden ground group "
    "happen heart history house hundred island kitchen language large letter light listen machine "
    "market measure minute money morning mother mountain never night notice number office order paper "
    "people picture place plant point question quick reason river school second sentence simple sound "
    "south spring street summer table through together travel under usual valley village water weather "
    "window winter woman world write yellow"
).split()
CAPITALS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CALIBRATION, EVALUATION = 64, 60


def _rng(part: int, salt: int) -> np.random.Generator:
    return np.random.default_rng(100 * salt + part)


def paper(rng: np.random.Generator, width: int, height: int) -> tuple[Image.Image, tuple[int, ...]]:
    """An uneven ground, light or dark, and a colour to write on it."""
    dark = rng.random() < 0.3
    level = rng.uniform(20, 70) if dark else rng.uniform(180, 245)
    slope = np.linspace(0, rng.uniform(-15, 15), width)[None, :, None]
    noise = rng.normal(0, rng.uniform(1, 6), (height, width, 1))
    tint = rng.uniform(-10, 10, 3)
    ground = np.clip(level + slope + noise + tint, 0, 255).astype(np.uint8)
    ink = rng.uniform(170, 255, 3) if dark else rng.uniform(0, 90, 3)
    return Image.fromarray(ground), tuple(int(v) for v in ink)


def line(rng: np.random.Generator, width: int, height: int) -> tuple[np.ndarray, str]:
    """A line of text on its ground, uint8 [height, width, 3]."""
    picture, ink = paper(rng, width, height)
    font = ImageFont.load_default(int(height * rng.uniform(0.5, 0.68)))
    pen, text = ImageDraw.Draw(picture), ""
    for _ in range(4):
        word = str(rng.choice(WORDS)) if rng.random() < 0.8 else str(rng.integers(1000, 99999))
        longer = f"{text} {word}".strip()
        if pen.textlength(longer, font) > width - 16:
            break
        text = longer
    text = text or "the"
    _, top, _, bottom = font.getbbox(text)
    pen.text((6, (height - bottom - top) / 2), text, fill=ink, font=font)
    if rng.random() < 0.4:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    return np.asarray(picture), text


def lines(part: int) -> Samples:
    """Lines of 48 x 320, BGR, -1 to 1; the label is the text."""
    rng = _rng(part, 1)
    for i in range((CALIBRATION, EVALUATION)[part]):
        picture, text = line(rng, 320, 48)
        signed = picture[:, :, ::-1].astype(np.float32) / 127.5 - 1
        yield f"{i}", np.ascontiguousarray(signed.transpose(2, 0, 1))[None], text


def calibration_lines() -> Samples:
    yield from lines(0)


def evaluation_lines() -> Samples:
    yield from lines(1)


def turned(part: int) -> Samples:
    """Lines of 48 x 192, every other one upside down, which is the label."""
    rng = _rng(part, 2)
    for i in range((CALIBRATION, 2 * EVALUATION)[part]):
        picture, _ = line(rng, 192, 48)
        right = picture[::-1, ::-1] if i % 2 else picture
        signed = right[:, :, ::-1].astype(np.float32) / 127.5 - 1
        yield f"{i}", np.ascontiguousarray(signed.transpose(2, 0, 1))[None], i % 2


def calibration_turned() -> Samples:
    yield from turned(0)


def evaluation_turned() -> Samples:
    yield from turned(1)


def page(rng: np.random.Generator, size: int) -> tuple[np.ndarray, list[list[int]], list[str]]:
    """A page with lines of text, their boxes, x, y, width, height, and what they say; uint8
    [size, size, 3]."""
    picture, ink = paper(rng, size, size)
    texts: list[str] = []
    pen, boxes, y = ImageDraw.Draw(picture), [], int(rng.integers(8, 30))
    while True:
        points = int(size * rng.uniform(0.05, 0.1))
        font = ImageFont.load_default(points)
        text = " ".join(str(rng.choice(WORDS)) for _ in range(int(rng.integers(1, 4))))
        x0, y0, x1, y1 = (int(v) for v in font.getbbox(text))
        if y + y1 > size - 8:
            break
        if x1 < size - 16:
            x = int(rng.integers(6, size - x1 - 6))
            pen.text((x, y), text, fill=ink, font=font)
            boxes.append([x + x0, y + y0, x1 - x0, y1 - y0])
            texts.append(text)
            y += y1 + int(points * rng.uniform(0.3, 1.2))
    return np.asarray(picture), boxes, texts


MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def standard(picture: np.ndarray) -> np.ndarray:
    """[1, 3, height, width] with ImageNet's mean and deviation."""
    return ((picture / 255 - MEAN) / DEVIATION).astype(np.float32).transpose(2, 0, 1)[None]


def pages(part: int) -> Samples:
    """Pages of 320; the label is the boxes of their lines."""
    rng = _rng(part, 3)
    for i in range((48, 50)[part]):
        picture, boxes, _ = page(rng, 320)
        yield f"{i}", standard(picture[:, :, ::-1]), boxes


def calibration_pages() -> Samples:
    yield from pages(0)


def evaluation_pages() -> Samples:
    yield from pages(1)


def written(part: int) -> Samples:
    """Pages of 320; the label is a box and a text for each of their lines."""
    rng = _rng(part, 8)
    for i in range((48, 32)[part]):
        picture, boxes, texts = page(rng, 320)
        yield f"{i}", standard(picture[:, :, ::-1]), [list(one) for one in zip(boxes, texts, strict=True)]


def calibration_written() -> Samples:
    yield from written(0)


def evaluation_written() -> Samples:
    yield from written(1)


def quarters(part: int) -> Samples:
    """Pages of 224, turned by no, one, two or three quarters clockwise, which is the label."""
    rng = _rng(part, 4)
    for i in range((CALIBRATION, 2 * EVALUATION)[part]):
        picture, _, _ = page(rng, 224)
        yield f"{i}", standard(np.rot90(picture[:, :, ::-1], -(i % 4))), i % 4


def calibration_quarters() -> Samples:
    yield from quarters(0)


def evaluation_quarters() -> Samples:
    yield from quarters(1)


def word(rng: np.random.Generator, count: int, size: tuple[int, int]) -> tuple[Image.Image, str]:
    """A word as those that keep machines out: single symbols, each turned, with a line through them."""
    picture, ink = paper(rng, *size)
    text = "".join(str(rng.choice(list(CAPITALS))) for _ in range(count))
    step = (size[0] - 16) / count
    for i, symbol in enumerate(text):
        points = int(size[1] * rng.uniform(0.55, 0.75))
        font = ImageFont.load_default(points)
        mask = Image.new("L", (2 * points, 2 * points))
        ImageDraw.Draw(mask).text((points // 2, points // 3), symbol, fill=255, font=font)
        mask = mask.rotate(rng.uniform(-18, 18), Image.Resampling.BICUBIC)
        x = int(8 + i * step + step / 2 - points * 0.78 + rng.uniform(-3, 3))
        y = int(size[1] / 2 - points * 0.95 + rng.uniform(-4, 4))
        picture.paste(Image.new("RGB", mask.size, ink), (x, y), mask)
    ends = [(0, int(rng.integers(size[1]))), (size[0], int(rng.integers(size[1])))]
    ImageDraw.Draw(picture).line(ends, fill=ink, width=1)
    return picture, text


def captchas(part: int) -> Samples:
    """Pictures of 60 x 160, BGR, 0 to 255; the label is the word of five symbols."""
    rng = _rng(part, 5)
    for i in range((CALIBRATION, EVALUATION)[part]):
        picture, text = word(rng, 5, (160, 60))
        colours = np.asarray(picture, np.float32)[:, :, ::-1]
        yield f"{i}", np.ascontiguousarray(colours.transpose(2, 0, 1))[None], text


def calibration_captchas() -> Samples:
    yield from captchas(0)


def evaluation_captchas() -> Samples:
    yield from captchas(1)


def letters(part: int) -> Samples:
    """Patterned pictures of 416 with four letters, BGR, 0 to 255; the label is their boxes."""
    rng = _rng(part, 6)
    for i in range((40, 50)[part]):
        cells = (int(rng.integers(3, 12)), int(rng.integers(3, 12)), 3)
        coarse = Image.fromarray(rng.integers(40, 216, cells).astype(np.uint8))
        picture = coarse.resize((416, 416), Image.Resampling.BICUBIC)
        pen, boxes = ImageDraw.Draw(picture), []
        for cell in rng.permutation(9)[:4]:
            font = ImageFont.load_default(int(rng.integers(34, 70)))
            letter = str(rng.choice(list(CAPITALS)))
            x0, y0, x1, y1 = (int(v) for v in font.getbbox(letter))
            x, y = int(cell % 3 * 135 + rng.integers(10, 60)), int(cell // 3 * 135 + rng.integers(5, 50))
            pen.text((x, y), letter, fill=tuple(int(v) for v in rng.integers(0, 256, 3)), font=font)
            boxes.append([x + x0, y + y0, x1 - x0, y1 - y0])
        colours = np.asarray(picture, np.float32)[:, :, ::-1]
        yield f"{i}", np.ascontiguousarray(colours.transpose(2, 0, 1))[None], boxes


def calibration_letters() -> Samples:
    yield from letters(0)


def evaluation_letters() -> Samples:
    yield from letters(1)


def greys(part: int) -> Samples:
    """Words of four symbols, grey, 64 x 168, 0 to 1."""
    rng = _rng(part, 7)
    for i in range((CALIBRATION, EVALUATION)[part]):
        picture, _ = word(rng, 4, (168, 64))
        yield f"{i}", np.asarray(picture.convert("L"), np.float32)[None, None] / 255


def calibration_greys() -> Samples:
    yield from greys(0)


def evaluation_greys() -> Samples:
    yield from greys(1)
