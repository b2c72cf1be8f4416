"""Published architectures with random weights as Caffe files, at full size, against OpenCV 4's dnn.

python benchmarks/caffe_networks.py [NAME...]      # prints its study
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.frontends.caffe_models import judged, outputs, read
from tests.frontends.caffe_networks import NETWORKS, network

HEAD = """# Published architectures as Caffe files against OpenCV 4's dnn

Largest difference of an output over its largest value. Random weights, one random image.

| network | image | parameters | layers | outputs | difference | s |
| --- | --- | --- | --- | --- | --- | --- |
"""


def row(name: str, folder: Path) -> str:
    started = time.monotonic()
    net = network(name, full=True)
    x = np.random.default_rng(1).standard_normal((1, *net.image)).astype(np.float32)
    reading = read(net.text, net.held, folder=folder)
    worst, shapes = 0.0, []
    for mine, given in zip(outputs(reading, x), judged(folder, x, reading.graph.outputs), strict=True):
        if reading.graph.outputs == ("found",):  # OpenCV fills up to keep_top_k with zeros
            given = given[:, :, given[0, 0, :, 2] > 0]
        shapes.append("x".join(map(str, mine.shape)))
        difference = np.abs(mine - given).max() / np.abs(given).max() if mine.shape == given.shape else np.inf
        worst = max(worst, float(difference))
    count = sum(a.size for arrays in net.held.values() for a in arrays)
    cells = [
        name,
        "x".join(map(str, net.image)),
        f"{count / 1e6:.1f} M",
        net.text.count("layer {"),
        ", ".join(shapes),
        f"{worst:.1e}",
        f"{time.monotonic() - started:.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |\n"


def main(names: list[str]) -> None:
    sys.stdout.write(HEAD)
    for name in names or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(row(name, Path(folder)))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
