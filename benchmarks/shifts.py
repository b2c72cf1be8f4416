"""Calibration samples that are unlike the data of use: what clipping ranges cost there, and how near the
figures of a verdict come to the truth.

    python benchmarks/shifts.py SHARED [--only PATTERN ...] [--log FILE] [--before FILE] [--table FILE]

SHARED holds the models and data of MODELS.md and MODELS2.md. Every task is calibrated with its ordinary
samples and with each of its shifts (`SHIFTS`), by `[calibrate] method = "minmax"` and by the default, at the
recipe's widths and with the default search for widths; the evaluation set is always the ordinary one. As
in verdicts.py, the stages from `parse` to `verdict` run in this process. --log keeps one JSON line for each
row, and rows that it holds are not run again; --before is the log of another commit, shown beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from verdict_tasks import ORDINARY, Change, Task, real_inputs
from verdicts import FIGURE, NONE, Kind, built, judged

from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.tune.precision.config import PrecisionTable
from npuflow.tune.quality import quality
from npuflow.tune.ranges.thresholds import Calibrate

BLACK, WHITE = {"fashion": -0.81}, {"fashion": 2.023}           # of inputs; other tasks: -1 and 1
LIMIT = {"vad": 12, "wake": 24, "fashion": 1000}               # clips or samples of the evaluation
METHODS = {"minmax": Calibrate("minmax"), "auto": Calibrate()}
WIDTHS = {"recipe": NONE, "search": PrecisionTable()}


def light(task: str, of: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A change of pictures whose values go from 0, black, to 1."""
    black, white = BLACK.get(task, -1.0), WHITE.get(task, 1.0)
    return lambda v: of((v - black) / (white - black)) * (white - black) + black


def cropped(v: Array, part: float = 0.6) -> Array:
    """The middle of a picture, enlarged to all of it."""
    axes = (1, 2) if v.shape[-1] in (1, 3) else (2, 3)
    for axis in axes:
        size = v.shape[axis]
        at = (np.arange(size) + 0.5) * part + size * (1 - part) / 2
        v = np.take(v, np.clip(at.astype(int), 0, size - 1), axis)
    return v


def echoed(v: Array) -> Array:
    """A room: echoes after 3, 7 and 11 ms at 16 kHz, as loud as before."""
    wet = v.copy()
    for delay, gain in ((48, 0.6), (112, -0.45), (176, 0.35)):
        wet[..., delay:] += gain * v[..., :-delay]
    return wet * (np.sqrt((v**2).mean()) / max(float(np.sqrt((wet**2).mean())), 1e-9))


def muffled(v: Array) -> Array:
    """Another microphone: high frequencies away, frames of one deviation."""
    wet = np.apply_along_axis(lambda row: np.convolve(row, np.ones(12) / 12, "same"), -1, v)
    return (wet - wet.mean()) / max(float(wet.std()), 1e-9)


def first(row: Array, count: int, end: Sequence[int]) -> Array:
    """So many symbols of a text, `end`, and padding (0)."""
    kept = np.concatenate([row[..., :count], np.broadcast_to(end, (*row.shape[:-1], len(end)))], -1)
    rest = row.shape[-1] - kept.shape[-1]
    return np.concatenate([kept, np.zeros((*row.shape[:-1], rest), row.dtype)], -1).astype(row.dtype)


def short_words(feed: Mapping[str, Array]) -> dict[str, Array]:
    return {"chars": first(feed["chars"], 4, [2]), "phones": first(feed["phones"], 5, [3])}


def pictures(task: str) -> dict[str, Change]:
    made: dict[str, Callable[[Array], Array]] = {
        "dark": light(task, lambda p: 0.5 * p),
        "contrast": light(task, lambda p: p.mean() + 0.5 * (p - p.mean())),
        "crop": cropped,
    }
    return {name: Change(name, partial(real_inputs, of=of)) for name, of in made.items()}


def sounds(**made: Callable[[Array], Array]) -> dict[str, Change]:
    return {name: Change(name, partial(real_inputs, of=of)) for name, of in made.items()}


SHIFTS: dict[str, dict[str, Change]] = {
    "fashion": pictures("fashion"),
    "face": pictures("face"),
    "vad": sounds(soft=lambda v: 0.25 * v, room=echoed),
    "pitch": sounds(room=lambda v: (echoed(v) - echoed(v).mean()) / echoed(v).std(), muffled=muffled),
    "wake": sounds(soft=lambda v: 0.7 * v),
    "thai": {"short": Change("short", partial(real_inputs, of=lambda v: first(v, 32, []), kind="i"))},
    "g2p": {"short": Change("short", short_words)},
    "box": pictures("box"),
}
"""Task -> what its calibration samples are instead."""


def rows() -> list[str]:
    return [
        f"{task}/{shift}/{method}/{widths}"
        for task, shifts in SHIFTS.items() for shift in ("ordinary", *shifts)
        for method in METHODS for widths in WIDTHS
    ]


def measured(task: Task, shift: str, method: str, widths: str) -> dict[str, Any]:
    """One build: what its verdict says, and the truth."""
    begun = time.perf_counter()
    change = ORDINARY if shift == "ordinary" else SHIFTS[task.name][shift]
    made = built(task, Kind(METHODS[method], widths=WIDTHS[widths], change=change))
    found = judged(made, evaluation=False)
    seconds, graph = time.perf_counter() - begun, made.quantized.graph
    outputs = task.outputs(graph)
    score = task.scorer.score(task.name, outputs, task.truth)
    return {
        "levels": {o: decibels(task.truth[o], outputs[o]) for o in outputs}, "true": as_judged(task, outputs),
        "outputs": [asdict(one) for one in found.outputs],
        "said": found.statement.text, "ok": found.statement.ok,
        "figure": score.get(FIGURE.get(task.name, "")), "agreement": score.get("agreement"),
        "methods": sorted(set(made.thresholds.methods.values())),
        "cycles": made.precision.cycles, "seconds": round(seconds, 1),
    }


