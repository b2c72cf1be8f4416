"""The roofline plot: every layer's multiply-accumulates per cycle over those per external
byte, under the machine's roofs."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10, sqrt

from npuflow.engine.profile import svg
from npuflow.engine.profile.measure import Profile, Row

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860.0, 520.0, 70.0, 46.0, 30.0, 56.0
NAMED = 12


def points(found: Profile) -> list[Row]:
    """Layers with multiply-accumulates: intensity, rate and cycles (of the critical path, at least of its
    busiest queue and of the bus, where the queues of several cores meet)."""
    rows, memory = [], found.program.target.memory
    for row in found.operators():
        bus = (row["load_bytes"] + row["store_bytes"]) / memory.external_bandwidth + row[
            "shared_bytes"
        ] / memory.shared_bandwidth
        cycles = max(row["path_cycles"], row["busiest"], bus)
        moved = row["load_bytes"] + row["store_bytes"] + row["shared_bytes"]
        if row["macs"] and cycles and moved:
            rows.append({"name": row["name"], "intensity": row["macs"] / moved, "rate": row["macs"] / cycles,
                         "cycles": cycles, "limit": row["limit"]})
    return rows


def draw(found: Profile) -> str:
    """An SVG page."""
    rows, target = points(found), found.program.target
    peak, width = float(target.compute.macs * target.compute.cores), target.memory.external_bandwidth
    knee = peak / width
    xs = [r["intensity"] for r in rows] + [knee]
    ys = [r["rate"] for r in rows] + [peak]
    frame = _Frame(
        floor(log10(min(xs) / 1.5)),
        ceil(log10(max(xs) * 2)),
        floor(log10(min(ys) / 1.5)),
        ceil(log10(max(ys) * 1.05)),
    )
    roofs = [
        ("array", target.compute.macs * target.compute.cores, svg.INK),
        ("one core", target.compute.macs, svg.SOFT), ("depthwise", target.compute.depthwise_macs, svg.SOFT),
    ]
    parts = [
        *frame.axes(),
        *_roofs(frame, width, roofs if target.compute.cores > 1 else [roofs[0], roofs[2]]),
    ]
    if target.memory.shared_bytes:
        parts += _slope(frame, target.memory.shared_bandwidth, peak, svg.SOFT, "5 4")
    total = sum(r["cycles"] for r in rows) or 1.0
    colours = {"array": svg.BLUE, "bandwidth": svg.ORANGE, "vector": svg.GREEN}
    for r in sorted(rows, key=lambda r: -r["cycles"]):
        radius = _radius(r, total)
        words = (
            f"{r['name']}: {r['rate']:.1f} MAC/cycle, {r['intensity']:.1f} MAC/byte, {r['cycles']:,.0f} "
            f"cycles, {r['limit']}"
        )
        parts.append(
            svg.circle(
                frame.x(r["intensity"]), frame.y(r["rate"]), radius, colours.get(r["limit"], svg.RED), words
            )
        )
    parts += _names(frame, rows, total)
    title = (
        f"{found.program.meta.get('name') or 'program'}: {found.cycles:,.0f} cycles, area of a dot = its "
        "layer's cycles"
    )
    parts.append(svg.text(LEFT, 22, title, size=14))
    for i, (name, colour) in enumerate(colours.items()):
        x = LEFT + 6 + i * 140
        parts += [svg.circle(x, 36, 5, colour), svg.text(x + 10, 40, f"busiest: {name}", svg.SOFT, size=11)]
    return svg.page(WIDTH, HEIGHT, parts)


def _roofs(frame: _Frame, width: float, roofs: list[tuple[str, int, str]]) -> Iterator[str]:
    right = 10.0**frame.x1
    for name, rate, colour in roofs:
        knee = max(10.0**frame.x0, rate / width)
        dash = "" if colour == svg.INK else "5 4"
        yield svg.line(frame.x(knee), frame.y(rate), frame.x(right), frame.y(rate), colour, 1.5, dash)
        yield svg.text(frame.x(right) - 4, frame.y(rate) - 5, f"{name} {rate:,} MAC/cycle", colour, "end", 11)
    yield from _slope(frame, width, roofs[0][1], svg.INK)


def _slope(frame: _Frame, width: float, peak: float, colour: str, dash: str = "") -> Iterator[str]:
    """The roof that a memory of some bytes per cycle sets."""
    low, high = max(10.0**frame.x0, 10.0**frame.y0 / width), peak / width
    yield svg.line(
        frame.x(low), frame.y(low * width), frame.x(high), frame.y(high * width), colour, 1.5, dash
    )
    yield svg.text(frame.x(low) + 24, frame.y(low * width) - 3, f"{width:g} bytes/cycle", colour, "start", 11)


def _radius(row: Row, total: float) -> float:
    return 3.0 + 26.0 * sqrt(row["cycles"] / total)


def _names(frame: _Frame, rows: list[Row], total: float) -> Iterator[str]:
    """Names of the largest layers beside their dots, each where no other name is."""
    taken: list[tuple[float, float, float]] = []
    for r in sorted(rows, key=lambda r: -r["cycles"])[:NAMED]:
        words, y = _brief(r["name"]), frame.y(r["rate"]) + 4
        width, gap = 5.6 * len(words), _radius(r, total) + 3
        x = frame.x(r["intensity"]) + gap
        if x + width > WIDTH - RIGHT:
            x -= 2 * gap + width
        if all(x > b or x + width < a or abs(y - c) > 12 for a, b, c in taken):
            taken.append((x, x + width, y))
            yield svg.text(x, y, words, svg.INK, "start", 10, halo=True)


def _brief(name: str, most: int = 30) -> str:
    """A path without the operator at its end; of long names the end, where they differ."""
    parts = [p for p in name.split("/") if p]
    parts = (
        parts[:-1]
        if len(parts) > 1 and parts[-1].rstrip("0123456789_").isalpha() and parts[-1][:1].isupper()
        else parts
    )
    short = "/".join(parts)
    return short if len(short) <= most else ".." + short[2 - most :]


class _Frame:
    """Logarithmic axes; ends are powers of ten."""

    def __init__(self, x0: int, x1: int, y0: int, y1: int) -> None:
        self.x0, self.x1, self.y0, self.y1 = x0, max(x1, x0 + 1), y0, max(y1, y0 + 1)

    def x(self, value: float) -> float:
        return LEFT + (log10(value) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (log10(value) - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def axes(self) -> Iterator[str]:
        for power in range(self.x0, self.x1 + 1):
            x = self.x(10.0**power)
            yield svg.line(x, TOP, x, HEIGHT - BOTTOM)
            yield svg.text(x, HEIGHT - BOTTOM + 16, svg.short(10.0**power), svg.SOFT, "middle", 11)
        for power in range(self.y0, self.y1 + 1):
            y = self.y(10.0**power)
            yield svg.line(LEFT, y, WIDTH - RIGHT, y)
            yield svg.text(LEFT - 6, y + 4, svg.short(10.0**power), svg.SOFT, "end", 11)
        yield svg.text(
            (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 16,
            "multiply-accumulates per byte transferred",
            svg.SOFT,
            "middle",
        )
        yield svg.text(
            18, (TOP + HEIGHT - BOTTOM) / 2, "multiply-accumulates per cycle", svg.SOFT, "middle", turn=-90
        )
