"""Boxes of a program beside numpy, fed the program's own dequantised heads: python benchmarks/boxes.py DIR.

DIR holds the folders models, data, models2 and data2. Two detectors, each with the decoding on the host
and on the NPU; the specification in numpy is that of tests/heads.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from shapes import target_named  # noqa: E402

from npuflow import build, load_recipe  # noqa: E402
from npuflow.flow.recipe_build import Settings, open_cache  # noqa: E402
from npuflow.ir.graph import Graph  # noqa: E402
from npuflow.ir.types import Array  # noqa: E402
from npuflow.stages.parse import Parsed  # noqa: E402
from npuflow.stages.quantize import Quantized  # noqa: E402
from npuflow.whole.execute.executor import Executor  # noqa: E402
from tests.heads import numpy_boxes as own  # noqa: E402

SCORE, IOU = 0.1, 0.45
SAMPLES = 100
# what is compared does not depend on how well the heads are quantised
QUICK = '[calibrate]\nmethod = "minmax"\n[correct]\nbias = "off"\n[precision]\nstrategy = "none"\n'


@dataclass(frozen=True)
class Detector:
    """A task: its recipe, its samples, its heads by name, and what numpy makes of them."""

    name: str
    recipe: str
    size: tuple[int, int]
    heads: tuple[str, ...]
    decoded: Callable[[Mapping[str, Array]], own.Found]


def blazeface(heads: Mapping[str, Array]) -> own.Found:
    """As data2/score.py has it: offsets in pixels from the centres of cells."""
    cells = [(16, 2), (8, 6)]
    centres = [
        ((x + 0.5) * 128 / g, (y + 0.5) * 128 / g)
        for g, k in cells for y in range(g) for x in range(g) for _ in range(k)
    ]
    raw = heads["regressors"][0].astype(np.float64)
    middle, half = np.array(centres) + raw[:, :2], raw[:, 2:4] / 2
    return np.concatenate([middle - half, middle + half], 1), own.sigmoid(heads["classificators"][0])


def detectors(folder: Path, scratch: Path) -> Iterator[Detector]:
    grey = np.load(folder / "data2/box/calib.npz")["input"]
    np.savez(scratch / "box.npz", input=np.repeat(grey, 3, -1))
    anchors = [[128] * 4, [128] * 12]
    yield Detector(
        "box (BlazeFace)",
        f'[model]\npath = "{folder}/models2/blazeface.onnx"\n'
        f'[data]\nsource = "{scratch}/box.npz"\n'
        "[[data.steps]]\nnormalize = { mean = [127.5], std = [127.5] }\n"
        f'[postprocess]\nkind = "ssd"\nheads = ["regressors", "classificators"]\n'
        f"score = {SCORE}\niou = {IOU}\n"
        f"[postprocess.ssd]\nanchors = {anchors}\nstrides = [8, 16]\nvariances = {[1 / 128] * 4}\n"
        'growth = "linear"\nscores = "sigmoid"\nbackground = -1\n',
        (128, 128), ("regressors", "classificators"), blazeface,
    )
    steps = '[[data.steps]]\nchannels = "bgr"\n'
    yield Detector(
        "scenes (YOLOX-tiny)",
        f'[model]\npath = "{folder}/models/yolox-tiny.onnx"\n'
        f'[data]\nsource = "{folder}/data/scenes/calib"\ncount = 8\n{steps}'
        f'[postprocess]\nkind = "yolox"\nscore = {SCORE}\niou = {IOU}\n',
        (416, 416), ("output",), lambda heads: own.yolox({"out": heads["output"]}),
    )


def images(folder: Path, name: str) -> Iterator[Array]:
    if name.startswith("box"):
        grey = np.load(folder / "data2/box/eval.npz")["input"][:SAMPLES]
        yield from (np.repeat(one, 3, -1)[None] for one in grey)
        return
    from PIL import Image

    for path in sorted((folder / "data/scenes/eval").glob("*.png"))[:SAMPLES]:
        picture = np.asarray(Image.open(path).convert("RGB"))
        yield np.ascontiguousarray(picture[:, :, ::-1].transpose(2, 0, 1))[None]


def heads_of(graph: Graph, values: Mapping[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
    """The program's heads as real numbers."""
    found = {}
    for name in names:
        quant = graph.values[held(graph, name)].quant
        codes = values[held(graph, name)].astype(np.float64)
        found[name] = codes if quant is None else (codes - quant.zero_point[0]) * quant.scale[0]
    return found


