"""The perplexity of a language model's program over its checkpoint's in floats.

    python benchmarks/text_perplexity.py PROGRAM CHECKPOINT [--text A] [--windows N] [--first N] [--batch N]

Text A: the first 16,384 tokens of `"".join(pydoc_data.topics.topics.values())`.
Text B: as many of the docstrings of the standard library's modules, in sorted order of their names.

Windows of 256 tokens, nothing in front; the first token is not scored. The program runs on the executor, one
token a run, windows side by side; the float network takes a window in one run. `ratio`: perplexity over
float's; the interval is that of 95 % of 10,000 resamplings of the windows, both networks on the same ones.
`greedy`: how often the program's likeliest token is float's.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import pydoc_data.topics
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WINDOW, TOKENS = 256, 16384
Scores = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # losses and likeliest tokens, [window, token]


def docstrings() -> Iterator[str]:
    """Those of modules, classes and functions of the standard library, file by file."""
    root = Path(sysconfig.get_paths()["stdlib"])
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name in sorted(sys.stdlib_module_names):
        place = root / f"{name}.py"
        place = place if place.exists() else root / name / "__init__.py"
        if not place.exists():
            continue
        for node in ast.walk(ast.parse(place.read_bytes())):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield text + "\n"


def text_of(name: str) -> str:
    if name == "A":
        return "".join(pydoc_data.topics.topics.values())
    return "".join(docstrings())


def losses(logits: Any, following: Any) -> Any:
    """-log of what is given to the tokens that follow."""
    rows = np.asarray(logits, np.float64)
    rows = rows - rows.max(-1, keepdims=True)
    chosen = np.take_along_axis(rows, np.asarray(following)[..., None], -1)[..., 0]
    return np.log(np.exp(rows).sum(-1)) - chosen


def of_floats(checkpoint: Path, windows: Any) -> Scores:
    """The float network, a window in a run."""
    from npuflow.frontends import Bindings
    from npuflow.input.sources import gathered
    from npuflow.run.floats import FloatRun
    from npuflow.run.state import zeros
    from npuflow.stages.parse import rewritten

    _, reader, source = gathered(checkpoint)
    found = reader.read(source, Bindings(dims={"chunk": WINDOW, "context": WINDOW}, outputs=("logits:all",)))
    graph = rewritten(found).graph
    run, held = FloatRun.of(graph, ("logits:all",)), zeros(found.graph)
    rows = []
    for window in windows:
        (logits,) = run.run({**held, "tokens": window[None]}).values()
        logits = logits.reshape(WINDOW, -1)[:-1]
        rows.append((losses(logits, window[1:]), logits.argmax(-1)))
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


def of_program(program: Path, windows: Any, batch: int) -> Scores:
    """The program, token by token, some windows at once."""
    import npuflow

    runner = npuflow.Runner(program, batch=batch)
    backend, found = runner.backend, []
    for first in range(0, len(windows), batch):
        some = windows[first : first + batch]
        held: list[dict[str, Any]] = [dict(backend.start) for _ in some]
        kept, begun = [], time.perf_counter()
        for at in range(WINDOW - 1):
            given = [{**h, "tokens": w[None, at : at + 1]} for h, w in zip(held, some, strict=True)]
            made = backend.run([backend.fed(one) for one in given], False)
            held = [{name: one[output] for output, name in backend.state} for one in made]
            logits = np.stack([one["logits"].reshape(-1) for one in made])
            kept.append((losses(logits, some[:, at + 1]), logits.argmax(-1)))
        found.append(tuple(np.stack([one[i] for one in kept], 1) for i in (0, 1)))
        took = time.perf_counter() - begun
        print(f"windows {first} to {first + len(some) - 1}: {took:.0f} s", file=sys.stderr, flush=True)
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def compared(floats: Scores, program: Scores) -> dict[str, float]:
    difference = (program[0] - floats[0]).mean(1)
    drawn = np.random.default_rng(0).integers(0, len(difference), (10_000, len(difference)))
    low, high = np.exp(np.quantile(difference[drawn].mean(1), (0.025, 0.975)))
    return {
        "float": float(np.exp(floats[0].mean())), "program": float(np.exp(program[0].mean())),
        "ratio": float(np.exp(difference.mean())), "low": float(low), "high": float(high),
        "greedy": float((program[1] == floats[1]).mean()), "scored": float(floats[0].size),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--text", default="A", choices=("A", "B"))
    parser.add_argument("--windows", type=int, default=TOKENS // WINDOW)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--batch", type=int, default=16)
    chosen = parser.parse_args()
    from npuflow.checkpoints import opened
    from npuflow.checkpoints.tokenizer import tokenizer

    text = text_of(chosen.text)
    tokens = tokenizer(opened(chosen.checkpoint)).encode(text[: 8 * TOKENS])[:TOKENS]
    windows = np.array(tokens, np.int64).reshape(-1, WINDOW)[chosen.first :][: chosen.windows]
    digest = hashlib.sha256(text.encode()).hexdigest()
    print(f"text {chosen.text}: {len(text):,} characters, sha256 {digest}, Python {sys.version.split()[0]}")
    floats = of_floats(chosen.checkpoint, windows)
    print(f"float, {len(windows)} windows: {np.exp(floats[0].mean()):.4f}", flush=True)
    print(json.dumps(compared(floats, of_program(chosen.program, windows, chosen.batch))))


if __name__ == "__main__":
    main()