def decibels(real: Array, found: Array) -> float:
    sums = SignalToNoise()
    sums.add(real, found)
    return sums.decibels


def as_judged(task: Task, outputs: Mapping[str, Array]) -> dict[str, float]:
    """dB on the evaluation set as the verdict counts them."""
    names = task.graph.outputs

    def column(name: str, array: Array) -> list[Array]:
        shape = task.graph.type(name).shape
        return list(array.reshape(-1, *shape))

    truth, made = ([column(n, side[n]) for n in names] for side in (task.truth, outputs))
    return {one.name: one.sqnr for one in quality(with_fixed_outputs(task.graph), truth, made)}


Lines = Mapping[str, Mapping[str, Any]]


def losses(lines: Lines, widths: str) -> dict[str, float]:
    """By task and shift, dB by which the default's worst loss of an output lies below min-max."""
    found = {}
    for name, line in lines.items():
        task, shift, method, which = name.split("/")
        other = lines.get(f"{task}/{shift}/minmax/{which}")
        if method == "auto" and which == widths and other is not None:
            found[f"{task}/{shift}"] = max(other["levels"][o] - line["levels"][o] for o in line["levels"])
    return found


def gaps(lines: Lines) -> list[tuple[float, str]]:
    """dB said less dB true, of every output of real numbers of the default builds."""
    found = []
    for name, line in lines.items():
        if name.endswith("auto/search"):
            true = line["true"]
            said = {one["output"]["name"]: one["output"]["sqnr"] for one in line["outputs"]}
            found += [(said[o] - true[o], f"{name} {o}") for o in true if o in said]
    return sorted(found)


def shown(line: Mapping[str, Any] | None) -> str:
    return "" if line is None else " ".join(f"{x:.1f}" for x in line["levels"].values())


def told(line: Mapping[str, Any]) -> str:
    return " ".join(f"{one['output']['sqnr']:.1f}" for one in line["outputs"])


def table(lines: Lines, before: Lines) -> str:
    """Levels of all outputs on the evaluation, by widths; then what the default's verdict said."""
    head = "| plant | min-max | default | min-max, widened | default, widened | said | warned "
    was = "| default before | widened, before " if before else ""
    text = [f"{head}{was}|", "| --- " * (7 + 2 * bool(before)) + "|"]
    for name in sorted({n.rsplit("/", 2)[0] for n in lines}, key=list(lines_order()).index):
        cells = [shown(lines.get(f"{name}/{m}/{w}")) for w in WIDTHS for m in METHODS]
        default = lines.get(f"{name}/auto/search")
        more = [shown(before.get(f"{name}/auto/{w}")) for w in WIDTHS] if before else []
        said = [told(default), "" if default["ok"] else "yes"] if default else ["", ""]
        text.append("| " + " | ".join([name, *cells, *said, *more]) + " |")
    text.append("")
    for title, some in (("before", before), ("now", lines)):
        if some:
            text.append(summary(title, some))
    return "\n".join(text) + "\n"


def lines_order() -> dict[str, None]:
    return dict.fromkeys(name.rsplit("/", 2)[0] for name in rows())


def summary(title: str, lines: Lines) -> str:
    parts = []
    for widths in WIDTHS:
        found = sorted((loss, name) for name, loss in losses(lines, widths).items())
        worse = ", ".join(f"{name} {loss:.1f}" for loss, name in reversed(found) if loss > 0.5)
        parts.append(f"at the widths of the {widths} below min-max by more than .5 dB: {worse or 'none'}")
    apart = gaps(lines)
    for kind in ("ordinary", "shifted"):
        some = [(g, n) for g, n in apart if ("/ordinary/" in n) == (kind == "ordinary")]
        if some:
            parts.append(
                f"said less true, {kind}: median {median(g for g, _ in some):.1f} dB, from "
                f"{some[0][0]:.1f} ({some[0][1]}) to {some[-1][0]:.1f} ({some[-1][1]})"
            )
    return f"{title}: " + "; ".join(parts) + "."


def read(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    return {one["name"]: one for one in map(json.loads, path.read_text().splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of TASK/SHIFT/METHOD/WIDTHS")
    parser.add_argument("--log", type=Path, default=Path("shifts.jsonl"))
    parser.add_argument("--before", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    known, tasks = read(args.log), dict[str, Task]()
    for name in rows():
        if name in known or not any(fnmatch(name, one) for one in args.only):
            continue
        task, *rest = name.split("/")
        if task not in tasks:
            tasks = {task: Task(args.shared, task, args.log.parent / "statistics", LIMIT.get(task))}
        known[name] = {"name": name, **measured(tasks[task], *rest)}
        with args.log.open("a") as file:
            file.write(json.dumps(known[name]) + "\n")
        print(f"{name}: {shown(known[name])} dB, said {told(known[name])}, {known[name]['seconds']} s",
              flush=True)
    made = table(known, read(args.before))
    if args.table is not None:
        args.table.write_text(f"# Shifted calibration\n\n{made}")
    print(made)


if __name__ == "__main__":
    main()
