"""Published architectures with random weights as Caffe files, judged by the dnn of an OpenCV below 5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontends.caffe_models import judged, outputs, read
from tests.frontends.caffe_networks import NETWORKS, network
from tests.tiers import often


@pytest.mark.parametrize("name", often(NETWORKS, 3))
def test_published_networks_give_opencv_s_outputs(name: str, tmp_path: Path) -> None:
    net = network(name)
    x = np.random.default_rng(1).standard_normal((1, *net.image)).astype(np.float32)
    reading = read(net.text, net.held, folder=tmp_path)
    wanted = judged(tmp_path, x, reading.graph.outputs)
    for mine, given in zip(outputs(reading, x), wanted, strict=True):
        if reading.graph.outputs == ("found",):     # OpenCV fills up to keep_top_k with zeros
            given = given[:, :, given[0, 0, :, 2] > 0]
        assert mine.shape == given.shape and np.isfinite(given).all()
        assert np.abs(mine - given).max() <= 1e-4 * np.abs(given).max()
