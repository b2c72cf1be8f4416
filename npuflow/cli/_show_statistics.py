"""The statistics of a recipe's tensors as a table, what they suggest, and their histograms as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import DataError, UsageError, suggestion
from npuflow.base.wording import counted
from npuflow.cli._columns import columns

if TYPE_CHECKING:
    from npuflow.flow.store import Store
    from npuflow.report.figures.tensors import Panel
    from npuflow.report.suggest import Suggestion

BINS = 160
MOST_PANELS = 200


# suggestions of one kind that are shown, if there are more than twice as many
ALIKE = 4


@dataclass(frozen=True)
class ShownTensor:
    """Of one tensor: its statistics, its threshold and method if there is one, and what both suggest."""

    name: str
    statistics: Any
    span: tuple[float, float] | None
    method: str
    reported: list[Suggestion]


def text(
    path: Path, sets: Sequence[str] | None, cache: Path | None, patterns: Sequence[str], plot: Path | None
) -> str:
    """The table; the picture is written to `plot`."""
    found, samples = gathered(path, sets, cache, patterns)
    lines = [f"{counted(len(found), 'tensor')}, {samples}", "", *_table(found)]
    reported = [(one.name, s) for one in found for s in one.reported]
    if reported:
        lines += ["", "suggestions"]
        lines += _listed(sorted(reported, key=lambda pair: -pair[1].weight))
    if plot is not None:
        lines += ["", _plotted(found, plot)]
    return "\n".join(lines) + "\n"


def _listed(reported: list[tuple[str, Suggestion]]) -> list[str]:
    """Suggestions in lines; of a kind that very many tensors share, the first ones and how many there are."""
    seen, many = Counter[str](), Counter(s.kind for _, s in reported)
    lines: list[str] = []
    for name, one in reported:
        seen[one.kind] += 1
        if seen[one.kind] <= ALIKE or many[one.kind] <= 2 * ALIKE:
            lines.append(f"  {name}: {one.kind}: {one.text}")
        elif seen[one.kind] == many[one.kind]:
            lines.append(
                f"  {many[one.kind] - ALIKE} more with {one.kind}: --tensor NAME shows one, the report all "
                "of them"
            )
    return lines


def gathered(
    path: Path, sets: Sequence[str] | None, cache: Path | None, patterns: Sequence[str]
) -> tuple[list[ShownTensor], str]:
    """The tensors, and what is to be said of the samples."""
    from npuflow.cli._engine import plan, recipe, store
    from npuflow.cli._records import record_of
    from npuflow.ir.types import span
    from npuflow.stages.parse import Parsed
    from npuflow.stages.statistics import Statistics

    loaded = recipe(path, sets)
    wired, kept = plan(loaded), store(loaded, cache)
    whole = Statistics.load(kept.open(record_of(wired, kept, "statistics").output))
    statistics = whole.content
    parsed = Parsed.load(kept.open(record_of(wired, kept, _last(wired, "statistics", "graph")).output))
    graph = parsed.graph
    spans, methods = _thresholds(wired, kept)
    stated = {name: span(quant) for name, quant in parsed.stated.items() if name in statistics}
    spans, methods = {**spans, **stated}, {**methods, **dict.fromkeys(stated, "the model's own")}
    names = [
        n for n in statistics.names if not patterns or any(p == n or fnmatchcase(n, p) for p in patterns)
    ]
    if not names:
        raise UsageError(
            f'no tensor is called "{patterns[0]}"',
            hint=suggestion(patterns[0], statistics.names), code="NF-USAGE-026",
        )
    from npuflow.report.suggest import of_network

    reported = of_network(graph, statistics, spans, _quants(wired, kept), _channels(wired, kept))
    found = [
        ShownTensor(n, statistics[n], spans.get(n), methods.get(n, ""), reported.get(n, [])) for n in names
    ]
    samples = counted(len(statistics.samples), "sample")
    if whole.broken:
        samples += f", {len(whole.broken)} left out"
    if whole.noise:
        samples += "; RANDOM DATA, which means nothing for real inputs"
    return found, samples


def _last(wired: Any, stage: str, param: str) -> str:
    """The step whose graph the statistics are of."""
    for step in (stage, "segments", "thresholds"):
        if step in wired and param in wired[step].inputs and wired[step].inputs[param].step is not None:
            return str(wired[step].inputs[param].step)
    return "parse"


def _thresholds(wired: Any, kept: Store) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Those of the last build, if it came so far."""
    from npuflow.cli._records import record_of
    from npuflow.stages.thresholds import Thresholds

    try:
        step = wired["quantize"].inputs["thresholds"].step
        held = Thresholds.load(kept.open(record_of(wired, kept, step).output))
    except (UsageError, DataError, KeyError):
        return {}, {}
    return held.ranges, held.methods


def _quants(wired: Any, kept: Store) -> dict[str, Any]:
    """How the last build coded each value, if it came so far."""
    from npuflow.cli._records import record_of
    from npuflow.stages.quantize import Quantized

    try:
        graph = Quantized.load(kept.open(record_of(wired, kept, "quantize").output)).graph
    except (UsageError, DataError, KeyError):
        return {}
    return {v.id.removesuffix(":q"): v.quant for v in graph.values.values() if v.quant is not None}


def _channels(wired: Any, kept: Store) -> Any:
    """Extrema of channels, where the recipe asks for them."""
    from npuflow.cli._records import record_of
    from npuflow.stages.channels import ChannelRanges

    try:
        return ChannelRanges.load(kept.open(record_of(wired, kept, "channels").output)).content
    except (UsageError, DataError, KeyError):
        return {}


def _table(found: Sequence[ShownTensor]) -> Iterator[str]:
    head = ("tensor", "low", "high", "mean", "deviation", "99.9 %", "zeros", "threshold", "method")
    rows: list[tuple[str, ...]] = [head]
    for one in found:
        s = one.statistics
        zeros = f"{100 * s.zeros / s.count:.1f} %" if s.count else ""
        span = f"{one.span[0]:.4g} .. {one.span[1]:.4g}" if one.span is not None else ""
        figures = (s.lo, s.hi, s.mean, s.std, s.quantile(0.999, absolute=True))
        rows.append((one.name, *(f"{v:.4g}" for v in figures), zeros, span, one.method))
    yield from columns(rows, range(1, len(head)))


def panel(one: ShownTensor) -> Panel:
    from npuflow.report.figures.tensors import Panel

    s = one.statistics
    counts = s.histogram(BINS, s.lo, s.hi).tolist() if s.hi > s.lo else []
    facts = f"mean {s.mean:.4g}, deviation {s.std:.4g}" + (f", {one.method}" if one.method else "")
    return Panel(
        one.name, s.lo, s.hi, counts, one.span, [facts, *(f"{t.kind}: {t.text}" for t in one.reported[:3])]
    )


def _plotted(found: Sequence[ShownTensor], plot: Path) -> str:
    from npuflow.report.figures.export import write
    from npuflow.report.figures.tensors import sheet

    shown = [panel(one) for one in found[:MOST_PANELS]]
    write(plot, sheet(shown))
    more = (
        f"; the first {MOST_PANELS} of {len(found)}, --tensor picks others"
        if len(found) > MOST_PANELS
        else ""
    )
    return f"wrote {plot}: {len(shown)} histograms{more}"
