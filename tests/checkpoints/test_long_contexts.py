"""Contexts of thousands of tokens beside floats: positions pick rows of tables, as no float type of 16 bits
tells them apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.ir.codes import encode
from npuflow.ir.noise import decibels, energy
from npuflow.run.floats import FloatRun
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.stage import built
from npuflow.whole.execute.executor import Executor
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES

RECIPE = """target = "bm1684x"
[model]
path = "net.gguf"
dims = { chunk = 1, context = %d }
[data]
source = "calib.npz"
[quantize]
mode = "bf16"
"""


def recipe(folder: Path, context: int) -> Path:
    """Of a tiny random checkpoint that allows such a context."""
    shutil.copytree(FAMILIES / "llama", folder / "net")
    config = folder / "net" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": context}))
    write(folder / "net", folder / "net.gguf", "Q4_1")
    np.savez(folder / "calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (4, 4, 1, 1)))
    (folder / "net.toml").write_text(RECIPE % context)
    return folder / "net.toml"


@pytest.mark.slow
def test_a_token_far_into_the_context_is_close(tmp_path: Path) -> None:
    """At position 3,001 over a random cache: rows that follow are not seen, and its own is written."""
    done, at = built(recipe(tmp_path, 4096), tmp_path / "cache", "quantize", ()), 3001
    (parsed,), (made,) = (done.products(name).values() for name in ("parse", "quantize"))
    assert isinstance(parsed, Parsed) and isinstance(made, Quantized)
    rng, graph = np.random.default_rng(1), made.graph
    feed = {
        given: rng.normal(size=parsed.graph.type(given).shape).astype(np.float32)
        for _, given in parsed.graph.state if given != "position"
    }
    for array in feed.values():
        array[:, :, at:] = 0
    feed |= {"position": np.array([at], np.int32), "tokens": np.array([[7]], np.int64)}
    codes = {
        name: array if (quant := graph.values[name].quant) is None else encode(array, quant)
        for name, array in feed.items()
    }
    found = Executor(graph, shipped_targets()["bm1684x"].numerics, 1).run(codes)["logits"]
    wanted = FloatRun.of(parsed.graph, ["logits"]).run(feed)["logits"]
    assert decibels(energy(wanted), energy(np.asarray(found, np.float32) - wanted)) > 25


def test_a_context_that_no_table_has_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="8,192 tokens is too long for bf16"):
        built(recipe(tmp_path, 8192), tmp_path / "cache", "quantize", ())
