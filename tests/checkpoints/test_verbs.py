"""What the command line makes of checkpoints: inspect, new, and builds of what new writes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.checkpoints import opened
from npuflow.cli import _disk, main
from npuflow.runner.runner import Runner
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES, Running
from tests.checkpoints.test_families import NEAR, expected

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write(FAMILIES / "llama", tmp_path / "net.gguf", "Q4_1")


def said(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    capfd.readouterr()
    assert main(list(args)) == code
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return out + err


def test_inspect_says_what_a_checkpoint_is(gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = said(capfd, "inspect", str(gguf_file)).split("\n")
    lines = {name: rest.strip() for name, _, rest in (line.strip().partition("  ") for line in page)}
    assert lines["family"] == "llama (GGUF)" and lines["layers"] == "2"
    assert lines["context"] == "128" and lines["tokenizer"] == "none"
    assert lines["tensors"].startswith("Q4_1 15, F32 5; ")
    facts = json.loads(said(capfd, "inspect", str(FAMILIES / "mistral"), "--json"))["facts"]
    assert facts["family"] == "mistral (Hugging Face folder)"
    assert facts["context"] == "128, windows of 7 in 2 of 2 layers"
    assert facts["cache"] == "128 numbers a token, in 2 of 2 layers for the newest 16 alone"


def test_inspect_shows_nodes_where_a_target_is_named(
    gguf_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = said(capfd, "inspect", str(gguf_file), "--target", "edge-8t", "--dim", "context=32")
    assert "family     llama (GGUF)" in page and "100.0% of" in page
    assert "input   tokens: int64[1, 1]" in page
    assert "output  cache.1.value:next: float32[1, 2, 32, 16]" in page


def test_new_writes_a_recipe_that_is_parsed(gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said(capfd, "new", str(gguf_file), "--target", "bm1684x", "--dim", "context=64", "-o", "net.toml")
    table = tomllib.loads(Path("net.toml").read_text())
    assert table["target"] == "bm1684x" and table["model"]["path"] == "net.gguf"
    assert table["model"]["dims"] == {"context": 64}
    assert table["model"]["shapes"] == [{"chunk": 1}, {"chunk": 32}]
    assert "parse" in said(capfd, "build", "net.toml", "--until", "parse")


def test_the_room_that_a_build_takes_is_said_before_it_starts(
    gguf_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = sum(int(np.prod(one.shape)) for one in opened(gguf_file).tensors.values())
    monkeypatch.setattr(_disk, "BYTES", 10**8)
    monkeypatch.setattr(_disk, "WORTH", 10**8 * (weights + 1))
    command = ("new", str(gguf_file), "--target", "bm1684x", "-o", "net.toml")
    assert "in the cache" not in said(capfd, *command)
    monkeypatch.setattr(_disk, "WORTH", 10**8 * weights)
    room = f"{weights / 10:.1f} GB"
    assert f"; a build keeps about {room} in the cache" in said(capfd, *command, "--force")
    free = 10**8 * weights
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    assert "free" not in said(capfd, "build", "net.toml", "--until", "parse", "--cache", "one")
    free -= 10**9
    page = said(capfd, "build", "net.toml", "--until", "parse", "--cache", "two")
    assert f"warning: this build keeps about {room} in " in page
    assert f"where {weights / 10 - 1:.1f} GB are free" in page


@pytest.mark.parametrize(("target", "wanted"), [
    ("bm1684x", {"mode": "bf16"}),
    ("zhouyi-x2", {"mode": "fp16"}),
    ("edge-8t", {"activations": {"bits": 16}}),
    ("cv18xx", {"mode": "bf16"}),
    ("dpucvdx8g", {}),
])
def test_new_writes_in_what_the_target_keeps_codes(
    target: str, wanted: dict[str, object], gguf_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Floats where the target has some, else integers of 16 bits; networks of other kinds have neither."""
    said(capfd, "new", str(gguf_file), "--target", target, "-o", "net.toml")
    assert tomllib.loads(Path("net.toml").read_text())["quantize"] == wanted


