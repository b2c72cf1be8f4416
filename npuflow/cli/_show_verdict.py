"""Prints the verdict of a build with measured fixes, and the widths that were chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.cli._columns import columns
from npuflow.frontends import CodePlace
from npuflow.report.code_places import said

if TYPE_CHECKING:
    from npuflow.flow.store import Store

CLIPPED = 12


def verdict(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """Outputs, what spoils the worst of them, and fixes with the TOML to paste."""
    from npuflow.stages.verdict import Verdict

    wired, kept = opened(path, sets, cache)
    found = loaded(wired, kept, "verdict", Verdict)
    return "\n".join(_verdict(found, culprit_place(found, path, sets, cache).get("source", {}))) + "\n"


def culprit_place(
    found: Any, path: Path, sets: Sequence[str] | None, cache: Path | None
) -> dict[str, Any]:
    """{"source": where the largest source of error is in the training code}, if that is known."""
    if found.culprit is None:
        return {}
    from npuflow.cli._engine import settings
    from npuflow.cli._sources import places_of

    places = places_of(path, sets or (), settings(cache=cache))
    return places.row(found.culprit.layer, found.culprit.value)


def precision(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """Units in wider codes, outputs before and after, cycles, and the same as overrides to paste."""
    from npuflow.stages.parse import Parsed
    from npuflow.stages.precision import Precision
    from npuflow.stages.sensitivity import Sensitivity

    wired, kept = opened(path, sets, cache)
    found = loaded(wired, kept, "precision", Precision)
    alone = loaded(wired, kept, "sensitivity", Sensitivity)
    parsed = loaded(wired, kept, str(wired["precision"].inputs["graph"].step), Parsed)
    return "\n".join(_precision(found, alone, parsed.graph)) + "\n"


def _verdict(found: Any, source: Mapping[str, Any]) -> Iterator[str]:
    statement = found.statement
    yield statement.text
    yield ""
    head = ("output", "dB", "four of five samples", "equal answers", "dB on parts of them", "")
    words = ["NaN" if s.nan else "good" if s.ok else "poor" for s in found.outputs]
    rows = zip(found.outputs, words, strict=True)
    parts = [" ".join(f"{level:.1f}" for level in s.parts_db) for s in found.outputs]
    yield from columns([head, *((*_figures(s.output), p, w) for (s, w), p in zip(rows, parts, strict=True))])
    if found.culprit is not None:
        one = found.culprit
        what = "tensor" if one.kind == "activation" else "weight"
        yield ""
        yield f'largest source of error: the {what} "{one.value}" of the layer "{one.layer}"'
        if source:
            yield f"it is {said(CodePlace(**source))} in the model's source"
        change = f"from {one.before:.1f} to {one.after:.1f} dB"
        yield f"in float, with all else as built, it would raise the output {change} (fake quantisation)"
    if found.better is not None:
        yield ""
        yield found.better.text
    for fix in found.fixes:
        yield ""
        yield f"{fix.line}{'' if fix.holds else ' (not enough alone)'}"
        yield from (f"    {line}" for line in fix.toml.splitlines())
    if found.outputs and not statement.ok and not found.fixes:
        yield ""
        none = "none of the fixes that were tried helps: --log lists them"
        yield f"no fixes were tried: {statement.hint}" if found.untried else none
    most = sorted(((n, s) for n, s in found.clipped.items() if s > 0), key=lambda pair: -pair[1])[:CLIPPED]
    if most:
        yield ""
        yield from columns(
            [("clipped most", "of its values"), *((name, f"{100 * share:.3g} %") for name, share in most)]
        )


def _precision(found: Any, alone: Any, graph: Any) -> Iterator[str]:
    from npuflow.tune.precision.widened import override_text, widened

    if not found.overrides:
        yield "every tensor and weight has the width that the recipe says" + (
            "" if found.holds else "; no wider ones helped"
        )
    else:
        rows = widened(graph, found.overrides, alone.names, alone.noise)
        yield from columns([
            ("tensor or weight", "layer", "became", "dB when it alone is narrow"),
            *((w.name, w.layer, w.became, "" if w.alone is None else f"{w.alone:.1f}") for w in rows),
        ])
    was = {o.name: o for o in found.before}
    if found.after:
        yield ""
        yield from columns(
            [
                ("output", "dB before", "dB after", "four of five samples", "equal answers"),
                *(
                    (o.name, f"{was[o.name].sqnr:.1f}", f"{o.sqnr:.1f}", f"{o.low:.1f}", _share(o.agreement))
                    for o in found.after
                ),
            ]
        )
    if found.points:
        yield ""
        yield from _points(found.points)
    if found.overrides:
        yield ""
        yield (
            f"about {found.cycles:.2f} times the cycles; the budget is "
            f"{'met' if found.holds else 'not met'}"
        )
        yield ""
        yield from override_text(found.overrides).splitlines()


def _points(points: Sequence[Any]) -> Iterator[str]:
    """Pareto front: each point quantised and measured on held-out samples; `--set
    precision.point=N` takes one."""
    rows = [("point", "cycles", "bytes of weights", "bits", "dB", "four of five samples", "equal answers")]
    for i, one in enumerate(points):
        worst = min(one.outputs, key=lambda o: min(o.sqnr, o.low))
        costs = f"{one.cycles:.2f}x", f"{100 * one.bytes:.0f} %", f"{one.bits:.2f}"
        rows.append((str(i), *costs, f"{worst.sqnr:.1f}", f"{worst.low:.1f}", _share(worst.agreement)))
    yield from columns(rows)


def _figures(one: Any) -> tuple[str, str, str, str]:
    levels = ("", "") if one.whole else (f"{one.sqnr:.1f}", f"{one.low:.1f}")
    return one.name, *levels, _share(one.agreement)


def _share(agreement: float | None) -> str:
    return "" if agreement is None else f"{100 * agreement:.1f} %"


def opened(path: Path, sets: Sequence[str] | None, cache: Path | None) -> tuple[Any, Store]:
    from npuflow.cli._engine import plan, recipe, store

    loaded = recipe(path, sets)
    return plan(loaded), store(loaded, cache)


def loaded(wired: Any, kept: Store, step: str, kind: Any) -> Any:
    from npuflow.cli._records import record_of

    return kind.load(kept.open(record_of(wired, kept, step).output))
