"""The page: data, figures, style and scripts in one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.base.code import package_file
from npuflow.report.figures.boxes import boxes
from npuflow.report.figures.export import in_script
from npuflow.report.figures.program import memory_map, timeline
from npuflow.report.figures.roofline import roofline
from npuflow.report.figures.spec import BLUE, DARK, LIGHT, ORANGE, Row, Spec, config
from npuflow.report.figures.tensors import channel_template, histogram_template, quality
from npuflow.report.profile.memory import boxes as lives

Data = Mapping[str, Any]
LOOP = "loop "                            # begins the names of loops
PLACES = {"NPU": ("#e3edf7", BLUE), "host": ("#fbeedd", ORANGE)}


def figures(data: Data) -> dict[str, Any]:
    """Whole figures; templates, whose data the page fills in for the chosen tensor; and the colours."""
    return {
        "network": network(data["nodes"], data.get("loops", ())),
        "quality": quality(data["tensors"]),
        "timeline": _timeline(data),
        "memory": _memory(data["memory"]),
        "roofline": roofline(**data["roofline"]) if data["roofline"]["points"] else None,
        "histogram": histogram_template(),
        "channels": channel_template(),
        "light": config(LIGHT, "system-ui, sans-serif"),
        "dark": config(DARK, "system-ui, sans-serif"),
    }


def network(nodes: Sequence[Data], loops: Sequence[Data] = ()) -> Spec | None:
    """The layers of the network, each below those whose results it takes; a loop is one of them."""
    # nodes of an imported network may share a name, and those that a rule made do
    keys = [f"{LOOP}{node['loop']}" if "loop" in node else str(i) for i, node in enumerate(nodes)]
    maker = {value: key for key, node in zip(keys, nodes, strict=True) for value in node["outputs"]}
    needs: dict[str, set[str]] = {key: set() for key in keys}
    for key, node in zip(keys, nodes, strict=True):
        needs[key] |= {maker[v] for v in node["inputs"] if v in maker} - {key}
    rows = {key: _box(node) for key, node in zip(keys, nodes, strict=True) if "loop" not in node}
    for loop in loops:
        inner = [node for node in nodes if node.get("loop") == loop["loop"]]
        known = [node["sqnr"] for node in inner if node["sqnr"] is not None]
        rows[f"{LOOP}{loop['loop']}"] = _box({
            "name": f"{LOOP}{loop['loop']}", "op": f"{loop['steps']} x Loop",
            "sqnr": min(known, default=None), "npu": all(node["npu"] for node in inner),
        })
    return boxes({key: rows[key] for key in needs}, needs, PLACES) if rows else None


def _box(node: Data) -> Row:
    return {
        "name": node["name"],
        "text": node["op"],
        "below": "" if node["sqnr"] is None else f"{node['sqnr']:.0f} dB",
        "label": node["name"],
        "kind": "NPU" if node["npu"] else "host",
    }


def _timeline(data: Data) -> Spec | None:
    shown = data["timeline"]
    if not shown["queues"]:
        return None
    names = [node["name"] for node in data["nodes"]]
    return timeline(shown["queues"], shown["events"], names, shown["cycles"])


def _memory(memory: Data) -> Spec | None:
    values, total = memory["live"], memory["data_bytes"]
    if not values or not total:
        return None
    end = max(v["last"] for v in values) + 1
    words = "External memory: values by address and the steps of the program in which they live"
    return memory_map(words, lives(values, "id"), total, "step", end)


FIGURES_ONLY = ("timeline", "roofline")  # parts of the data that only figures show


def render(data: Mapping[str, Any], library: str) -> str:
    """The whole page; `data` must be JSON without NaN (see `gather.report_data`), `library` the JavaScript
    that draws figures (see `figures.export.script`)."""
    page = package_file("page.html").read_text("utf-8")
    parts = (
        ("title", html.escape(str(data["title"]))),
        ("style", package_file("page.css").read_text("utf-8")),
        ("script", package_file("page.js").read_text("utf-8")),
        ("library", library),
        ("figures", in_script(figures(data))),
        ("data", in_script(_without_events(data))),
    )
    found = []
    for name, value in parts:
        mark = "{{" + name + "}}"
        found.append((page.index(mark), mark, value))
    for place, mark, value in sorted(found, reverse=True):  # from the end: nothing is looked for in a value
        page = page[:place] + value + page[place + len(mark) :]
    return page


def _without_events(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's own script reads: figures have the rest."""
    kept = {key: value for key, value in data.items() if key not in FIGURES_ONLY}
    return {
        **kept,
        "timeline": {"cycles": data["timeline"]["cycles"], "shortened": data["timeline"]["shortened"]},
        "memory": {key: value for key, value in data["memory"].items() if key != "live"},
    }