def held(graph: Graph, name: str) -> str:
    """The value of the quantised graph that holds a head's codes."""
    return f"{name}:q" if f"{name}:q" in graph.values else name


def measured(one: Detector, place: str, folder: Path, scratch: Path) -> dict[str, Any]:
    """Build, run the program's integers, and compare box by box, matched by class and overlap."""
    own.SIZE = one.size
    recipe = scratch / "net.toml"
    text = one.recipe.replace("[postprocess]\n", f'[postprocess]\nplace = "{place}"\n')
    recipe.write_text(f'target = "edge-4t"\n{text}{QUICK}')
    result, cache = build(recipe, until="correct"), open_cache(load_recipe(recipe), Settings())
    graph = cache.load(result.outputs["correct"], Quantized).graph
    pixels = cache.load(result.outputs["pixels"], Parsed).pixels
    numerics = target_named("edge-4t").numerics
    executor, wanted = Executor(graph, numerics), {held(graph, name) for name in one.heads}
    ((port, stands),) = pixels.items()
    seen = Seen()
    for image in images(folder, one.name):
        values = executor.run({port: image.astype(np.float32) - stands.zero}, wanted)
        found = one.decoded(heads_of(graph, values, one.heads))
        seen.add(values["boxes"], own.boxes_of(found, SCORE, IOU))
    return {"detector": one.name, "decoding": place, **seen.row()}


@dataclass
class Seen:
    """Boxes of all images beside those of numpy."""

    images: int = 0
    alike: int = 0                        # images with the same classes in the same order
    boxes: int = 0
    extra: int = 0
    off: float = 0.0                      # largest difference of a coordinate, pixels, where images are alike
    overlaps: list[float] = field(default_factory=list)

    def add(self, boxes: Array, wanted: Array) -> None:
        self.images += 1
        self.boxes += len(wanted)
        if boxes.shape == wanted.shape and bool((boxes[:, 5] == wanted[:, 5]).all()):
            self.alike += 1
            self.off = max(self.off, float(np.abs(boxes[:, :4] - wanted[:, :4]).max(initial=0.0)))
        left = list(range(len(boxes)))
        for row in wanted:
            rivals = [(own.overlap(row[:4], boxes[k, :4]), k) for k in left if boxes[k, 5] == row[5]]
            if rivals and max(rivals)[0] >= 0.5:
                best, k = max(rivals)
                self.overlaps.append(best)
                left.remove(k)
        self.extra += len(left)

    def row(self) -> dict[str, Any]:
        return {
            "images": self.images, "same boxes and classes": self.alike, "boxes of numpy": self.boxes,
            "found": len(self.overlaps), "others": self.extra,
            "lowest IoU": f"{min(self.overlaps):.5f}", "mean IoU": f"{np.mean(self.overlaps):.6f}",
            "IoU >= .99": f"{np.mean(np.array(self.overlaps) >= 0.99):.4f}",
            "largest difference, pixels": f"{self.off:.2g}",
        }


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        pairs = [(one, who) for one in detectors(folder, scratch) for who in ("host", "npu")]
        for at, (one, who) in enumerate(pairs):
            row = measured(one, who, folder, scratch)
            if not at:
                print("| " + " | ".join(row) + " |\n|" + " --- |" * len(row))
            print("| " + " | ".join(map(str, row.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
