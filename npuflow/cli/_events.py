"""Events as JSON lines: the machine-readable face of `build` and `plan`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuflow.flow.events import Event

VERSION = 1
"""Version of the JSON lines. Raised when a field changes its meaning or goes away; new
fields may come at any time."""

FIELDS: dict[str, dict[str, str]] = {
    "step": {
        "event": '"step"',
        "stage": "the step's name: a stage, or a part of one such as `statistics.items`",
        "item": "the item's id in a fan-out, else null",
        "key": "the step's key, or null if an input was never made",
        "status": '"hit", "ran", "failed" or "skipped"; in `plan`: "hit", "run" or "maybe"',
        "seconds": "what the step took; for a hit, what it took when it ran",
        "output": "the digest of the step's product, or null",
        "reason": "why it ran, failed or was skipped; may be empty",
        "figures": "what the terminal shows of the step: name -> number or text; of `build` alone",
    },
    "progress": {
        "event": '"progress"',
        "stage": "a fan-out of which a task has finished",
        "done": "items settled so far",
        "total": "its items",
        "hits": "of those settled, how many were in the cache",
        "rate": "items that ran, a second",
        "shard": "items of the collection that the largest task so far was given",
        "workers": "processes that have worked on the stage",
        "memory": "bytes: the most that one of them has had in memory at once",
    },
    "profile": {
        "event": '"profile"; of `build --profile` alone, before the summary',
        "stages": "rows of what ran, the longest first: stage, ran and hit (steps), seconds and processor "
        "(of its workers), memory (bytes, the most of one worker)",
    },
    "point": {
        "event": '"point"; of `sweep` alone, which prints no steps',
        "values": "the keys of the sweep with their values at this point",
        "status": '"done" or "failed"',
        "figures": "numbers of its steps' summaries: `stage.name` -> number",
        "best": "whether no other point beats it by the goals",
        "seconds": "what its build took",
        "products": "product name -> path of the file in the point's own folder",
        "errors": "what failed, as in an error's line",
    },
    "sweep": {
        "event": '"sweep"; the last line of `sweep`',
        "points": "how many there are",
        "failed": "how many of them failed",
        "goals": "what decided which are best, in words",
    },
    "gate": {
        "event": '"gate"; of `build` and `sweep` with `--baseline`, one for every figure that it has',
        "build": "the build or the point of the sweep; empty where there is one",
        "figure": "score, sqnr_db, cycles, external_bytes, program_bytes or energy_uj",
        "before": "the baseline's",
        "now": "this build's; null where it is not measured any more",
        "worse_by": "how much worse it is, in `unit`; negative: better",
        "allowed": "how much worse it may be",
        "unit": '"points" of a hundred, "dB" or "%" of the baseline\'s',
        "verdict": '"worse" or "gone", which end the command with 3; "better", "same" or "within"',
        "keys": "what changed it, nearest first: keys of the recipe with both values, code, files",
    },
    "history": {
        "event": '"history"; of the verb of this name, one for every build of every record',
        "commit": "its first ten digits; where no commit is known, the name of the file",
        "made": "the date of the commit, else that of the record; empty of reports",
        "build": "the name of the build or of the point of a sweep",
        "score": "and the other figures of a record: score_name, samples, sqnr_db, cycles, external_bytes, "
        "program_bytes, energy_uj",
    },
    "summary": {
        "event": '"summary"',
        "version": f"the version of these lines, {VERSION}",
        "hit": "steps found in the cache",
        "ran": "steps that ran; in `plan`: `run` and `maybe` count what would",
        "failed": "steps that failed",
        "skipped": "steps that could not run, as one that failed stands before them",
        "seconds": "wall-clock time",
        "outputs": "stage -> digest of its product",
        "products": "product name -> path of the file in the output folder",
        "verdict": "one sentence about the accuracy of the outputs, with numbers; null if the build ended "
        "before that",
        "verdict_ok": "whether they are close to the float model's; null where nothing could be judged",
        "verdict_hint": "what to try; may be empty",
    },
    "warning": {
        "event": '"warning"',
        "message": "something the build survived: a repair, an unreachable remote cache",
        "stage": "the stage concerned, or null",
        "hint": "what to do about it; may be empty",
    },
    "error": {
        "event": '"error"',
        "code": "the error's code, such as NF-DATA-007: `npuflow explain CODE`; [all of them](errors.md)",
        "message": "one fault of the user's input; it is on standard error as well",
        "where": "file, line, key, stage, item, node, value, as far as known",
        "because": "the reason, if known",
        "hint": "what to try, if known",
        "exit": "the exit code that follows",
    },
}


WARNING, HINT = "warning", "warning_hint"     # facts of a summary that become a warning of their own
VERDICT = ("verdict", "verdict_ok", "verdict_hint")      # and those that become the last line of a build


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a step's product says of itself, without what is reported as a warning; numbers that JSON lacks as
    text.
    """
    kept = {name: value for name, value in summary.items() if name not in (WARNING, HINT, *VERDICT)}
    odd = [name for name, value in kept.items() if isinstance(value, float) and not isfinite(value)]
    return {**kept, **{name: str(kept[name]) for name in odd}}


def emit(body: Mapping[str, Any]) -> None:
    """One line, at once: a reader may act on it while the build goes on."""
    sys.stdout.write(json.dumps(body, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def as_json(
    event: Event, recipe: str | None = None, verdict: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The JSON line of an event, None for those that only a terminal wants. `recipe`
    names one of several; `verdict`:
    what the steps so far say of the accuracy."""
    from npuflow.flow.events import Progress, StepEvent, Summary, Warned

    more = {"recipe": recipe} if recipe is not None else {}
    if isinstance(event, StepEvent):
        return {
            "event": "step",
            "stage": event.stage,
            "item": event.item,
            "key": event.key,
            "status": event.status,
            "seconds": round(event.seconds, 6),
            "output": event.output,
            "reason": event.reason,
            "figures": figures(event.summary),
            **more,
        }
    if isinstance(event, Progress) and event.workers:
        return {
            "event": "progress",
            "stage": event.stage,
            "done": event.done,
            "total": event.total,
            "hits": event.hits,
            "rate": round(event.rate, 3),
            "shard": event.shard,
            "workers": event.workers,
            "memory": event.memory,
            **more,
        }
    if isinstance(event, Summary):
        return {
            "event": "summary",
            "version": VERSION,
            "hit": event.hit,
            "ran": event.ran,
            "failed": event.failed,
            "skipped": event.skipped,
            "seconds": round(event.seconds, 6),
            "outputs": dict(event.outputs),
            "products": dict(event.products),
            **dict.fromkeys(VERDICT),
            **(verdict or {}),
            **more,
        }
    if isinstance(event, Warned):
        return {
            "event": "warning",
            "message": event.message,
            "stage": event.stage,
            "hint": event.hint,
            **more,
        }
    return None
