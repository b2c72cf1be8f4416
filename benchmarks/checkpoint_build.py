"""A language model from its checkpoint to text by default: what the build costs, what the program says.

    python benchmarks/checkpoint_build.py CHECKPOINT [--targets bm1684x,edge-8t] [--folder DIR]
        [--set KEY=VALUE] [--write]

`npuflow new`, `build` with a new cache, and `generate` of 8 tokens behind "The capital of France is", with no
edit but what --set says. `clock` and `processor` are seconds of the build and all its processes. `largest MB`
is the most anonymous memory of one process (RssAnon, so without pages of mapped files; 10^6 bytes), `during`
the last step that had ended then. `cycles`: of the last run of one token; `least`: what the bus takes for the
codes, scales and minima of the file and for what the cache then holds, in 16 bits. With --write the tables
replace those of the study.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import study
from large_network import Watch

PROMPT, TOKENS = "The capital of France is", 8
SHOWN = 0.03                              # of the build's processor seconds: steps below are left out
COLUMNS = (
    "target", "clock", "processor", "largest MB", "during", "cycles", "least", "ratio", "different",
    "hazards", "text",
)


def called(*words: str) -> str:
    """What a verb prints."""
    command = [sys.executable, "-m", "npuflow", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def spent() -> float:
    """Processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def built(recipe: Path, sets: list[str], more: Sequence[str] = ()) -> dict[str, Any]:
    """Builds with a new cache; its events, what it took, and its memory. `more`: arguments of the build."""
    words = [sys.executable, "-m", "npuflow", "build", str(recipe), "--json", "--profile", *more]
    words += ["--cache", str(recipe.parent / "cache"), "--out", str(recipe.parent / "out")]
    words += [word for one in sets for word in ("--set", one)]
    started, before = time.perf_counter(), spent()
    build = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    watch = Watch(build.pid)
    looking = threading.Thread(target=watch.look)
    looking.start()
    found: dict[str, Any] = {"steps": {}}
    assert build.stdout is not None
    for line in build.stdout:
        event = json.loads(line)
        if event["event"] == "step":
            watch.step = event["stage"]
            found["steps"][event["stage"]] = event["figures"]
        elif event["event"] in ("summary", "profile"):
            found[event["event"]] = event
    code = build.wait()
    watch.stop.set()
    looking.join()
    if code:
        raise SystemExit(f"{recipe} is not built")
    clock, processor = time.perf_counter() - started, spent() - before
    return {**found, "clock": clock, "processor": processor, "watch": watch}


def least(checkpoint: Path, target: str, numbers: int) -> float:
    """Cycles of the bus for the matrices as they are stored, and for so many numbers of 16 bits."""
    from npuflow.checkpoints import opened
    from npuflow.stages.tiling import shipped_targets

    stored = sum(one.nbytes for one in opened(checkpoint).tensors.values() if len(one.shape) > 1)
    return (stored + 2 * numbers) / shipped_targets()[target].memory.external_bandwidth


def row(checkpoint: Path, target: str, folder: Path, sets: list[str]) -> tuple[list[str], list[str]]:
    """The figures of one target, and lines of its longest steps."""
    recipe = folder / f"{target}.toml"
    called("new", str(checkpoint), "--target", target, "-o", str(recipe))
    found = built(recipe, sets)
    program, watch = found["summary"]["products"]["program"], found["watch"]
    answer = called(
        "generate", program, PROMPT, "--model", str(checkpoint), "--max-tokens", str(TOKENS), "--json"
    )
    told = json.loads(answer.splitlines()[-1])
    about = json.loads(called("inspect", str(checkpoint), "--json"))["facts"]["cache"]
    held = told["position"] + 1
    bound = least(checkpoint, target, int(str(about).split()[0].replace(",", "")) * held)
    seen = found["steps"]["simulate"]
    cycles = told["cycles_per_run"]
    figures = [
        target, f"{found['clock']:,.0f}", f"{found['processor']:,.0f}", f"{watch.largest / 1e6:,.0f}",
        watch.during, f"{cycles:,.0f}", f"{bound:,.0f}", f"{cycles / bound:.2f}", str(seen["different"]),
        str(seen["hazards"]), json.dumps(told["text"]),
    ]
    stages = found["profile"]["stages"]
    whole = sum(one["processor"] for one in stages)
    longest = sorted(stages, key=lambda one: -one["processor"])
    steps = [
        f"| {target} | {one['stage']} | {one['seconds']:.0f} | {one['processor']:.0f} |"
        for one in longest if one["processor"] > SHOWN * whole
    ]
    return figures, steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--targets", default="bm1684x,edge-8t")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    first = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    second = ["| target | step | clock | processor |", "| --- | --- | --- | --- |"]
    for target in chosen.targets.split(","):
        with tempfile.TemporaryDirectory(prefix="npuflow-text-", dir=chosen.folder) as folder:
            figures, steps = row(chosen.checkpoint.resolve(), target, Path(folder), chosen.sets)
        first.append(f"| {' | '.join(figures)} |")
        second.extend(steps)
        print("\n".join([first[-1], *steps]), flush=True)
    if chosen.write:
        title, *rest = (__doc__ or "").strip().split("\n\n")
        above = f"Steps of more than {SHOWN:.0%} of the processor seconds."
        tables = ["\n".join(first), above, "\n".join(second)]
        study.write(__file__, "\n\n".join([f"# {title}", *rest[1:], *tables]) + "\n")


if __name__ == "__main__":
    main()
