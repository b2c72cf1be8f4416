"""The figures of a report: from its data, the same JSON that machines read, to specifications by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuflow.report.figures import channels, histogram
from npuflow.report.figures.boxes import boxes
from npuflow.report.figures.memory_map import memory_map
from npuflow.report.figures.quality import quality
from npuflow.report.figures.roofline import roofline
from npuflow.report.figures.spec import BLUE, DARK, LIGHT, ORANGE, Spec, config
from npuflow.report.figures.timeline import timeline
from npuflow.report.profile.memory import boxes as lives

Data = Mapping[str, Any]
PLACES = {"NPU": ("#e3edf7", BLUE), "host": ("#fbeedd", ORANGE)}


def figures(data: Data) -> dict[str, Any]:
    """Whole figures; templates, whose data the page fills in for the chosen tensor; and the colours."""
    return {
        "network": network(data["nodes"]),
        "quality": quality(data["tensors"]),
        "timeline": _timeline(data),
        "memory": _memory(data["memory"]),
        "roofline": roofline(**data["roofline"]) if data["roofline"]["points"] else None,
        "histogram": histogram.template(),
        "channels": channels.template(),
        "light": config(LIGHT, "system-ui, sans-serif"),
        "dark": config(DARK, "system-ui, sans-serif"),
    }


def network(nodes: list[Data]) -> Spec | None:
    """The layers of the network, each below those whose results it takes."""
    # nodes of an imported network may share a name, and those that a rule made do
    keys = [str(i) for i in range(len(nodes))]
    maker = {value: key for key, node in zip(keys, nodes, strict=True) for value in node["outputs"]}
    needs = {
        key: {maker[v] for v in node["inputs"] if v in maker} for key, node in zip(keys, nodes, strict=True)
    }
    rows = {
        key: {
            "name": node["name"],
            "text": node["op"],
            "below": "" if node["sqnr"] is None else f"{node['sqnr']:.0f} dB",
            "label": node["name"],
            "kind": "NPU" if node["npu"] else "host",
        }
        for key, node in zip(keys, nodes, strict=True)
    }
    return boxes(rows, needs, PLACES) if rows else None


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
