"""The corpus benchmark: its rows and its page, on small networks of the kinds that it is made of."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.networks.onnx_text import model, normal

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("corpus", "models_targets", "shapes"):
        sys.modules.pop(name, None)
    return importlib.import_module("corpus")


NETWORKS = {
    "convolution": model(
        "float[1,3,8,8] x => float[1,4,4,4] y",
        "c = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w) y = HardSwish(c)",
        {"w": normal(0, 4, 3, 3, 3)},
    ),
    "video": model(
        "float[1,2,3,6,6] x => float[1,4,3,6,6] y",
        "c = Conv<pads=[1,1,1,1,1,1]>(x, w) y = Relu(c)",
        {"w": normal(1, 4, 2, 3, 3, 3)},
    ),
    "recurrent": model(
        "float[3,1,8] x => float[3,1,1,8] y",
        "y = GRU<hidden_size=8>(x, w, r)",
        {"w": normal(2, 1, 24, 8), "r": normal(3, 1, 24, 8)},
    ),
    "attention": model(
        "float[1,2,4,8] x => float[1,2,4,8] y",
        "t = Transpose<perm=[0,1,3,2]>(x) p = MatMul(x, t) s = Softmax(p) a = MatMul(s, x)"
        " y = LayerNormalization(a, g)",
        {"g": np.ones(8, np.float32)},
    ),
    "embedding": model(
        "int64[1,4] i => float[1,4,6] y",
        "e = Gather(t, i) y = MatMul(e, w)",
        {"t": normal(4, 10, 8), "w": normal(5, 8, 6)},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_whole_on_the_npu_and_exact(name: str, corpus: ModuleType, tmp_path: Path) -> None:
    (tmp_path / f"{name}.onnx").write_bytes(NETWORKS[name])
    row = corpus.measured(tmp_path / f"{name}.onnx", "edge-4t")
    assert row["on the NPU"] == "100.0%" and row["result"] == "exact"
    assert "Gather" not in row["host"], "indices of data are looked up on the NPU"


def test_the_page_counts(corpus: ModuleType) -> None:
    row = dict.fromkeys(corpus.COLUMNS, "1") | {"network": "n", "result": "exact", "host": "Gather (1): why"}
    page = corpus.page([{**row, "on the NPU": "100.0%"}, {**row, "on the NPU": "81.0%", "result": "refused"}])
    assert "2 networks: 1 with all multiply-accumulates on the NPU, 1 exact" in page
    assert "- n: Gather (1): why" in page
