"""What the noise of single layers costs to measure, in plain passes of the float network.

    python benchmarks/sensitivity.py RECIPE [--widths 2 4 8] [--samples 16] [--layers N] [--cache DIR]
        [--set KEY=VALUE ...]

Every layer with a constant weight alone at every width, on so many held-out samples each: an evaluation is
one layer at one width on one sample. Processor time of all evaluations, one thread, beside as many passes of
the float network by onnxruntime, and the layers whose 4 bits cost most. --layers takes every so many-th.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from harnesses import harness_of

from npuflow.onnx.export import export_model
from npuflow.run.floats import float_session
from npuflow.strategies import OWN
from npuflow.tune.precision.levels import LevelTypes

REPEATS = 3  # of the plain passes


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    found, _ = harness_of(args.recipe, args.cache, args.set, args.samples, 3 * args.samples)
    found.types = LevelTypes(tuple(args.widths), ())
    plain = float_session(export_model(found.network.graph))
    names = {i.name for i in plain.get_inputs()}
    feeds = [{k: v for k, v in feed.items() if k in names} for feed in found.judge.held]
    for _ in range(REPEATS):
        start = time.process_time()
        for feed in feeds:
            plain.run(None, feed)
        unit = (time.process_time() - start) / len(feeds)
    first = len(found.network.groups)
    units = range(first, len(found.names), args.layers)
    found.together([first], OWN, 1)
    noise: dict[tuple[int, int], float] = {}
    start = time.process_time()
    for unit_of in units:
        for level in range(OWN, OWN + len(args.widths)):
            noise[unit_of, level] = float(found.together([unit_of], level, args.samples).mean())
    seconds = time.process_time() - start
    count = len(noise) * len(feeds)
    print(
        f"{len(units)} layers x {len(args.widths)} widths x {len(feeds)} samples = {count:,} evaluations: "
        f"{seconds:.1f} s, a plain pass {1000 * unit:.1f} ms: {seconds / count / unit:.2f} passes each"
    )
    level = OWN + (args.widths.index(4) if 4 in args.widths else 0)
    for k in sorted(units, key=lambda k: -noise[k, level])[:8]:
        decibels = " / ".join(f"{-10 * np.log10(noise[k, OWN + i]):.1f}" for i in range(len(args.widths)))
        print(f"{found.names[k][1]}: {decibels} dB at {', '.join(map(str, args.widths))} bits")


if __name__ == "__main__":
    main()
