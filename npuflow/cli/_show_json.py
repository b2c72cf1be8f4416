"""What `npuflow show` finds, as JSON lines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.cli._engine import plan, recipe, store
from npuflow.cli._records import found, record_of, split
from npuflow.cli._show_verdict import culprit_place, loaded, opened

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan
    from npuflow.flow.store import Store
    from npuflow.flow.store_record import Record

Line = dict[str, Any]


@dataclass(frozen=True)
class ShownPart:
    """What of a recipe's build is shown. `tensors`: names or patterns, of statistics."""

    sets: Sequence[str] | None
    cache: Path | None
    log: bool
    strategies: bool
    tensors: Sequence[str]


def lines(what: str, path: Path | None, options: ShownPart) -> Iterator[Line]:
    """The lines of a recipe, an artifact, a step, or a table of one. `path` is there where it is needed."""
    if what.startswith("x3:"):
        yield _artifact(what, path, options.cache)
        return
    assert path is not None
    if what == "recipe":
        yield _recipe(path, options)
    elif options.strategies:
        yield from _strategies(path, options)
    elif what == "statistics" and not options.log:
        yield from _statistics(path, options)
    elif what == "verdict" and not options.log:
        yield _verdict(path, options)
    elif what == "precision" and not options.log:
        yield _precision(path, options)
    else:
        yield from _steps(what, path, options)
        if what == "parse" and not options.log:
            yield from _rewrites(path, options)


def _recipe(path: Path, options: ShownPart) -> Line:
    from npuflow.cli._show_recipe import text

    whole = text(path, options.sets)
    return {"event": "recipe", "name": path.stem, "text": whole, "tables": tomllib.loads(whole)}


def _artifact(digest: str, path: Path | None, cache: Path | None) -> Line:
    from npuflow.cli._show_step import full

    kept = store(recipe(path) if path is not None else None, cache)
    return {**_EMPTY, **_stored(full(digest, kept), kept)}


_EMPTY: Line = {
    "event": "stored", "stage": "", "item": None, "key": None, "seconds": None, "summary": {}, "depends": {},
    "log": "",
}


def _stored(digest: str, kept: Store) -> Line:
    manifest = kept.manifest(digest)
    return {
        "output": digest, "kind": manifest.kind, "folder": str(kept.object_path(digest)),
        "files": {name: size for name, (size, _) in manifest.files.items()},
    }


def _steps(what: str, path: Path, options: ShownPart) -> Iterator[Line]:
    """The step, or every item of a fan-out."""
    loaded = recipe(path, options.sets)
    wired, kept = plan(loaded), store(loaded, options.cache)
    stage, item = split(wired, what)
    got = found(wired, kept, stage)
    if got is None or item is not None or None in got.keys or not got.records:
        yield _step(record_of(wired, kept, what), wired, kept, options.log)
        return
    for record in got.records.values():
        yield _step(record, wired, kept, options.log)


def _step(record: Record, wired: Plan, kept: Store, log: bool) -> Line:
    depends = dict(record.preimage)
    if record.stage in wired and "config" in depends:
        depends["config"] = wired[record.stage].in_recipe(depends["config"])
    if record.items is None:
        made = _stored(record.output, kept)
    else:
        made = {"output": record.output, "kind": "collection", "folder": "", "files": {}}
    return {
        **_EMPTY, **made, "stage": record.stage, "item": record.item, "key": record.key,
        "seconds": record.seconds, "summary": dict(record.summary), "depends": depends,
        "log": record.log if log else "",
    }


def _rewrites(path: Path, options: ShownPart) -> Iterator[Line]:
    from npuflow.stages.parse import Parsed

    parsed = loaded(*opened(path, options.sets, options.cache), "parse", Parsed)
    for one in parsed.applied:
        yield {"event": "rewrite", "rule": one.rule, "text": one.line()}


def _statistics(path: Path, options: ShownPart) -> Iterator[Line]:
    from npuflow.cli._show_statistics import gathered

    for one in gathered(path, options.sets, options.cache, options.tensors)[0]:
        s = one.statistics
        yield {
            "event": "statistics", "tensor": one.name, "low": float(s.lo), "high": float(s.hi),
            "mean": float(s.mean), "deviation": float(s.std),
            "p99.9": float(s.quantile(0.999, absolute=True)), "zeros": int(s.zeros), "count": int(s.count),
            "range": None if one.span is None else [float(end) for end in one.span], "method": one.method,
            "suggestions": [{"kind": t.kind, "text": t.text} for t in one.reported],
        }


def _strategies(path: Path, options: ShownPart) -> Iterator[Line]:
    from npuflow.stages.tiling import Tiled

    made = loaded(*opened(path, options.sets, options.cache), "tiling", Tiled).plan
    for one in made.tried:
        taken, cycles = one.origin == made.origin, one.cycles or None
        yield {"event": "plan", "plan": one.origin, "cycles": cycles, "result": one.result, "taken": taken}


def _verdict(path: Path, options: ShownPart) -> Line:
    from npuflow.stages.verdict import Verdict

    made = loaded(*opened(path, options.sets, options.cache), "verdict", Verdict)
    outputs = [
        {**asdict(one.output), "agreement": one.output.equal, "parts_db": one.parts_db, "ok": one.ok}
        for one in made.outputs
    ]
    where = culprit_place(made, path, options.sets, options.cache)
    culprit = None if made.culprit is None else {**asdict(made.culprit), **where}
    return {
        "event": "verdict", "ok": made.statement.ok, "text": made.statement.text, "hint": made.statement.hint,
        "outputs": outputs, "culprit": culprit,
        "fixes": [{"line": one.line, "toml": one.toml, "holds": one.holds} for one in made.fixes],
        "clipped": _numbers(made.clipped),
    }


def _precision(path: Path, options: ShownPart) -> Line:
    from npuflow.stages.parse import Parsed
    from npuflow.stages.precision import Precision
    from npuflow.stages.sensitivity import Sensitivity
    from npuflow.tune.precision.widened import override_text, widened

    wired, kept = opened(path, options.sets, options.cache)
    made = loaded(wired, kept, "precision", Precision)
    alone = loaded(wired, kept, "sensitivity", Sensitivity)
    graph = loaded(wired, kept, str(wired["precision"].inputs["graph"].step), Parsed).graph
    rows = widened(graph, made.overrides, alone.names, alone.noise) if made.overrides else []
    return {
        "event": "precision", "holds": made.holds, "cycles": made.cycles,
        "toml": override_text(made.overrides) if made.overrides else "",
        "widened": [asdict(row) for row in rows], "before": [asdict(one) for one in made.before],
        "after": [asdict(one) for one in made.after],
        "points": [
            {"cycles": one.cycles, "bytes": one.bytes, "bits": one.bits,
             "outputs": [asdict(output) for output in one.outputs]}
            for one in made.points
        ],
    }


def _numbers(held: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in held.items()}
