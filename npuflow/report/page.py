"""The page: data, figures, style and scripts in one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from npuflow.base.code import package_file
from npuflow.report.figures.export import in_script
from npuflow.report.page_figures import figures

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
