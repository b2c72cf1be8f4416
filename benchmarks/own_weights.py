"""A checkpoint whose weights npuflow quantises itself: perplexity over the float network's, and how often
its likeliest token is the float network's.

    python benchmarks/own_weights.py FILE.gguf --case LABEL [KEY=VALUE...] [--case ...] [--target bm1684x]
        [--texts AB] [--windows 12] [--prompts 20] [--cache DIR] [--calibration 32] [--floats FILE.npz]
    python benchmarks/own_weights.py --rows OUTPUT...          # of earlier runs, as tables

`--case`: a label and what it changes of the recipe (`parse.stated=false quantize.weights.bits=4`). Texts are
those of text_perplexity.py; windows of 256 tokens, nothing in front, the first token is not scored.
Calibration: the last windows of text B, as many as `--calibration` says, which no figure here looks at.

Prompts: of text A the even ones and of text B the odd ones, prompt k is the first 32 tokens of window
63 - k. The float network continues each by its likeliest tokens, 32 of them; with these fed, `continued` is
the share of the 32 that are the integer graph's likeliest ones too, and `prompt` the share of the prompt's
own 31 following places where the likeliest tokens are the same.

A window is one run of the executor over the integer graph, with a chunk of 256: decode token by token has the
same bits. `ratio`: perplexity over float's; the interval is that of 95 % of 10,000 resamplings of windows.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import text_perplexity
from cache_widths import NUMBERS, RECIPE, graph_of, state_of
from shapes import target_named

from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import tokenizer

WINDOW, PROMPT = text_perplexity.WINDOW, 32
MOMENTS = """[moments]
held_out = 4
positions = 256
"""


def windows_of(words: Any, text: str) -> Any:
    """[64, 256]: the first tokens of a text."""
    tokens = words.encode(text_perplexity.text_of(text)[: 8 * text_perplexity.TOKENS])
    return np.array(tokens[: text_perplexity.TOKENS], np.int64).reshape(-1, WINDOW)


def calibration_of(words: Any, count: int) -> str:
    """The end of text B, some more than so many windows of 256 tokens."""
    text = text_perplexity.text_of("B")[-8 * WINDOW * count :]
    return str(words.decode(words.encode(text)[-(count + 1) * WINDOW :]))


def prompts_of(held: dict[str, Any], count: int) -> Any:
    """[count, 32]"""
    return np.array([held["AB"[k % 2]][63 - k, :PROMPT] for k in range(count)], np.int64).reshape(-1, PROMPT)


def continued(checkpoint: Path, prompts: Any) -> Any:
    """[prompts, 64]: prompts with the 32 tokens that the float network finds likeliest one after another."""
    from npuflow.frontends import Bindings
    from npuflow.input.sources import gathered
    from npuflow.run.floats import FloatRun
    from npuflow.run.state import zeros
    from npuflow.stages.parse import rewritten

    _, reader, source = gathered(checkpoint)
    found = reader.read(source, Bindings(dims={"chunk": 1, "context": 2 * PROMPT}))
    graph = rewritten(found).graph
    run, state = FloatRun.of(graph, [*graph.outputs]), dict(graph.state)
    made = []
    for prompt in prompts:
        held, tokens = zeros(found.graph), list(prompt)
        for at in range(2 * PROMPT - 1):
            results = run.run({**held, "tokens": np.array([[tokens[at]]], np.int64)})
            held = {given: results[output] for output, given in state.items()}
            if at + 1 >= len(tokens):
                tokens.append(int(results["logits"].reshape(-1).argmax()))
        made.append(tokens)
    return np.array(made, np.int64).reshape(-1, 2 * PROMPT)


def of_floats(checkpoint: Path, texts: dict[str, Any], prompts: Any) -> dict[str, Any]:
    """Of the float network: losses and likeliest tokens of windows, continued prompts, and their likeliest
    tokens."""
    made: dict[str, Any] = {}
    for text, some in texts.items():
        made[f"{text}:losses"], made[f"{text}:likeliest"] = text_perplexity.of_floats(checkpoint, some)
    made["prompts"] = continued(checkpoint, prompts)
    padded = np.pad(made["prompts"], ((0, 0), (0, WINDOW - 2 * PROMPT)))
    likely = text_perplexity.of_floats(checkpoint, padded)[1] if len(padded) else padded
    made["likeliest"] = likely[:, : 2 * PROMPT - 1]
    return made


def likeliest(graph: Any, numerics: Any, texts: Any, scores: bool) -> text_perplexity.Scores:
    """Losses and likeliest tokens of the integer graph, [text, token]."""
    from npuflow.whole.execute.executor import Executor

    run, held, rows = Executor(graph, numerics, 1), state_of(graph), []
    for text in texts:
        fed = np.zeros(WINDOW, np.int64)
        fed[: len(text)] = text
        logits = run.run({**held, "tokens": fed[None]})["logits:all"].reshape(WINDOW, -1)[: len(text) - 1]
        losses = text_perplexity.losses(logits, text[1:]) if scores else np.zeros(len(text) - 1)
        rows.append((losses, logits.argmax(-1)))
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


def agreement(tokens: Any, floats: Any) -> dict[str, float]:
    same = tokens == floats
    return {"prompt": float(same[:, : PROMPT - 1].mean()), "continued": float(same[:, PROMPT - 1 :].mean())}


def recipe_of(folder: Path, checkpoint: Path, target: str, calibration: int) -> Path:
    """The recipe that cases change, beside its calibration text."""
    words = tokenizer(opened(checkpoint))
    (folder / "calibration.txt").write_text(calibration_of(words, calibration))
    path, numbers = checkpoint.resolve(), NUMBERS[target]
    data = f'text = "calibration.txt"\nwindow = {WINDOW}'
    text = RECIPE.format(target=target, path=path, numbers=numbers, data=data)
    (folder / "net.toml").write_text(text + MOMENTS)
    return folder / "net.toml"


def tables(files: list[Path]) -> str:
    """Markdown tables of what runs printed."""
    lines = [line for file in files for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    made = ["| case | text | float | program | ratio | 95 % of resamplings | same likeliest token |"]
    made.append("| --- | --- | ---: | ---: | ---: | --- | ---: |")
    made += [
        f"| {r['case']} | {r['text']} | {r['float']:.3f} | {r['program']:.3f} | {r['ratio']:.4f} | "
        f"{r['low']:.4f} to {r['high']:.4f} | {r['greedy']:.1%} |" for r in rows if "text" in r
    ]
    made += ["", "| case | continued | prompt |", "| --- | ---: | ---: |"]
    made += [f"| {r['case']} | {r['continued']:.1%} | {r['prompt']:.1%} |" for r in rows if "prompt" in r]
    return "\n".join(made)


def main() -> None:
    if sys.argv[1:2] == ["--rows"]:
        print(tables([Path(name) for name in sys.argv[2:]]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--case", action="append", nargs="+", required=True)
    parser.add_argument("--target", default="bm1684x", choices=sorted(NUMBERS))
    parser.add_argument("--texts", default="AB")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--calibration", type=int, default=32)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--floats", type=Path, help="a file that keeps what the float network said")
    chosen = parser.parse_args()
    words, numerics = tokenizer(opened(chosen.checkpoint)), target_named(chosen.target).numerics
    every = {text: windows_of(words, text) for text in "AB"}
    texts = {text: every[text][: chosen.windows] for text in chosen.texts}
    kept = chosen.floats if chosen.floats is not None and chosen.floats.exists() else None
    if kept is None:
        kept = chosen.floats or Path(tempfile.mkdtemp()) / "floats.npz"
        np.savez(kept, **of_floats(chosen.checkpoint, texts, prompts_of(every, chosen.prompts)))
    held = np.load(kept)
    asked, fair = held["prompts"], held["likeliest"]
    floats = {text: (held[f"{text}:losses"], held[f"{text}:likeliest"]) for text in texts}
    with tempfile.TemporaryDirectory(prefix="npuflow-weights-") as place:
        cache = chosen.cache or Path(place) / "cache"
        recipe = recipe_of(Path(place), chosen.checkpoint, chosen.target, chosen.calibration)
        for label, *sets in chosen.case:
            graph, begun = graph_of(recipe, cache, sets), time.perf_counter()
            for text, some in texts.items():
                found = text_perplexity.compared(floats[text], likeliest(graph, numerics, some, True))
                print(json.dumps({"case": label, "text": text, **found}), flush=True)
            if len(asked):
                tokens = likeliest(graph, numerics, asked, False)[1]
                print(json.dumps({"case": label, **agreement(tokens, fair)}), flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            took = time.perf_counter() - begun
            print(f"{label}: scored in {took:.0f} s, peak {peak:.1f} GB", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
