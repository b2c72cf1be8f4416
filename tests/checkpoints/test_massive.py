"""Massive activations: the first token of a text reaches far more than all others, which attend to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import Runner
from npuflow.ir.noise import decibels, energy
from npuflow.ir.types import Array
from npuflow.stages.package import PackedShapes
from npuflow.testing.stage import built
from tests.checkpoints.massive import FIRST, MASSIVE, planted
from tests.checkpoints.running import Running

CONTEXT, COUNT = 16, 12
RECIPE = """target = "edge-8t"
[model]
path = "net.gguf"
dims = { context = 16 }
shapes = [{ chunk = 1 }, { chunk = 4 }]
[data]
source = "calib.npz"
[quantize]
activations.bits = 16
[sequences]
samples = 120
[unify]
scales = "off"
[correct]
bias = "off"
[precision]
strategy = "none"
"""


def texts(count: int, seed: int) -> Array:
    tokens = np.random.default_rng(seed).integers(4, 80, (count, COUNT))
    tokens[:, 0] = FIRST
    return tokens


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("massive")
    planted(folder / "net", folder / "net.gguf")
    np.savez(folder / "calib.npz", tokens=texts(16, 0)[..., None, None])
    (folder / "net.toml").write_text(RECIPE)
    return folder


def test_the_planted_token_is_massive(net: Path) -> None:
    reach = [np.abs(x).max(0) for x in stream_of(net, texts(1, 1)[0])]
    assert reach[0][MASSIVE] > 2_000 and max(r.max() for r in reach[1:]) < 40


def stream_of(net: Path, tokens: Array) -> list[Array]:
    from npuflow.run.floats import FloatRun
    from npuflow.run.state import zeros

    graph, _ = Running(net / "net.gguf", context=CONTEXT).graph(1)
    run = FloatRun.of(graph, (*graph.outputs, "layers.0.fed"))
    held, found = zeros(graph), []
    for token in tokens:
        made = run.run({**held, "tokens": np.array([[token]])})
        held = {given: made[output] for output, given in graph.state}
        found.append(made["layers.0.fed"])
    return found


ROTATED = ("equalize.rotate=on", "equalize.scale=off", "equalize.absorb=off", "equalize.smooth=off")


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(), ROTATED], ids=["plain", "rotated"])
def test_logits_stay_close_behind_a_massive_token(net: Path, sets: tuple[str, ...]) -> None:
    """Token by token and in chunks, which give the same bits; also where all of its channels are massive."""
    done = built(net / "net.toml", net / "cache", "package", sets)
    (package,) = done.products("package").values()
    assert isinstance(package, PackedShapes)
    package.package.save(net / "net.npu")
    tokens = texts(1, 5)[0]
    wanted = Running(net / "net.gguf", context=CONTEXT).logits(tokens[None], (1,) * COUNT)
    session = Runner(net / "net.npu").session()
    found = np.stack([session.append([int(t)]).reshape(-1) for t in tokens])
    level = decibels(energy(wanted), energy(found - wanted))
    assert level > 25, f"{level:.1f} dB"
    chunks = Runner(net / "net.npu").session()
    for at in range(0, COUNT, 4):
        made = chunks.append(tokens[at : at + 4].tolist())
        assert np.array_equal(made.reshape(-1), found[at + 3])
