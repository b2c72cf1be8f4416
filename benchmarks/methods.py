"""Which threshold method is best on calibration samples that took no part in it: how the default was chosen.

    python benchmarks/methods.py RECIPE [--per channel tensor] [--held-out N] [--methods ...]
    [--trimmed] [--set KEY=VALUE ...]

Statistics come from all calibration samples but N (spread evenly); every method's network, without
and with corrected biases, is compared with the float network on these N. No evaluation data is
read. One line of SQNR per method.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from calibrate import Case

from npuflow.calibrators import CALIBRATORS
from npuflow.input.data.config import Data
from npuflow.testing.quantised import quantize_graph
from npuflow.tune.bias import correct_biases
from npuflow.tune.error import output_error, outputs_of
from npuflow.tune.improve import ASKED, decibels
from npuflow.tune.ranges.thresholds import Calibrate, thresholds


def rows(case: Any, pers: list[str], methods: list[str], held_out: int, trimmed: bool) -> Any:
    feeds = case.feeds(case.table(Data, "data").count)
    every = max(2, len(feeds) // held_out)
    fit, held = [feed for i, feed in enumerate(feeds) if i % every], feeds[::every]
    statistics, ready = case.collect(fit), [feed for _, feed in held]
    fitting, numerics = [feed for _, feed in fit], case.target.numerics
    truth = outputs_of(case.graph, ready)
    for per in pers:
        scheme = replace(case.quantize, weights=replace(case.quantize.weights, per=per))
        for method in methods:
            calibrate = Calibrate(method=method, as_trimmed=trimmed)
            ranges = thresholds(
                case.graph, statistics, calibrate, scheme, numerics, case.placed.on_npu
            ).ranges
            plain = quantize_graph(case.graph, case.placed.on_npu, ranges, scheme, numerics).graph
            better = correct_biases(case.graph, plain, numerics, fitting, (), ASKED).graph
            found = [decibels(output_error(truth, outputs_of(graph, ready))) for graph in (plain, better)]
            yield {
                "per": per,
                "method": method,
                "fit": len(fit),
                "held": len(held),
                "none": found[0],
                "bias": found[1],
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("--per", nargs="+", default=["channel"])
    parser.add_argument("--methods", nargs="+", default=list(CALIBRATORS.names()))
    parser.add_argument("--held-out", type=int, default=32)
    parser.add_argument("--trimmed", action="store_true", help="[calibrate] as_trimmed")
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    for row in rows(Case(args.recipe, args.set), args.per, args.methods, args.held_out, args.trimmed):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
