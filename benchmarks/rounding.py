"""Rounding methods on one network: what they cost, and what they keep with float and
with quantised activations.

    python benchmarks/rounding.py SCORER TASK RECIPE [--bits 4 3] [--methods nearest gptq coordinate] [--limit
        N] [--mode parallel|sequential|blocks] [--simulate] [--cache DIR] [--set KEY=VALUE ...]

SCORER and TASK as for accuracy.py; RECIPE names no rounding method. First the moments: processor time of
observing the calibration samples and of summing up, in passes of the float network by onnxruntime, everything
on one thread in this process. Then every method: processor time for all layers, and figures of the float
network with the weights that its codes stand for (biases take up the mean in all rows, nearest included).
Last the quantised network, activations and biases as the recipe says: its codes as onnxruntime computes them
between exact roundings, or with --simulate the program on the bit-exact simulator. With --mode sequential or
blocks, weights are those of such a build.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import Task, module, task_parser

from npuflow import build, load_program, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.hw.target import Numerics
from npuflow.onnx.export import export_model
from npuflow.quantise.config import Weights
from npuflow.rounders import ROUNDERS
from npuflow.run.floats import float_session
from npuflow.stages.moments import LayerMoments, PickedSample
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.rounded import Rounded
from npuflow.tune.error import outputs_of
from npuflow.tune.rounding import moments as counting
from npuflow.tune.rounding.columns import ColumnObserver
from npuflow.tune.rounding.rounded import LayerScheme, rounded
from npuflow.tune.rounding.weights import with_weights

CHUNK = 32                                # samples that are in memory at once
FIGURES = ("top1", "f1", "recall", "ap50", "agreement", "sqnr_db")


def shown(line: dict[str, Any]) -> str:
    held = {key: line[key] for key in FIGURES if line.get(key) is not None}
    return ", ".join(f"{v:.2f} dB" if k == "sqnr_db" else f"{k} {v:.4f}" for k, v in held.items())


def spent(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the processor seconds it took."""
    start = time.process_time()
    return work(), time.process_time() - start


def pixels_fed(parsed: Parsed, feed: dict[str, Any]) -> dict[str, Any]:
    """What a model is fed as a graph takes it: an input of pixels has moved into the first layers."""
    made = dict(feed)
    for name, one in parsed.pixels.items():
        made[name] = (one.bytes(feed[name], name).astype(np.float32) - one.zero).astype(np.float32)
    return made


