"""Just enough of SVG for plots: shapes and text as strings, a page around them, colours by index."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

INK, SOFT, LINE, PAPER = "#1b2530", "#5d6b7a", "#dde3ea", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#2f6fb0", "#d9822b", "#4a9d6e", "#b5484a"


def page(width: float, height: float, parts: Iterable[str]) -> str:
    style = 'font-family="system-ui, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" {style}>'
    return "\n".join([head, rect(0, 0, width, height, PAPER), *parts, "</svg>", ""])


def rect(x: float, y: float, width: float, height: float, fill: str, edge: str = "", title: str = "") -> str:
    line = f' stroke="{edge}" stroke-width="0.5"' if edge else ""
    shape = (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(0.0, width):.2f}" height="{max(0.0, height):.2f}" '
        f'fill="{fill}"{line}'
    )
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def circle(x: float, y: float, radius: float, fill: str, title: str = "") -> str:
    shape = (
        f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.2f}" fill="{fill}" fill-opacity="0.65" '
        f'stroke="{PAPER}">'
    )
    return f"{shape}<title>{escape(title)}</title></circle>"


def line(
    x1: float, y1: float, x2: float, y2: float, colour: str = LINE, width: float = 1.0, dash: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    colour: str = INK,
    anchor: str = "start",
    size: float = 12,
    turn: float = 0,
    halo: bool = False,
) -> str:
    """`halo`: the paper shows around the letters, over whatever lies beneath."""
    turned = f' transform="rotate({turn:g} {x:.2f} {y:.2f})"' if turn else ""
    around = (
        f' stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"' if halo else ""
    )
    place = (
        f'<text x="{x:.2f}" y="{y:.2f}" fill="{colour}" text-anchor="{anchor}" '
        f'font-size="{size:g}"{turned}{around}>'
    )
    return f"{place}{escape(words)}</text>"


def hue(index: int) -> str:
    """Colours of neighbours lie far apart on the wheel."""
    return f"hsl({index * 137.5 % 360:.0f} 55% 62%)"


def short(number: float) -> str:
    """A number as axes show it."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{name}" if number % unit == 0 else f"{number / unit:.1f}{name}"
    return f"{number:g}" if number >= 1 or number == 0 else f"{number:.2g}"
