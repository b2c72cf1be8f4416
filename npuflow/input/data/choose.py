"""Which of the listed samples are taken, if there are more than are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from npuflow.base.digest import digest
from npuflow.base.errors import DataError
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.labels import classes, label_file


def chosen(listed: dict[str, FoundSample], data: Data) -> dict[str, FoundSample]:
    """At most `count` of them. The choice looks at ids and classes only, so that a new
    file displaces few of the old."""
    if data.choose == "balanced":
        listed = _labelled(listed, data)
    elif data.labels is not None:
        label_file(data.labels.path)          # a balanced choice alone needs it, but it must be there
    if data.count is None or data.count >= len(listed):
        return listed
    names = list(listed)
    if data.choose == "first":
        return {name: listed[name] for name in names[: data.count]}
    rank = {name: digest([data.seed, name]) for name in names}
    order = sorted(names, key=rank.__getitem__)
    kept = set(order[: data.count] if data.choose == "random" else balanced(order, listed, data.count))
    return {name: listed[name] for name in names if name in kept}


def balanced(order: list[str], listed: Mapping[str, FoundSample], count: int) -> list[str]:
    """Again and again the next sample of the class that has fewest; one without classes
    counts as a class of its own."""
    kinds = {name: classes(listed[name].label) or ("",) for name in order}
    waiting: dict[str, list[str]] = {}
    for name in reversed(order):
        for kind in kinds[name]:
            waiting.setdefault(kind, []).append(name)
    have: Counter[str] = Counter()
    taken: dict[str, None] = {}
    while len(taken) < count and waiting:
        kind = min(waiting, key=lambda k: (have[k], k))
        name = waiting[kind].pop()
        if not waiting[kind]:
            del waiting[kind]
        if name not in taken:
            taken[name] = None
            have.update(kinds[name])
    return list(taken)


def _labelled(listed: dict[str, FoundSample], data: Data) -> dict[str, FoundSample]:
    """With the labels of the label file; without one, those that the data themselves hold."""
    from dataclasses import replace

    if data.labels is not None:
        known: dict[str, Any] = label_file(data.labels.path)
        listed = {name: replace(one, label=known.get(name, one.label)) for name, one in listed.items()}
    if all(one.label is None for one in listed.values()):
        raise DataError(
            'choose = "balanced" needs labels, and no sample has one',
            because=f"samples are called {next(iter(listed), 'nothing')}" if data.labels is not None else "",
            hint='labels = "labels.csv" (file, label) or COCO annotations (.json), a list file with labels, '
            'a label array',
            code="NF-DATA-027",
        )
    return listed
