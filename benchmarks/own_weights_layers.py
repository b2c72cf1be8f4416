"""Which matrices of a checkpoint cost perplexity when npuflow rounds its weights.

    python benchmarks/own_weights_layers.py FILE.gguf --set KEY=VALUE... --without NAME[,NAME...]
        [--without ...] [--windows 4] [--cache DIR] [--calibration 32]

The float network with the numbers that rounded codes stand for, beside itself: `ratio` is perplexity over
that without any of them, on the first windows of text A of own_weights.py, whose recipe and calibration text
these are. `--without`: matrices that keep their floats (`attn_v`, or `blk.3.`). Activations are floats.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import text_perplexity
from own_weights import recipe_of, windows_of

from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import tokenizer
from npuflow.frontends import Bindings
from npuflow.input.sources import gathered
from npuflow.run.floats import FloatRun
from npuflow.run.state import zeros
from npuflow.stages.parse import rewritten
from npuflow.stages.rounded import Rounded
from npuflow.testing.stage import built
from npuflow.tune.rounding.weights import with_weights

WINDOW = text_perplexity.WINDOW


def rounded_of(recipe: Path, cache: Path, sets: list[str]) -> dict[str, Any]:
    """The weights that were rounded and are used, by name."""
    found = built(recipe, cache, "rounded", sets).products("rounded").values()
    (made,) = (one for one in found if isinstance(one, Rounded))
    return dict(made.weights)


def losses(graph: Any, held: Any, windows: Any) -> Any:
    """[window, token]"""
    run, rows = FloatRun.of(graph, ("logits:all",)), []
    for window in windows:
        (logits,) = run.run({**held, "tokens": window[None]}).values()
        rows.append(text_perplexity.losses(logits.reshape(WINDOW, -1)[:-1], window[1:]))
    return np.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--set", nargs="+", default=[])
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--calibration", type=int, default=32)
    parser.add_argument("--cache", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="npuflow-weights-") as place:
        recipe = recipe_of(Path(place), chosen.checkpoint, "bm1684x", chosen.calibration)
        rounded = rounded_of(recipe, chosen.cache or Path(place) / "cache", chosen.set)
    _, reader, source = gathered(chosen.checkpoint)
    sizes = {"chunk": WINDOW, "context": WINDOW}
    read = reader.read(source, Bindings(dims=sizes, outputs=("logits:all",)))
    graph, held = rewritten(read).graph, zeros(read.graph)
    windows = windows_of(tokenizer(opened(chosen.checkpoint)), "A")[: chosen.windows]
    floats = losses(graph, held, windows)
    print("| matrices in floats | ratio |\n| --- | ---: |", flush=True)
    for names in ["", *chosen.without]:
        left = names.split(",") if names else []
        some = {name: one for name, one in rounded.items() if not any(part in name for part in left)}
        ratio = np.exp((losses(with_weights(graph, some), held, windows) - floats).mean())
        print(f"| {', '.join(left) or 'none'} | {ratio:.4f} |", flush=True)


if __name__ == "__main__":
    main()
