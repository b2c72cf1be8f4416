"""What threshold methods and corrections keep of a network's accuracy: one line per
combination, from the simulator.

    python benchmarks/quality.py SCORER TASK RECIPE [--per channel tensor] [--methods minmax mse
        ...] [--corrections none bias both] [--limit N] [--set KEY=VALUE ...] [--cache DIR]
        [--log FILE] [--floats FILE.npz]

SCORER and TASK as for accuracy.py. Every combination is built like any recipe (what they share is built
once), and what the build decided on held-out calibration samples is printed beside the score on evaluation
data, which no build sees. --log keeps one JSON line per combination, and combinations that it holds are not
run again. --floats keeps the float model's outputs on all inputs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import Task, module, task_parser

from npuflow import build, load_program, load_recipe

CORRECTIONS = {
    "none": ("equalize.scale='off'", "equalize.absorb='off'", "correct.bias='off'"),
    "bias": ("equalize.scale='off'", "equalize.absorb='off'", "correct.bias='auto'"),
    "both": ("equalize.scale='auto'", "equalize.absorb='auto'", "correct.bias='auto'"),
}
FIGURES = (
    "top1",
    "f1",
    "recall",
    "ap50",
    "delta_top1",
    "delta_f1",
    "delta_recall",
    "delta_ap50",
    "agreement",
    "sqnr_db",
)


def row(names: tuple[str, ...], line: dict[str, Any]) -> str:
    held = {key: line[key] for key in FIGURES if line.get(key) is not None}
    found = [f"{value:.2f} dB" if key == "sqnr_db" else f"{key} {value:.4f}" for key, value in held.items()]
    return f"| {' | '.join(names)} | {', '.join(found)} | {100 * line['npu_share']:.0f} % | {line['n']} |"


def held(log: Path | None) -> dict[str, dict[str, Any]]:
    """What the log has: what was asked -> scores."""
    lines = map(json.loads, log.read_text().splitlines()) if log is not None and log.exists() else ()
    return {json.dumps(one["asked"], sort_keys=True): one["line"] for one in lines}


def main() -> None:
    parser = task_parser(__doc__)
    parser.add_argument("--per", nargs="+", default=["channel"])
    parser.add_argument("--methods", nargs="+", default=["minmax", "mse"])
    parser.add_argument("--corrections", nargs="+", default=list(CORRECTIONS), choices=list(CORRECTIONS))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--set", nargs="+", default=[])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--floats", type=Path)
    args = parser.parse_args()
    model = Path(load_recipe(args.recipe).tables["model"]["path"])
    task = Task(module(args.scorer), args.task, args.recipe.parent / model, args.limit, args.floats)
    known = held(args.log)
    print(
        "| weights | method | corrections | figures | MACs on the NPU | inputs |\n| --- | --- | --- | --- | "
        "--- | --- |"
    )
    for per, method, wanted in product(args.per, args.methods, args.corrections):
        combination = {"per": per, "method": method, "corrections": wanted}
        asked = {"recipe": args.recipe.name, "limit": args.limit, "set": args.set, **combination}
        if line := known.get(json.dumps(asked, sort_keys=True)):
            print(row((per, method, wanted), line), flush=True)
            continue
        sets = [
            f"quantize.weights.per='{per}'",
            f"calibrate.method='{method}'",
            *CORRECTIONS[wanted],
            *args.set,
        ]
        with tempfile.TemporaryDirectory() as out:
            result = build(args.recipe, sets, until="codegen", out=Path(out), cache=args.cache)
            line = task.score(load_program(result.products["program"]))
        print(row((per, method, wanted), line), flush=True)
        if args.log is not None:
            with args.log.open("a") as file:
                file.write(json.dumps({"asked": asked, "line": line}) + "\n")


if __name__ == "__main__":
    main()
