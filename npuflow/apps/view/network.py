"""What a build found of its network: layers, tensors, one tensor in full, and figures to compare builds."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from npuflow.apps.view.builds import builds, records, stage_of
from npuflow.flow.artifact import Reader
from npuflow.flow.store import Store

DATA = ("report", "report.json")  # the stage, and the entry of its artifact
VALUES = ("fidelity", "tensors")
PLOT_SCRIPT = ("page_library", "library.js")
LAYER = (
    "name",
    "op",
    "npu",
    "reason",
    "inputs",
    "outputs",
    "cycles",
    "macs",
    "bytes",
    "energy_uj",
    "limit",
    "sqnr",
    "attributes",
)
TENSOR = (
    "id",
    "shape",
    "dtype",
    "bits",
    "scale",
    "zero_point",
    "sqnr",
    "cosine",
    "ends",
    "method",
    "suggestions",
)
CODES, REAL = ":q", ":f"  # end the ids of an input's or output's codes, and of codes' real numbers
FIGURES = ("simulate", "tiling", "energy", "evaluate", "fidelity", "quantize", "precision")


def network(store: Store, name: str) -> dict[str, Any] | None:
    """Layers and tensors, as the build's report has them; without histograms. `called`: what layers call
    inputs and outputs of the network -> the tensor of their codes."""
    data = _data(store, name)
    if data is None:
        return None
    ids = {row["id"] for row in data["tensors"]}
    ends = {end for row in data["nodes"] for end in (*row["inputs"], *row["outputs"])} - ids
    return {
        "called": {end: found for end in sorted(ends) if (found := _codes_of(end, ids)) is not None},
        "title": data["title"],
        "layers": [{key: row.get(key) for key in LAYER} for row in data["nodes"]],
        "tensors": [{key: row.get(key) for key in TENSOR} for row in data["tensors"]],
    }


def tensor(store: Store, name: str, wanted: str) -> dict[str, Any] | None:
    """All that is known of a tensor; `pairs`: values of the float network and what the codes stand for. An
    input or output of the network is the tensor of its codes."""
    data = _data(store, name)
    rows = {} if data is None else {row["id"]: row for row in data["tensors"]}
    found = _codes_of(wanted, rows)
    if data is None or found is None:
        return None
    values, row = _artifact(store, name, VALUES[0]), rows[found]
    held = {} if values is None else values.json(VALUES[1])
    layers = {side: [n["name"] for n in data["nodes"] if found in n[side]] for side in ("inputs", "outputs")}
    kept = held.get(found) or held.get(found.removesuffix(CODES)) or {}
    pairs = kept.get("pairs", [[], []])
    return {**row, "pairs": pairs, "made_by": layers["outputs"], "read_by": layers["inputs"]}


def plot_script(store: Store, name: str) -> str | None:
    """The script that draws figures, as the build's own report has it."""
    made = _artifact(store, name, PLOT_SCRIPT[0])
    return None if made is None else made.text(PLOT_SCRIPT[1])


class BuildFigures:
    """The figures of every build; what was read of a build is kept until it is built again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[tuple[str, float], dict[str, float]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Builds, the newest first, with their figures by `stage.name`."""
        found = builds(self.store)
        known = {(row["id"], row["at"]): row for row in found}
        self._known = {k: self._known[k] if k in self._known else _figures(self.store, k[0]) for k in known}
        return [{**row, "figures": self._known[key]} for key, row in known.items()]


def _figures(store: Store, name: str) -> dict[str, float]:
    """Numbers that the stages said of themselves."""
    found: dict[str, float] = {}
    for one in records(store, name):
        if one.stage in FIGURES and one.item is None:
            for key, value in _flat(one.summary):
                found[f"{one.stage}.{key}"] = value
    return found


def _flat(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [
        (key, float(value))
        for key, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _codes_of(name: str, ids: Collection[str]) -> str | None:
    """The tensor that a name means: itself, the codes of an input or output, or those of real numbers."""
    means = (name, f"{name}{CODES}", name.removesuffix(REAL))
    return next((one for one in means if one in ids), None)


def _data(store: Store, name: str) -> dict[str, Any] | None:
    made = _artifact(store, name, DATA[0])
    return None if made is None else dict(json.loads(made.text(DATA[1])))


def _artifact(store: Store, name: str, stage: str) -> Reader | None:
    """What a stage of the build made."""
    for one in records(store, name):
        if stage_of(one.stage) == stage and one.item is None and store.intact(one.output, remote=False):
            return store.open(one.output)
    return None
