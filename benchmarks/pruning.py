"""Pruned networks: what zeros cost, by pattern, choice and refit.

    python benchmarks/pruning.py SCORER TASK RECIPE [--patterns 2:4 4:8 rows] [--limit N] [--skip NAME ...]
        [--bits 8] [--channels 0.125 0.25] [--cache DIR] [--set KEY=VALUE ...]

SCORER and TASK as for accuracy.py. For every pattern: weights chosen by magnitude and left as they are,
chosen and refitted by second moments, and refitted one layer after the other. Figures with float activations
are those of the float network with the weights that the codes stand for; quantised ones of the quantised
graph, activations and biases as the recipe says, its codes computed by onnxruntime between exact roundings.
With --channels, a table of whole channels removed, by share, choice and refit, with the cycles and megabytes
that the plan predicts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import Task, module, task_parser
from rounding import CHUNK, Network, asked, pixels_fed, shown, spent

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.rounded import Rounded
from npuflow.tune.error import outputs_of
from npuflow.tune.rounding.weights import with_weights

WAYS = {
    "magnitude, not refitted": ["prune.method='magnitude'", "prune.refit=false"],
    "moments, refitted": [],
    "the same, one layer after the other": ["round.mode='sequential'"],
}

CHANNEL_WAYS = {
    "magnitude, not refitted": ["prune.channels.method='magnitude'", "prune.channels.refit=false"],
    "magnitude, refitted": ["prune.channels.method='magnitude'"],
    "moments, refitted": [],
}


def without_channels(recipe: Path, cache: Path | None, sets: Sequence[str], task: Task) -> str:
    """Figures in float and quantised, cycles and megabytes."""
    feeds = list(task.samples())
    done = build(recipe, sets, until="correct", cache=cache)
    plan = build(recipe, sets, until="tiling", cache=cache)
    store = open_cache(load_recipe(recipe, sets), Settings(cache=cache))
    parsed = store.load(done.outputs["pruned" if "pruned" in done.outputs else "pixels"], Parsed)
    fed = [pixels_fed(parsed, feed) for feed in feeds]
    rows = []
    for graph in (parsed.graph, store.load(done.outputs["correct"], Quantized).graph):
        parts = [outputs_of(graph, fed[at : at + CHUNK])[0] for at in range(0, len(fed), CHUNK)]
        arrays = [{task.name: np.concatenate(one)} for one in ([a for p in parts for a in p], task.base)]
        rows.append(shown(task.scorer.score(task.task, *arrays)))
    known = store.load(plan.outputs["tiling"], signature(STAGES["tiling"]).output).summary()
    return " | ".join([*rows, f"{known['cycles']:,}", f"{known['mb']}"])


def figures(network: Network, sets: Sequence[str], task: Task, feeds: Sequence[Any]) -> list[str]:
    """With float activations, and quantised."""
    until = "sequential" if any("sequential" in one for one in sets) else "rounded"
    done = build(network.recipe, sets, until=until, cache=network.cache)
    weights = network.store.load(done.outputs[until], Rounded).weights
    found = outputs_of(with_weights(network.parsed.graph, weights), feeds)[0]
    arrays = [{task.name: np.concatenate(one)} for one in (found, task.base)]
    return [shown(task.scorer.score(task.task, *arrays)), shown(network.quantised(sets, task, feeds))]


def main() -> None:
    parser = task_parser(__doc__)
    parser.add_argument("--patterns", nargs="+", default=["2:4", "4:8", "rows"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--skip", nargs="+", default=[])
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--channels", type=float, nargs="+", default=[])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    if args.channels:
        model = args.recipe.parent / Path(load_recipe(args.recipe).tables["model"]["path"])
        task = Task(module(args.scorer), args.task, model, args.limit)
        print("| share | channels | float activations | quantised | cycles | MB |\n" + "| --- " * 6 + "|")
        line = without_channels(args.recipe, args.cache, args.set, task)
        print(f"| 0 | all | {line} |", flush=True)
        for share in args.channels:
            for name, more in CHANNEL_WAYS.items():
                sets = [*args.set, f"prune.channels.share={share}", *more]
                line = without_channels(args.recipe, args.cache, sets, task)
                print(f"| {share} | {name} | {line} |", flush=True)
        return
    task, network = asked(args)
    feeds = [network.fed(feed) for feed in task.samples()]
    print("| pattern | weights | build | float activations | quantised |\n| --- | --- | --- | --- | --- |")
    for pattern in args.patterns:
        for name, more in WAYS.items():
            sets = [*args.set, f"prune.pattern='{pattern}'", f"prune.skip={args.skip}", *more]
            sets.append(f"quantize.weights.bits={args.bits}")
            found, seconds = spent(lambda sets=sets: figures(network, sets, task, feeds))
            print(f"| {pattern} | {name} | {seconds:.0f} s | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
