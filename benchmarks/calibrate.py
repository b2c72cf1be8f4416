"""Cost and quality of calibration: statistics and every threshold method, as multiples of a plain float pass.

    python benchmarks/calibrate.py cost RECIPE [--set KEY=VALUE ...] [--samples 32 128] [--peers]
    python benchmarks/calibrate.py memory RECIPE [--samples 32 128 512]
    python benchmarks/calibrate.py refine RECIPE [--samples 8 16]     processor time of [tune] and [search]
    python benchmarks/calibrate.py quality RECIPE [--set ...] [--count N]    needs an [evaluate] table

One thread. Decoding is excluded (samples are ready in memory, as they are for the plain pass), sessions are
included, compiled kernels are cached; what compiling them cold costs is printed. --peers:
onnxruntime.quantization's calibrators on the same model and samples (Entropy and Percentile with the first
32). Memory is that of a fresh process each.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from npuflow.calibrators import CALIBRATORS
from npuflow.checks.evaluate import Evaluate, decibels, labelled
from npuflow.flow.recipe import load
from npuflow.frontends import FRONTENDS
from npuflow.hw.target import Target
from npuflow.input.data.config import Data
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import RULES
from npuflow.stages.model import ModelTable
from npuflow.statistics import observe, segments, statistics, walk
from npuflow.testing.quantised import placed_by, quantize_graph
from npuflow.tune.ranges import thresholds


class Case:
    """A recipe's graph, placement and samples."""

    def __init__(self, path, sets):
        self.recipe = load(path, sets)
        self.model = self.table(ModelTable, "model")
        reader = FRONTENDS["onnx"]()
        reading = reader.read(reader.gather(Path(self.model.path)), self.model.bindings)
        self.graph = rewrite(reading.graph, list(RULES.names())).graph
        self.target = self.table(Target, "target")
        self.placed = place(self.graph, self.target)
        self.types = {name: self.graph.type(name) for name in self.graph.inputs}
        self.names = observe.needed_values(self.graph, self.placed.on_npu)
        self.quantize = self.table(Quantize, "quantize") or Quantize()

    def table(self, kind, name):
        tables = self.recipe.tables
        if name not in tables:
            return None
        made, faults = self.recipe.read(kind)
        if faults:
            sys.exit("\n".join(map(str, faults)))
        return made

    def feeds(self, count):
        data = replace(self.table(Data, "data"), count=count)
        listed = {name: (one.files, one.detail) for name, one in found(data).items()}
        ready = [(name, s.feed(self.types)) for name, s in samples(listed) if not s.broken]
        return ready if count is None else (ready * -(-count // len(ready)))[:count]

    def collect(self, feeds, room=None):
        """As a build does: the network in segments, shards of 32 samples merged, then all of them."""
        parts = segments.segments(self.graph, self.names)
        shards = {name: [] for name in parts}
        held = {name: [] for name in parts}
        ready = {f"{i}/{name}": (lambda feed=feed: feed) for i, (name, feed) in enumerate(feeds)}
        for segment, sample, one in walk.observed(parts, list(parts), ready, room):
            held[segment].append((sample, one))
            if len(held[segment]) == 32:
                shards[segment].append(statistics.merged(held[segment]))
                held[segment] = []
        for segment, left in held.items():
            shards[segment] += [statistics.merged(left)] if left else []
        return statistics.beside([statistics.added(mine) for mine in shards.values()])

    def ranges(self, stats, method):
        calibrate = thresholds.Calibrate(method=method)
        numerics, on_npu = self.target.numerics, self.placed.on_npu
        return thresholds.thresholds(self.graph, stats, calibrate, self.quantize, numerics, on_npu).ranges


def timed(work, *args):
    started = time.perf_counter()
    result = work(*args)
    return time.perf_counter() - started, result


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plain_pass(case, feeds):
    session = observe.session(export_model(case.graph))
    names = list(case.graph.outputs)
    for _, feed in feeds:
        session.run(names, feed)


def peers(case, feeds, plain):
    """onnxruntime.quantization: collect and compute, in multiples of `plain` seconds."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self, feeds):
            self.left = iter([feed for _, feed in feeds])

        def get_next(self):
            return next(self.left, None)

    for name in ("MinMax", "Entropy", "Percentile"):
        some = feeds if name == "MinMax" else feeds[:32]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(export_model(case.graph))

            def run(name=name, some=some, path=path, folder=folder):
                method = CalibrationMethod[name]
                one = create_calibrator(
                    path, None, str(Path(folder) / "augmented.onnx"), calibrate_method=method
                )
                one.collect_data(Reader(some))
                return one.compute_data()

            seconds, _ = timed(run)
        print(f"onnxruntime.quantization {name}, {len(some)} samples: {seconds:.2f} s, "
              f"{seconds / (plain * len(some) / len(feeds)):.1f}x", flush=True)


def weights(case):
    """Per-channel types of every constant weight, by the extrema."""
    from npuflow.quantise.types import weight_type

    found = []
    for node in case.graph.nodes:
        site = case.graph.site(node)
        for i, value_id in enumerate(node.inputs):
            if value_id and node.op.role(i) == "weight" and site.consts[i] is not None:
                found.append((site.consts[i], node.op.channel_axis(site, i)))
    scheme, numerics = case.quantize.weights, case.target.numerics
    seconds = min(
        timed(lambda: [weight_type(a, axis, scheme, numerics) for a, axis in found])[0] for _ in range(3)
    )
    size = sum(a.size for a, _ in found)
    print(
        f"weights: {len(found)} tensors, {size:,} values, per {scheme.per}, {scheme.method}: "
        f"{1000 * seconds:.0f} ms"
    )


def cost(case, counts, beside, rounds):
    warm = case.feeds(2)
    cold, _ = timed(case.collect, warm)
    again, _ = timed(case.collect, warm)
    print(
        f"{len(case.names)} tensors; first call {cold:.2f} s, second {again:.2f} s (kernels compiled or "
        "loaded)"
    )
    for count in counts:
        feeds = case.feeds(count)
        plains, gathers, chosen = [], [], {name: [] for name in CALIBRATORS.names()}
        for _ in range(rounds):
            plains.append(timed(plain_pass, case, feeds)[0])
            seconds, stats = timed(case.collect, feeds)
            gathers.append(seconds)
            for name, spent in chosen.items():
                spent.append(timed(case.ranges, stats, name)[0])
        plain, gather, methods = (
            min(plains),
            min(gathers),
            {name: min(spent) for name, spent in chosen.items()},
        )
        every = gather + sum(methods.values())
        each = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in methods.items())
        print(f"{count} samples: plain {1000 * plain / count:.1f} ms a sample (best of {rounds}); statistics "
              f"{gather / plain:.2f}x; with all {len(methods)} methods {every / plain:.2f}x; {each}; "
              f"{len(stats.keys):,} cells", flush=True)
    weights(case)
    if beside:
        peers(case, feeds, plain)


def memory(args, counts):
    for count in counts:
        for what in ("plain", "collect"):
            command = [sys.executable, __file__, "peak", args.recipe, "--what", what, "--samples", str(count)]
            for pair in args.set:
                command += ["--set", pair]
            print(
                count,
                what,
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(),
                "MB",
            )


def streamed(case, count, what):
    """Samples decoded one by one, so that only the pass itself shows."""
    ready = case.feeds(min(count, 4))
    feeds = [ready[i % len(ready)] for i in range(count)]       # the same few arrays again and again
    plain_pass(case, feeds) if what == "plain" else case.collect(feeds)
    print(f"{peak():.0f}")


def refine(case, counts):
    """[tune] and [search] with their defaults on cached statistics, as their stages call them."""
    from npuflow.tune.judge import Judge
    from npuflow.tune.precision import range_search as tune

    def spent(work, *args):
        started = time.process_time()
        result = work(*args)
        return time.process_time() - started, result

    numerics, on_npu, settings = case.target.numerics, case.placed.on_npu, tune.SearchTable()
    stats = case.collect(case.feeds(32))
    calibrate = thresholds.Calibrate()
    free = {
        n: c
        for n, c in thresholds.choices(case.graph, stats, calibrate, case.quantize, numerics, []).items()
        if not c.fixed
    }
    grids, own = {n: c.grid for n, c in free.items()}, case.ranges(stats, "kl")
    for count in counts:
        fed = [feed for _, feed in case.feeds(count)]
        spans = tune.spans_to_tune(free, own, tune.Tune())
        seconds, losses = spent(tune.judged, case.graph, on_npu, spans, grids, fed)
        tried = sum(len(spans[name]) for name in losses)
        print(f"tune, {count} samples: {tried} ranges of {len(losses)} tensors, {seconds:.2f} s", flush=True)
        chosen, found = spent(tune.spans_to_search, free, settings.methods)
        rivals = {name: [ranges[name] for ranges in found.values()] for name in free}
        mixing, _ = spent(tune.judged, case.graph, on_npu, rivals, grids, fed)
        judge = Judge(case.graph, fed)

        def rated(ranges, judge=judge):
            placed, spans = placed_by(case.graph, on_npu), {**own, **ranges}
            candidate = Candidate(case.graph, placed, case.quantize, numerics, spans)
            return judge.score(candidate).rating

        each = sum(spent(rated, ranges)[0] for ranges in found.values()) / len(found)
        # the recipe's own and the mixture are rated too
        whole = chosen + mixing + each * (len(found) + 2)
        print(f"search, {count} samples: {len(found)} methods {chosen:.2f} s, mixture {mixing:.2f} s, each "
        "rival rated in "
              f"{each:.2f} s, {whole:.2f} s in all", flush=True)


def quality(case, count):
    from npuflow.program.codegen.generate import generate
    from npuflow.runner.simulated import ProgramRunner
    from npuflow.search.plan import Machine, plan_network

    stats = case.collect(case.feeds(case.table(Data, "data").count))
    evaluate = replace(case.table(Evaluate, "evaluate"), count=count)
    listed = labelled(evaluate, case.table(Data, "data"))
    feeds = [s.feed(case.types) for _, s in samples({n: (o.files, o.detail) for n, o in listed.items()})]
    session = observe.session(export_model(case.graph))
    names = list(case.graph.outputs)
    truth = [session.run(names, feed)[0] for feed in feeds]
    for method in CALIBRATORS.names():
        done = quantize_graph(
            case.graph, case.placed.on_npu, case.ranges(stats, method), case.quantize, case.target.numerics
        )
        target = case.target
        machine = Machine(target.compute, target.memory, target.dma)
        program = generate(done.graph, plan_network(done.graph, machine, target.numerics), target)
        runner, own = ProgramRunner(program), program.meta["outputs"][0]["name"]
        mine = [found[own] for found in runner.stream(feeds)]
        a, b = np.concatenate(truth), np.concatenate(mine)
        row = {"method": method, "samples": len(feeds), "sqnr_db": round(decibels(a, b), 2)}
        row["agreement"] = round(float((a.argmax(1) == b.argmax(1)).mean()), 4) if a.ndim == 2 else None
        print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("cost", "memory", "refine", "quality", "peak"))
    parser.add_argument("recipe")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--samples", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--count", type=int, default=169)
    parser.add_argument("--what", default="collect")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument(
        "--rounds", type=int, default=3, help="everything is timed so often, in turns; the least counts"
    )
    args = parser.parse_args()
    if args.mode == "memory":
        memory(args, args.samples)
        return
    case = Case(args.recipe, args.set)
    if args.mode == "cost":
        cost(case, args.samples, args.peers, args.rounds)
    elif args.mode == "refine":
        refine(case, args.samples)
    elif args.mode == "peak":
        streamed(case, args.samples[0], args.what)
    else:
        quality(case, args.count)


if __name__ == "__main__":
    main()
