"""Programs whose key and value caches have 8 bits: the same bits token by token and in chunks, on the
simulator too, and what a recipe may ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import Runner
from npuflow.base.errors import NpuflowError
from npuflow.ir.noise import decibels, energy
from npuflow.ir.types import QuantType
from npuflow.run.interpret import Interpreter
from npuflow.run.state import zeros
from npuflow.stages.package import PackedShapes
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.stage import built
from npuflow.whole.execute.executor import Executor
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES, Running
from tests.tiers import often

CONTEXT = 32
NUMBERS = {"edge-8t": "activations.bits = 16", "bm1684x": 'mode = "bf16"'}
RECIPE = """target = "{target}"
[model]
path = "net.gguf"
dims = {{ context = 32 }}
shapes = [{{ chunk = 1 }}, {{ chunk = 4 }}]
[data]
source = "calib.npz"
[quantize]
cache = 8
{numbers}
[sequences]
samples = 160
[unify]
scales = "off"
[correct]
bias = "off"
[precision]
strategy = "none"
"""


def recipe(folder: Path, target: str, numbers: str = "") -> Path:
    write(FAMILIES / "llama", folder / "net.gguf", "Q4_1")
    np.savez(folder / "calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (16, 16, 1, 1)))
    (folder / "net.toml").write_text(RECIPE.format(target=target, numbers=numbers or NUMBERS[target]))
    return folder / "net.toml"


@pytest.mark.parametrize("target", often(sorted(NUMBERS), 2))
def test_rows_are_rounded_once_and_stay(target: str, tmp_path: Path) -> None:
    """Codes of 8 bits with a scale for each head; the executor has the reference's bits."""
    done = built(recipe(tmp_path, target), tmp_path / "cache", "quantize")
    (made,) = done.products("quantize").values()
    assert isinstance(made, Quantized)
    graph, numerics = made.graph, shipped_targets()[target].numerics
    ports = [name for _, name in graph.state if name.startswith("cache.")]
    for name in ports:
        quant = graph.values[name].quant
        assert isinstance(quant, QuantType) and (quant.bits, quant.axis, len(quant.scale)) == (8, 1, 2)
    reference, executor = Interpreter(graph, numerics), Executor(graph, numerics)
    held = {v: a.astype(np.int8) if v in ports else a for v, a in zeros(graph).items()}
    before = dict(held)
    for at, token in enumerate(np.random.default_rng(4).integers(3, 80, 6)):
        feed = {**held, "tokens": np.array([[token]])}
        found, own = reference.run(feed), executor.run(feed)
        assert all(np.array_equal(found[name], own[name]) for name in graph.outputs)
        before, held = held, {given: found[output] for output, given in graph.state}
        for name in ports:
            assert held[name].dtype == np.int8 and held[name][:, :, at].any()
            assert np.array_equal(held[name][:, :, :at], before[name][:, :, :at])


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(NUMBERS))
def test_tokens_one_by_one_and_chunks_give_the_same_bits(target: str, tmp_path: Path) -> None:
    """Logits and caches, close to those in floats; the simulator's too. A token behind many reads half the
    bytes of the cache."""
    done = built(recipe(tmp_path, target), tmp_path / "cache", "package")
    (package,) = done.products("package").values()
    assert isinstance(package, PackedShapes)
    package.package.save(tmp_path / "net.npu")
    tokens = np.random.default_rng(5).integers(3, 80, 20)
    session = Runner(tmp_path / "net.npu").session()
    single = [session.append([int(t)]).reshape(-1) for t in tokens]
    session.save(tmp_path / "single.npz")
    wanted = Running(tmp_path / "net.gguf", context=CONTEXT).logits(tokens[None], (1,) * len(tokens))
    level = decibels(energy(wanted), energy(np.stack(single) - wanted))
    assert level > 18, f"{level:.1f} dB"
    for exact, split in (("executor", (3, 4, 1, 4, 4, 4)), ("simulator", (4, 1, 4))):
        other, at = Runner(tmp_path / "net.npu", exact=exact).session(), 0
        for count in split:
            made = other.append(tokens[at : at + count].tolist()).reshape(-1)
            at += count
            assert np.array_equal(made, single[at - 1])
        other.save(tmp_path / "other.npz")
        one, two = np.load(tmp_path / "single.npz"), np.load(tmp_path / "other.npz")
        for name in one.files:
            own = one[name][:, :, :at] if "cache" in name else one[name]
            assert "cache" not in name or (own.dtype == np.int8 and np.array_equal(own, two[name]))


@pytest.mark.parametrize(
    ("target", "numbers", "said"),
    [
        ("edge-8t", "activations.bits = 8", "activations of 8 bits are already"),
        ("gc200", 'mode = "fp16"', "which the target has not"),
    ],
)
def test_what_a_target_cannot_is_an_error(target: str, numbers: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(NpuflowError, match=said):
        built(recipe(tmp_path, target, numbers), tmp_path / "cache", "quantize")
