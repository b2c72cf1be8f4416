"""The page: data, style and script in one HTML file that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

PACKAGE = "npuflow.engine.report"
PACKAGE_DATA = ("page.html", "page.css", "page.js")


def render(data: Mapping[str, Any]) -> str:
    """The whole page; `data` must be JSON without NaN (see `report_data`)."""
    parts = {name: files(PACKAGE).joinpath(name).read_text("utf-8") for name in PACKAGE_DATA}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    page = parts["page.html"]
    values = {"title": html.escape(str(data["title"])), "style": parts["page.css"], "script": parts["page.js"], "data": text}
    for name, value in values.items():
        before, after = page.split("{{" + name + "}}", 1)
        page = before + value + after
    return page