class Network:
    """The recipe's float network, its samples and moments, from the cache."""

    def __init__(self, recipe: Path, cache: Path | None, sets: Sequence[str]) -> None:
        settings = Settings(cache=cache)
        loaded = load_recipe(recipe, sets)
        self.recipe, self.cache, self.store = recipe, cache, open_cache(loaded, settings)
        store = self.store
        done = build(recipe, [*sets, "round.method='coordinate'"], until="rounded", cache=cache)
        name = next(name for name in ("equalize", "pixels", "checked", "parse") if name in done.refs)
        self.parsed: Parsed = store.load(done.outputs[name], Parsed)
        self.moments = [store.load(ref, LayerMoments) for ref in done.refs["moments"].items.values()]
        self.picked = [store.load(ref, PickedSample) for ref in done.refs["moments.picked"].items.values()]

    def cost(self) -> str:
        """What moments cost, with passes of the network as the unit."""
        graph, layers = self.parsed.graph, [one.layer for one in self.moments]
        kinds = {name: graph.type(name) for name in graph.inputs}
        feeds = [one.content.feed(kinds) for one in self.picked]
        plain = float_session(export_model(graph))
        names = [i.name for i in plain.get_inputs()]
        for _ in range(2):
            _, unit = spent(lambda: [plain.run(None, {n: feed[n] for n in names}) for feed in feeds])
        observer = ColumnObserver(graph, layers)
        found, seen = spent(lambda: [observer.columns(feed) for feed in feeds])
        stored = sum(codes.nbytes for codes in found[0])

        def summed() -> None:
            for k, layer in enumerate(layers):
                counting.of_columns((one[k] for one in found), layer.fraction)

        _, summing = spent(summed)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return (
            f"{len(feeds)} samples: plain pass {unit:.1f} s, columns {seen:.1f} s ({seen / unit:.2f} "
            "passes), "
            f"sums {summing:.1f} s ({summing / unit:.2f} passes); {stored / 1e6:.1f} MB of columns a sample, "
            f"peak {peak:.0f} MB with all of them in memory"
        )

    def outputs(
        self, method: str, bits: int, numerics: Numerics, feeds: Sequence[Any]
    ) -> tuple[list[Any], float]:
        """Outputs with float activations, and the processor time of rounding."""
        scheme = LayerScheme(ROUNDERS[method](), Weights(bits=bits), numerics)
        start, weights = time.process_time(), {}
        for one in self.moments:
            done = rounded(scheme, one.matrix, one.layer.bias, one.fit, one.held)
            weights[one.layer.weight] = done.weight
        seconds = time.process_time() - start
        run = float_session(export_model(with_weights(self.parsed.graph, weights)))
        names = [i.name for i in run.get_inputs()]
        return [run.run(None, {n: feed[n] for n in names})[0] for feed in feeds], seconds

    def built(self, mode: str, sets: Sequence[str], feeds: Sequence[Any]) -> list[Any]:
        """Outputs with float activations, of weights that a build rounded in the stage of that name."""
        done = build(self.recipe, sets, until=mode, cache=self.cache)
        weights = self.store.load(done.outputs[mode], Rounded).weights
        return outputs_of(with_weights(self.parsed.graph, weights), feeds)[0]

    def quantised(self, sets: Sequence[str], task: Task, feeds: Sequence[Any]) -> dict[str, Any]:
        """Figures of the quantised network with corrected biases, in onnxruntime."""
        done = build(self.recipe, sets, until="correct", cache=self.cache)
        graph = self.store.load(done.outputs["correct"], Quantized).graph
        made = [outputs_of(graph, feeds[at : at + CHUNK])[0] for at in range(0, len(feeds), CHUNK)]
        found = np.concatenate([one for part in made for one in part])
        figures: dict[str, Any] = task.scorer.score(
            task.task, {task.name: found}, {task.name: np.concatenate(task.base)}
        )
        return figures

    def simulated(self, sets: Sequence[str], task: Task) -> dict[str, Any]:
        """Figures of the program."""
        with tempfile.TemporaryDirectory() as out:
            done = build(self.recipe, sets, until="codegen", out=Path(out), cache=self.cache)
            return task.score(load_program(done.products["program"]))

    def fed(self, feed: dict[str, Any]) -> dict[str, Any]:
        """What a model is fed as this graph takes it: an input of pixels has moved into the first layers."""
        return pixels_fed(self.parsed, feed)


def asked(args: argparse.Namespace) -> tuple[Task, Network]:
    """The task and the network of a command line."""
    model = args.recipe.parent / Path(load_recipe(args.recipe).tables["model"]["path"])
    return Task(module(args.scorer), args.task, model, args.limit), Network(args.recipe, args.cache, args.set)


def main() -> None:
    parser = task_parser(__doc__)
    parser.add_argument("--bits", type=int, nargs="+", default=[4])
    parser.add_argument("--methods", nargs="+", default=["nearest", "gptq", "coordinate"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--mode", choices=["parallel", "sequential", "blocks"], default="parallel")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    task, network = asked(args)
    print(network.cost(), flush=True)
    feeds = [network.fed(feed) for feed in task.samples()]
    numerics = Numerics(weight_bits=(2, 4, 8, 16))
    print("| bits | method | rounding | float activations | quantised |\n| --- | --- | --- | --- | --- |")
    for bits in args.bits:
        for method in args.methods:
            sets = [*args.set, f"round.method='{method}'", f"quantize.weights.bits={bits}"]
            if args.mode != "parallel":
                sets.append(f"round.mode='{args.mode}'")
                found, took = network.built(args.mode, sets, feeds), args.mode
            else:
                found, seconds = network.outputs(method, bits, numerics, feeds)
                took = f"{seconds:.1f} s"
            line = task.scorer.score(
                args.task, {task.name: np.concatenate(found)}, {task.name: np.concatenate(task.base)}
            )
            whole = network.simulated(sets, task) if args.simulate else network.quantised(sets, task, feeds)
            print(f"| {bits} | {method} | {took} | {shown(line)} | {shown(whole)} |", flush=True)


if __name__ == "__main__":
    main()
