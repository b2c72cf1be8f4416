"""Builds calibrated and evaluated by text: figures against the float network, and what an edit runs again."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.cli import main
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from npuflow.ir.types import Array
from npuflow.testing.stage import built
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES, Running
from tests.checkpoints.texts import code, made

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("place")

LIGHT = {
    "unify.scales": "off", "correct.bias": "off", "precision.strategy": "none", "sequences.samples": "80",
    "quantize.activations.bits": "16", "tiling.level": "1",
}
CALIBRATION = "THE RIVER BEGINS AS MANY SMALL THINGS AT ONCE. RAIN FALLS ON A HILL, AND SINKS INTO THE SOIL."
EVALUATION = "SNOW IS NOT SIMPLY FROZEN RAIN."


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*args: str, code: int = 0) -> str:
        capfd.readouterr()
        assert main(list(args)) == code
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return out + err

    return run


def options(**more: str) -> list[str]:
    return [part for key, value in {**LIGHT, **more}.items() for part in ("--set", f"{key}={value}")]


def recipe(said: Callable[..., str], folder: Path) -> None:
    """The recipe of a tiny Llama, of one token a run, with two calibration texts and one for the evaluation.
    """
    made(folder / "net")
    for part in ("calib", "eval"):
        (folder / "texts" / part).mkdir(parents=True)
    (folder / "texts/calib/a.txt").write_text(CALIBRATION)
    (folder / "texts/calib/b.txt").write_text(CALIBRATION.replace("RIVER", "STREAM"))
    (folder / "texts/eval/e.txt").write_text(EVALUATION)
    sizes = ("--dim", "chunk=1", "--dim", "context=16")
    said("new", "net", "--data", "texts", "--target", "edge-8t", *sizes, "-o", "net.toml")


def levels(tokens: list[int]) -> Array:
    """Logarithms of the float network's probabilities behind each of the tokens."""
    logits = Running(Path("net"), context=16).logits(np.array([tokens]), (1,) * len(tokens))
    raised = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    return np.log(raised / raised.sum(1, keepdims=True))


def measured(said: Callable[..., str], **more: str) -> Any:
    text = said("eval", "net.toml", "--json", *options(**more))
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


@pytest.mark.slow
def test_a_program_is_judged_by_the_tokens_of_a_text(said: Callable[..., str], tmp_path: Path) -> None:
    recipe(said, tmp_path)
    table = tomllib.loads(Path("net.toml").read_text())
    assert table["data"] == {"text": "texts/calib", "window": 16}
    assert table["evaluate"] == {"text": "texts/eval", "window": 16, "count": 4, "metric": "perplexity"}
    found = measured(said)
    ids = code(EVALUATION[:16])
    wanted = np.exp(-np.mean([row[t] for row, t in zip(levels(ids), ids[1:], strict=False)]))
    assert found["baseline"]["perplexity"] == pytest.approx(wanted, rel=1e-4)
    assert found["figures"]["perplexity"] == pytest.approx(wanted, rel=0.05)
    assert found["samples"] == 16 and found["better"] == "lower"
    divergence = measured(said, **{"evaluate.metric": "kl"})
    assert 0 < divergence["figures"]["kl"] < 0.05 and divergence["baseline"]["kl"] == 0

    rows = [{"context": "SNOW IS", "choices": [" NOT", " RAIN.", "N"], "answer": 0},
            {"context": "RAIN F", "choices": ["ALLS", "UN"], "answer": 1}]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    right = []
    for row in rows:
        sums = []
        for choice in row["choices"]:
            ids, first = code(row["context"] + choice), len(row["context"])
            sums.append(sum(levels(ids)[i - 1, ids[i]] for i in range(first, len(ids))))
        right.append(int(np.argmax(sums)) == row["answer"])
    more = {"evaluate.metric": "choice", "evaluate.text": "q.jsonl"}
    assert measured(said, **more)["baseline"]["choice"] == np.mean(right)


def ran(folder: Path, until: str) -> set[str]:
    """The stages of which a step ran."""
    settings = Settings(cache=folder / "cache", until=until)
    recipe = load(folder / "net.toml", options()[1::2])
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    found: set[str] = set()

    def note(event: Any) -> None:
        if getattr(event, "status", None) == "ran":
            found.add(event.stage)

    run_plan(plan, recipe, store, settings, note).check()
    return found


@pytest.mark.promise("text-edit-reruns-its-windows")
def test_an_edit_of_a_text_runs_again_what_depends_on_it(said: Callable[..., str], tmp_path: Path) -> None:
    """Words behind the last window change no sample; others change what is made of the samples."""
    recipe(said, tmp_path)
    assert {"samples", "sequences"} <= ran(tmp_path, "sequences")
    assert ran(tmp_path, "sequences") == set()
    Path("texts/eval/e.txt").write_text(EVALUATION.replace("SNOW", "HAIL"))
    assert ran(tmp_path, "sequences") == set()
    assert "evaluation_inputs" in ran(tmp_path, "evaluation_inputs")
    longer = Path("texts/calib/b.txt")
    longer.write_text(longer.read_text() + "!")
    assert "sequences" not in ran(tmp_path, "sequences")
    longer.write_text(longer.read_text().replace("STREAM", "BROOKS"))
    assert {"samples", "sequences"} <= ran(tmp_path, "sequences")


def test_texts_need_the_package_of_tokenizers(
    said: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe(said, tmp_path)
    from npuflow.input.text import model

    model._opened.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    shown = said("plan", "net.toml", code=2)
    assert "NF-MODEL-466" in shown and "npuflow[llm]" in shown


def test_a_checkpoint_without_a_tokenizer_gets_random_data(said: Callable[..., str], tmp_path: Path) -> None:
    write(FAMILIES / "llama", tmp_path / "net.gguf", "Q4_1")
    said("new", "net.gguf", "-o", "net.toml")
    assert tomllib.loads(Path("net.toml").read_text())["data"] == {"source": "random"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edge-8t", "bm1684x"])
def test_a_new_recipe_builds_with_no_edit(target: str, said: Callable[..., str], tmp_path: Path) -> None:
    made(tmp_path / "net")
    said("new", "net", "--target", target, "--dim", "context=32", "-o", "net.toml")
    shown = said("build", "net.toml", "--set", "evaluate.count=1", "--set", "data.count=12")
    assert re.search(r"perplexity [\d.]+ \(float [\d.]+\) on 32 evaluation samples", shown)
    assert "different 0, hazards 0" in shown and "RANDOM" not in shown


def test_samples_are_chunks_of_the_first_shape(said: Callable[..., str], tmp_path: Path) -> None:
    """Of several chunk lengths, calibration is at the first, whichever is longer."""
    recipe(said, tmp_path)
    text = Path("net.toml").read_text().replace("chunk = 1, context = 16", "context = 16")
    for shapes, wanted in (("[{ chunk = 4 }, { chunk = 1 }]", 4), ("[{ tokens = [1, 2] }]", 2)):
        Path("net.toml").write_text(text)
        name = f"model.shapes={shapes}"
        steps = built(Path("net.toml"), tmp_path / "cache", "sequences", (name, *options()[1::2]))
        (tokens,) = {one.content.arrays["tokens"].shape for one in steps.products("sequences").values()}
        assert tokens == (1, wanted)
