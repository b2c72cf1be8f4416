"""What a build found of its network: layers, tensors, one tensor in full, and figures to compare builds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from npuflow.apps.view.builds import builds, records, stage_of
from npuflow.flow.artifact import Reader
from npuflow.flow.store import Store

DATA = ("report", "report.json")  # the stage, and the entry of its artifact
VALUES = ("fidelity", "tensors")
SOURCES = ("sources", "sources.json")
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
    "loop",
)
SUMS = ("cycles", "macs", "bytes", "energy_uj")
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
LOOP = "loop "  # begins the names of loops
CODES, REAL = ":q", ":f"  # end the ids of an input's or output's codes, and of codes' real numbers
FIGURES = ("simulate", "tiling", "energy", "evaluate", "fidelity", "quantize", "precision")


def network(store: Store, name: str) -> dict[str, Any] | None:
    """Layers, loops and tensors, as the build's report has them; without histograms. `called`: what layers
    call inputs and outputs of the network -> the tensor of their codes."""
    data = _data(store, name)
    if data is None:
        return None
    places = _places(store, name)
    ids = {row["id"] for row in data["tensors"]}
    ends = {end for row in data["nodes"] for end in (*row["inputs"], *row["outputs"])} - ids
    return {
        "called": {end: found for end in sorted(ends) if (found := _codes_of(end, ids)) is not None},
        "title": data["title"],
        "layers": [
            {**{key: row.get(key) for key in LAYER}, **_source(row, places)} for row in data["nodes"]
        ],
        "loops": [
            _loop(one, [row for row in data["nodes"] if row.get("loop") == one["loop"]])
            for one in data.get("loops", ())
        ],
        "tensors": [{key: row.get(key) for key in TENSOR} for row in data["tensors"]],
    }


def _loop(said: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A loop as one layer: `layers` are the places by name of what it holds, `carries` and `stacks` its
    values."""
    found = {key: [row[key] for row in layers if row.get(key) is not None] for key in (*SUMS, "sqnr")}
    hosts = [row for row in layers if not row["npu"]]
    return {
        "name": f"{LOOP}{said['loop']}", "op": "Loop", "npu": not hosts,
        "reason": hosts[0]["reason"] if hosts else "",
        "inputs": said["reads"], "outputs": _given(said),
        **{key: sum(found[key]) if found[key] else None for key in SUMS},
        "sqnr": min(found["sqnr"], default=None),
        "loop": said["loop"], "steps": said["steps"], "carries": said["carries"], "stacks": said["stacks"],
        "layers": [row["name"] for row in layers],
    }


def tensor(store: Store, name: str, wanted: str) -> dict[str, Any] | None:
    """All that is known of a tensor; `pairs`: values of the float network and what the codes stand for. An
    input or output of the network is the tensor of its codes; a value of one step of a loop that of all
    steps. `loop` and `steps`: of a value that a loop makes anew in every step."""
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
    ends = {"made_by": layers["outputs"], "read_by": layers["inputs"]}
    return {**row, "pairs": pairs, **ends, **_of_loop(data, found)}


def _of_loop(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The loop whose steps make a tensor each, and how many those are: in a loop that stands in another one,
    of all steps of both."""
    made = (n for n in data["nodes"] if name in n["outputs"] and "loop" in n)
    row: Mapping[str, Any] = next(made, {})
    said = next((one for one in data.get("loops", ()) if one["loop"] == row.get("loop")), None)
    if said is None or name in _given(said):
        return {}
    within = next((one for one in said.get("inner", ()) if one["loop"] == row.get("inner")), None)
    if within is None or name in _given(within):
        return {"loop": said["loop"], "steps": said["steps"]}
    return {"loop": within["loop"], "steps": said["steps"] * within["steps"]}


def _given(said: Mapping[str, Any]) -> list[str]:
    """What a loop gives."""
    return [*said["stacks"], *(one["last"] for one in said["carries"])]


def _places(store: Store, name: str) -> dict[str, dict[str, Any]]:
    """Operator of the model -> where it comes from, of a build with [sources]."""
    made = _artifact(store, name, SOURCES[0])
    return {} if made is None else dict(json.loads(made.text(SOURCES[1]))["places"])


def _source(row: Mapping[str, Any], places: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """{"source": module, kind, file and line} of a layer, as far as they are known."""
    names = (row["name"], *(output.removesuffix(CODES) for output in row["outputs"]))
    found = next((places[name] for name in names if name in places), {})
    return {"source": {key: value for key, value in found.items() if value}} if found else {}


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
    """The tensor that a name means: itself, the codes of an input or output, those of real numbers, or a
    value of all steps of a loop by its name in one of them."""
    means, value = [name, f"{name}{CODES}", name.removesuffix(REAL)], name
    while "@" in value:                   # in a step, and in a step of an outer loop
        value, _, step = value.rstrip("'").rpartition("@")
        means += [value] if step.isdecimal() else []
    return next((one for one in means if one in ids), None)


def _data(store: Store, name: str) -> dict[str, Any] | None:
    """The report's data; layers that share a name, as those that a rule made of one do, have the names of
    their results."""
    made = _artifact(store, name, DATA[0])
    if made is None:
        return None
    data = dict(json.loads(made.text(DATA[1])))
    count = Counter(row["name"] for row in data["nodes"])
    for i, row in enumerate(data["nodes"]):
        own = next(iter(row["outputs"]), "")
        if count[row["name"]] > 1 and own != row["name"]:
            row["name"] = f"{own} ({i})" if own in count else own
    return data


def _artifact(store: Store, name: str, stage: str) -> Reader | None:
    """What a stage of the build made."""
    for one in records(store, name):
        if stage_of(one.stage) == stage and one.item is None and store.intact(one.output, remote=False):
            return store.open(one.output)
    return None