def test_new_without_sizes_states_those_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    """The context that the model was trained for, where that is less than the usual."""
    said(capfd, "new", str(FAMILIES / "gpt2"), "-o", "net.toml")
    model = tomllib.loads(Path("net.toml").read_text())["model"]
    assert model["dims"] == {"context": 128} and model["shapes"] == [{"chunk": 1}, {"chunk": 32}]
    wrong = said(capfd, "new", str(FAMILIES / "gpt2"), "--dim", "context", "-o", "x.toml", code=2)
    assert "NF-USAGE-360" in wrong
    wrong = said(capfd, "new", str(FAMILIES / "gpt2"), "--dim", "contxt=3", "-o", "x.toml", code=2)
    assert "NF-MODEL-455" in wrong and "context" in wrong


@pytest.mark.parametrize(("sizes", "dims", "shapes"), [
    (["context=16"], {"context": 16}, [{"chunk": 1}, {"chunk": 8}]),
    (["context=27"], {"context": 27}, [{"chunk": 1}, {"chunk": 8}]),
    (["context=3"], {"chunk": 1, "context": 3}, None),
    (["chunk=1"], {"chunk": 1, "context": 128}, None),
    (["chunk=4", "context=16"], {"chunk": 4, "context": 16}, None),
])
def test_new_writes_a_program_for_prompts_and_one_for_answers(
    sizes: list[str], dims: dict[str, int], shapes: object, capfd: pytest.CaptureFixture[str]
) -> None:
    """Twice the longer chunk fits the cache; a chunk that is stated is the only one."""
    words = [word for size in sizes for word in ("--dim", size)]
    said(capfd, "new", str(FAMILIES / "llama"), *words, "-o", "net.toml")
    model = tomllib.loads(Path("net.toml").read_text())["model"]
    assert model["dims"] == dims and model.get("shapes") == shapes


def test_a_checkpoint_runs_token_by_token(gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By onnxruntime, with its own state between the samples."""
    fed, _ = expected(FAMILIES / "llama")
    wanted = Running(gguf_file, context=128).logits(fed, (1,) * 6)
    runner = Runner(str(gguf_file))
    found = np.concatenate([runner.run({"tokens": fed[:, i : i + 1]})["logits"] for i in range(6)])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=NEAR * np.abs(wanted).max())
    np.savez("tokens.npz", tokens=fed[0, :6, None, None])
    said(capfd, "run", str(gguf_file), "tokens.npz", "-o", "logits.npz")
    with np.load("logits.npz") as held:
        np.testing.assert_allclose(held["logits"].reshape(6, -1), found, rtol=1e-6, atol=1e-5)


@pytest.mark.slow
def test_a_build_keeps_the_cache_between_runs(gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From sequences of tokens; the program follows the float network, and not one that forgets. A prompt
    runs in a chunk, and gives what its tokens give one by one."""
    tokens = np.random.default_rng(0).integers(3, 80, (8, 12, 1, 1))
    np.savez("calib.npz", tokens=tokens)
    said(capfd, "new", str(gguf_file), "--target", "edge-8t", "--dim", "context=16", "-o", "net.toml")
    sets = ["data.source=calib.npz", "unify.scales=off", "correct.bias=off", "precision.strategy=none"]
    sets += ["quantize.activations.bits=16", "sequences.samples=48", "tiling.level=1"]
    sets += ["verdict.advice=false", "qdq_check.samples=0", "rewrite_check.samples=0", "simulate.samples=1"]
    options = [part for one in sets for part in ("--set", one)]
    assert "different 0, hazards 0" in said(capfd, "build", "net.toml", *options)
    runner, (fed, _) = Runner("out/net/model.npu"), expected(FAMILIES / "llama")
    own = np.stack([runner.run({"tokens": fed[:, i : i + 1]})["logits"][0] for i in range(12)])
    network = Running(gguf_file, context=16)
    plain = network.logits(fed, (1,) * 12)
    forgetful = np.concatenate([network.logits(fed[:, i:], (1,)) for i in range(12)])
    near, far = (((own - other)[1:] ** 2).mean() for other in (plain, forgetful))
    assert near < far / 2
    runner.reset()
    again = runner.run({"tokens": fed[:, :1]})["logits"][0]
    np.testing.assert_array_equal(again, own[0])
    session = runner.session()
    np.testing.assert_array_equal(session.append(fed[0, :10].tolist()), own[9])
    assert session.runs == {8: 1, 1: 2}
    with pytest.raises(DataError, match='"position" is 16; the program runs at 0 to 15'):
        for i in range(1, 17):
            runner.run({"tokens": fed[:, i : i + 1]})
    with pytest.raises(DataError, match="index 80"):
        runner.steps().run({"tokens": np.array([[80]])})
