"""Histograms with their thresholds as a picture: SVG, or PNG from the same strokes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from math import log1p
from typing import Protocol

WIDTH, HEIGHT, TEXT, GAP = 460, 130, 15, 16   # of one panel: its bars, a line of text, what lies between
INK, SOFT, BARS, LINE, WASH, PAPER = "#1b2530", "#5d6b7a", "#2f6fb0", "#b5484a", "#f3e3e3", "#ffffff"


@dataclass(frozen=True)
class Panel:
    """One tensor: counts of equal bins over [lo, hi], thresholds, and lines to write below."""

    title: str
    lo: float
    hi: float
    counts: Sequence[float]
    threshold: tuple[float, float] | None = None
    lines: Sequence[str] = ()


class Canvas(Protocol):
    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None: ...
    def text(
        self, x: float, y: float, words: str, colour: str, anchor: str = "start", bold: bool = False
    ) -> None: ...


def drawing(panels: Sequence[Panel], columns: int = 2) -> tuple[int, int, Callable[[Canvas], None]]:
    """Width and height of the sheet, and what draws it."""
    columns = max(1, min(columns, len(panels)))
    most = max((len(p.lines) for p in panels), default=0)
    high = HEIGHT + (3 + most) * TEXT + 2 * GAP
    rows = -(-len(panels) // columns)
    width, height = columns * (WIDTH + 2 * GAP), rows * high + GAP

    def draw(canvas: Canvas) -> None:
        canvas.rect(0, 0, width, height, PAPER)
        for i, panel in enumerate(panels):
            _panel(canvas, panel, (i % columns) * (WIDTH + 2 * GAP) + GAP, (i // columns) * high + GAP)

    return width, height, draw


def _panel(canvas: Canvas, panel: Panel, x: float, y: float) -> None:
    canvas.text(x, y + 11, _short(panel.title, 62), INK, bold=True)
    top = y + TEXT + 4
    lo, hi = panel.lo, panel.hi
    if panel.threshold is not None:                      # a threshold beyond what was seen is shown too
        lo, hi = min(lo, panel.threshold[0]), max(hi, panel.threshold[1])
    span = hi - lo or 1.0

    def place(value: float) -> float:
        return x + (value - lo) / span * WIDTH

    if panel.threshold is not None:
        for a, b in ((lo, panel.threshold[0]), (panel.threshold[1], hi)):
            if b > a:
                canvas.rect(place(a), top, place(b) - place(a), HEIGHT, WASH)
    peak = max((log1p(c) for c in panel.counts), default=0.0) or 1.0
    step = (panel.hi - panel.lo) / max(len(panel.counts), 1)
    for i, count in enumerate(panel.counts):
        tall = log1p(count) / peak * (HEIGHT - 4)
        if tall > 0:
            left = place(panel.lo + i * step)
            canvas.rect(
                left, top + HEIGHT - tall, max(place(panel.lo + (i + 1) * step) - left - 0.3, 0.6), tall, BARS
            )
    canvas.rect(x, top + HEIGHT, WIDTH, 1, SOFT)
    canvas.text(x, top + HEIGHT + 14, f"{lo:.5g}", SOFT)
    canvas.text(x + WIDTH, top + HEIGHT + 14, f"{hi:.5g}", SOFT, "end")
    for end, value in enumerate(panel.threshold or ()):
        canvas.rect(place(value) - 0.75, top, 1.5, HEIGHT, LINE)
        near_end = min(value - lo, hi - value) < 0.01 * span
        if not near_end:
            canvas.text(
                min(max(place(value), x + 90), x + WIDTH - 90),
                top + HEIGHT + 14,
                f"{value:.5g}",
                LINE,
                "middle",
            )
        elif panel.threshold is not None and panel.threshold[end] != (panel.lo, panel.hi)[end]:
            canvas.text(place(value), top + 12, f"{value:.5g}", LINE, "end" if end else "start")
    for i, line in enumerate(panel.lines):
        canvas.text(x, top + HEIGHT + 14 + (i + 1) * TEXT, _short(line, 88), SOFT)


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most // 2 - 1] + "…" + words[len(words) - most // 2 :]


@dataclass
class _Svg:
    parts: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"/>'
        )

    def text(
        self, x: float, y: float, words: str, colour: str, anchor: str = "start", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.2f}" y="{y:.2f}" fill="{colour}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )


def svg(panels: Sequence[Panel], columns: int = 2) -> str:
    """The sheet as an SVG document."""
    width, height, draw = drawing(panels, columns)
    canvas = _Svg()
    draw(canvas)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} '
        f'{height}" '
    )
    return head + 'font-family="sans-serif" font-size="11">\n' + "\n".join(canvas.parts) + "\n</svg>\n"


def png(panels: Sequence[Panel], columns: int = 2, zoom: int = 2) -> bytes:
    """The sheet as a PNG file, at `zoom` times its size."""
    from PIL import Image, ImageDraw, ImageFont

    width, height, draw = drawing(panels, columns)
    picture = Image.new("RGB", (width * zoom, height * zoom), PAPER)
    brush = ImageDraw.Draw(picture)
    font = ImageFont.load_default(11 * zoom)

    class Pixels:
        def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
            right, bottom = max((x + width) * zoom - 1, x * zoom), max((y + height) * zoom - 1, y * zoom)
            brush.rectangle((x * zoom, y * zoom, right, bottom), fill=colour)

        def text(
            self, x: float, y: float, words: str, colour: str, anchor: str = "start", bold: bool = False
        ) -> None:
            where = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
            shown = (
                words.encode("latin-1", "replace").decode("latin-1").replace("?", "~")
                if "…" in words
                else words
            )
            brush.text(
                (x * zoom, y * zoom),
                shown,
                fill=colour,
                font=font,
                anchor=where,
                stroke_width=zoom // 2 if bold else 0,
            )

    draw(Pixels())
    out = BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()
