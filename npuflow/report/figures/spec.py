"""What all figures share: the form of a specification, colours, and formats of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Spec = dict[str, Any]  # a Vega-Lite specification: JSON
Row = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED, GREY = "#2f6fb0", "#d9822b", "#4a9d6e", "#b5484a", "#7b8894"
QUEUES = {"LOAD": BLUE, "STORE": ORANGE, "TENSOR": GREEN, "VECTOR": RED}

LIGHT = {"ink": "#1b2530", "soft": "#5d6b7a", "line": "#dde3ea", "paper": "#ffffff"}
DARK = {"ink": "#e6ebf0", "soft": "#9aa7b5", "line": "#35404c", "paper": "#161c23"}


def config(colours: Mapping[str, str], font: str = "sans-serif") -> dict[str, Any]:
    """Vega-Lite's configuration in these colours: figures themselves name no ink and no paper."""
    ink, soft, line = colours["ink"], colours["soft"], colours["line"]
    axis = {"labelColor": soft, "titleColor": soft, "gridColor": line, "domainColor": line, "tickColor": line}
    return {
        "background": colours["paper"],
        "font": font,
        "view": {"stroke": line},
        "axis": {**axis, "titleFontWeight": "normal", "labelFontSize": 11},
        "legend": {"labelColor": soft, "titleColor": soft, "titleFontWeight": "normal"},
        "title": {
            "color": ink,
            "subtitleColor": soft,
            "anchor": "start",
            "fontSize": 13,
            "subtitleFontSize": 11,
        },
        "text": {"color": ink, "fontSize": 11},
        "rule": {"color": soft},
        "line": {"color": soft},
    }


def figure(width: float, height: float, layers: Sequence[Row], **more: Any) -> Spec:
    """A chart of layers over each other."""
    return {"width": width, "height": height, "layer": list(layers), **more}


def rows(data: Iterable[Row]) -> Spec:
    return {"values": [dict(row) for row in data]}


def number(name: str, title: str | None = None, scale: Row | None = None, **more: Any) -> Spec:
    """A quantitative channel from a field. `title` None: no title."""
    found: Spec = {"field": name, "type": "quantitative", "title": title, **more}
    return {**found, "scale": dict(scale)} if scale is not None else found


def hidden(name: str, low: float, high: float, *, down: bool = False) -> Spec:
    """A quantitative channel in pixels of its own, without an axis."""
    scale = {"domain": [low, high], "nice": False, "zero": False, "reverse": down}
    return number(name, scale=scale, axis=None)


def coloured(name: str, colours: Mapping[str, str], title: str | None = None, **more: Any) -> Spec:
    """A nominal channel with a colour for each of its values."""
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {"field": name, "type": "nominal", "title": title, "scale": scale, **more}


def shown(name: str) -> Spec:
    """The field with a mark's text under the pointer, which is its description in a file."""
    text = {"field": name, "type": "nominal"}
    return {"tooltip": text, "description": text}


def zoom(*encodings: str) -> Spec:
    """The wheel zooms, dragging moves; a double click shows all again."""
    return {
        "name": "zoom",
        "select": {"type": "interval", "encodings": list(encodings)},
        "bind": "scales",
    }


def hue(index: int) -> str:
    """Colours of neighbours lie far apart on the wheel."""
    return f"hsl({index * 137.5 % 360:.0f}, 55%, 62%)"


def shortened(words: str, most: int) -> str:
    """Long text without its middle."""
    return words if len(words) <= most else words[: most // 2 - 1] + "…" + words[len(words) - most // 2 :]
