"""A build for Google's Model Explorer: the network as a graph, and figures of its layers as node data.

`graph.json` is a collection of graphs, {"label", "graphs": [{"id", "nodes"}]}; every other file is the node
data of one figure, {"name", "results": {node: {"value"}}, "gradient"}. Nodes are the layers of the report.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuflow.report.code_places import CodePlaces

FIGURES = {
    "cycles": "cycles", "bytes": "external bytes", "macs": "MACs", "energy_uj": "energy, uJ",
    "sqnr": "SQNR, dB",
}
"""Of layers in the report, with the names of their node data; files have the names of the keys."""
GOOD, BAD = "#d7f0d0", "#e4572e"
ATTRIBUTES = ("name", "reason", "limit", "attributes", "loop")


def write(path: Path, folder: Path, sets: Sequence[str], cache: Path | None) -> list[Path]:
    """Write the files of the last build of a recipe."""
    from npuflow.cli._engine import settings
    from npuflow.cli._files import writing
    from npuflow.cli._loaded import load_build
    from npuflow.cli._sources import places_of

    made = load_build(path, sets, cache)
    places = places_of(path, sets, settings(cache=cache), made.graph)
    files = []
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in documents(made.report, made.recipe.name, places):
            files.append(folder / f"{name}.json")
            files[-1].write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return files


def documents(
    report: Mapping[str, Any], label: str, places: CodePlaces
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of files and their content. `report`: the data of a report."""
    rows = report["nodes"]
    ids = _ids(rows)
    nodes = [_node(row, name, places) for row, name in zip(rows, ids, strict=True)]
    made = {value: (ids[i], str(k)) for i, row in enumerate(rows) for k, value in enumerate(row["outputs"])}
    ends = [i for i in dict.fromkeys(i for row in rows for i in row["inputs"]) if i not in made]
    inputs = [{"id": f"input {name}", "label": name, "namespace": ""} for name in ends]
    made |= {name: (f"input {name}", "0") for name in ends}
    for row, node in zip(rows, nodes, strict=True):
        node["incomingEdges"] = [
            {"sourceNodeId": made[v][0], "sourceNodeOutputId": made[v][1], "targetNodeInputId": str(k)}
            for k, v in enumerate(row["inputs"])
        ]
    yield "graph", {"label": label, "graphs": [{"id": label, "nodes": [*inputs, *nodes]}]}
    for key, title in FIGURES.items():
        held = {name: row[key] for name, row in zip(ids, rows, strict=True) if row.get(key) is not None}
        if held:
            ends_of = (BAD, GOOD) if key == "sqnr" else (GOOD, BAD)
            gradient = [{"stop": stop, "bgColor": color} for stop, color in enumerate(ends_of)]
            results = {name: {"value": value} for name, value in held.items()}
            yield key, {"name": title, "results": results, "gradient": gradient}


def _ids(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for every layer; those that share one have their results' names."""
    count = Counter(row["name"] for row in rows)
    found: list[str] = []
    for i, row in enumerate(rows):
        name = row["name"] if count[row["name"]] == 1 else next(iter(row["outputs"]), row["name"])
        found.append(name if name not in found else f"{name} ({i})")
    return found


def _node(row: Mapping[str, Any], name: str, places: CodePlaces) -> dict[str, Any]:
    place = places.of(row["name"], *row["outputs"])
    facts = {key: row[key] for key in ATTRIBUTES if row.get(key)}
    if place is not None:
        lines = {"module": place.module, "kind": place.kind}
        lines |= {"source": f"{place.file}:{place.line}"} if place.file else {}
        facts |= {key: text for key, text in lines.items() if text}
    space = place.module.replace(".", "/") if place is not None else name.strip("/").rpartition("/")[0]
    return {
        "id": name, "label": row["op"], "namespace": space,
        "attrs": [{"key": key, "value": str(value)} for key, value in facts.items()],
        "outputsMetadata": [
            {"id": str(k), "attrs": [{"key": "tensor_name", "value": value}]}
            for k, value in enumerate(row["outputs"])
        ],
    }
