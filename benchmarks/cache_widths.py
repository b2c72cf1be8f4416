"""The perplexity of a language model's integer graph with other choices of the recipe, beside the graph
without them, on the same windows.

    python benchmarks/cache_widths.py FILE.gguf [--target bm1684x] [--text A] [--windows N] [--first N]
        [--cache DIR] [--set KEY=VALUE]... [--other KEY=VALUE]...

`--set` holds for both, `--other` for the second alone (`quantize.cache=8`). Texts are those of
text_perplexity.py; windows of 256 tokens, nothing in front, the first token is not scored. A window is one
run of the executor over the integer graph, with a chunk of 256: decode token by token has the same bits.
`ratio`: perplexity with the choices over that without; the interval is that of 95 % of 10,000 resamplings
of the windows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import text_perplexity

NUMBERS = {"edge-8t": "activations.bits = 16", "bm1684x": 'mode = "bf16"'}
RECIPE = """target = "{target}"
[model]
path = "{path}"
dims = {{ chunk = 256, context = 288 }}
outputs = ["logits:all"]
[data]
{data}
[quantize]
{numbers}
[precision]
strategy = "none"
[correct]
bias = "off"
"""


def graph_of(recipe: Path, cache: Path, sets: list[str]) -> Any:
    from npuflow.testing.stage import built

    begun = time.perf_counter()
    (product,) = built(recipe, cache, "quantize", sets).products("quantize").values()
    print(f"{' '.join(sets) or 'as it is'}: quantised in {time.perf_counter() - begun:.0f} s", flush=True)
    return product.graph  # type: ignore[attr-defined]


def state_of(graph: Any) -> dict[str, Any]:
    """An empty state."""
    held: dict[str, Any] = {}
    for _, given in graph.state:
        kind, quant = graph.values[given].type, graph.values[given].quant
        held[given] = np.zeros(kind.shape, kind.dtype if quant is None else quant.dtype)
    return held


def scores(graph: Any, numerics: Any, windows: Any) -> text_perplexity.Scores:
    from npuflow.whole.execute.executor import Executor

    run, rows, held = Executor(graph, numerics, 1), [], state_of(graph)
    for at, window in enumerate(windows):
        begun = time.perf_counter()
        logits = run.run({**held, "tokens": window[None]})["logits:all"].reshape(len(window), -1)[:-1]
        rows.append((text_perplexity.losses(logits, window[1:]), logits.argmax(-1)))
        took = time.perf_counter() - begun
        print(f"window {at}: {np.exp(rows[-1][0].mean()):.3f}, {took:.0f} s", flush=True)
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--target", default="bm1684x", choices=sorted(NUMBERS))
    parser.add_argument("--text", default="A", choices=("A", "B"))
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--other", action="append", default=[])
    chosen = parser.parse_args()
    from shapes import target_named

    from npuflow.checkpoints import opened
    from npuflow.checkpoints.tokenizer import tokenizer

    text = text_perplexity.text_of(chosen.text)
    total = text_perplexity.TOKENS
    tokens = tokenizer(opened(chosen.checkpoint)).encode(text[: 8 * total])[:total]
    windows = np.array(tokens, np.int64).reshape(-1, text_perplexity.WINDOW)
    windows = windows[chosen.first :][: chosen.windows]
    numerics = target_named(chosen.target).numerics
    with tempfile.TemporaryDirectory(prefix="npuflow-widths-") as place:
        folder = Path(place)
        recipe = folder / "net.toml"
        numbers = NUMBERS[chosen.target]
        recipe.write_text(
            RECIPE.format(
                target=chosen.target, path=chosen.checkpoint.resolve(), numbers=numbers,
                data='text = "builtin"',
            )
        )
        cache = chosen.cache or folder / "cache"
        found = [
            scores(graph_of(recipe, cache, sets), numerics, windows)
            for sets in (chosen.set, [*chosen.set, *chosen.other])
        ]
    print(json.dumps(text_perplexity.compared(*found)))


if __name__ == "__main__":
    main()
