"""The page: data, style and script in one HTML file that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from npuflow.base.code import package_file


def render(data: Mapping[str, Any]) -> str:
    """The whole page; `data` must be JSON without NaN (see `gather.report_data`)."""
    page = package_file("page.html").read_text("utf-8")
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    parts = (
        ("title", html.escape(str(data["title"]))),
        ("style", package_file("page.css").read_text("utf-8")),
        ("script", package_file("page.js").read_text("utf-8")),
        ("data", text),                   # last: nothing is looked for inside it
    )
    for name, value in parts:
        before, after = page.split("{{" + name + "}}", 1)
        page = before + value + after
    return page
