"""The memory map: who lives where and when, in external memory by step and in local memory by cycle."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.engine.profile import svg
from npuflow.engine.profile.measure import Profile, Row
from npuflow.engine.sim.access import LOCAL, regions

WIDTH, PANEL, LEFT, TOP, RIGHT, GAP = 960.0, 320.0, 92.0, 44.0, 24.0, 64.0
MOST = 6_000              # rectangles of one panel


def external(found: Profile) -> list[Row]:
    """Every value's bytes in external memory and the steps it lives, with the results that take the bytes over."""
    memory = found.program.meta.get("memory", {})
    heirs: dict[str, list[str]] = {}
    for result, value in memory.get("in_place", {}).items():
        heirs.setdefault(value, []).append(result)
    keys = ("value", "address", "size", "first", "last")
    lives = [(" > ".join([name, *heirs.get(name, [])]), *rest) for name, *rest in memory.get("lives", [])]
    return [dict(zip(keys, life, strict=True)) for life in lives]


def local(found: Profile) -> list[Row]:
    """Every slot of local memory that commands of a layer use, from the first command that touches it to the last."""
    slots: dict[tuple[int, int, int, int], Row] = {}
    t = found.timeline
    for i, (core, index) in enumerate(found.order.sequence):
        command = found.program.decoded[core][index]
        for region in regions(command):
            if region.space != LOCAL:
                continue
            lo, hi = region.span
            key = (core, command.node, lo, hi)
            row = slots.setdefault(key, {
                "core": core, "layer": found.name(command.node), "node": command.node, "operand": region.name,
                "address": lo, "size": hi - lo, "start": float(t.start[i]), "end": 0.0,
            })  # fmt: skip
            row["end"] = max(row["end"], float(t.end[i]))
    return sorted(slots.values(), key=lambda r: (r["core"], r["start"], r["address"]))


def draw(found: Profile) -> str:
    """An SVG page: external memory, then every core's local memory that is used."""
    memory, values, slots = found.program.target.memory, external(found), local(found)
    cores = sorted({r["core"] for r in slots})
    parts: list[str] = []
    top, total = TOP, max(1, found.program.meta["data_bytes"])
    last = max((r["last"] for r in values), default=0) + 1
    bound = found.program.meta.get("memory", {}).get("bound", 0)
    words = f"external memory: {total:,} bytes, at least {bound:,} are alive at once; {len(values)} values over {last} steps"
    taken = len(found.program.meta.get("memory", {}).get("in_place", {}))
    words += f", {taken} results in place" if taken else ""
    words += "; all shared, on the chip" if total <= memory.shared_bytes else ""
    parts += _panel(top, words, total, f"step 0 .. {last - 1}")
    for n, r in enumerate(values):
        title = f"{r['value']}: {r['size']:,} bytes at {r['address']:,}, steps {r['first']} to {r['last']}"
        parts.append(_box(top, r["first"] / last, (r["last"] + 1) / last, r["address"], r["size"], total, n, title))
    if 0 < memory.shared_bytes < total:
        y = top + PANEL * (1 - min(1.0, memory.shared_bytes / total))
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, svg.RED, 1.5, "6 3"))
        parts.append(svg.text(WIDTH - RIGHT, y - 4, "shared, on the chip", svg.RED, "end", 11))
    for core in cores:
        top += PANEL + GAP
        mine = [r for r in slots if r["core"] == core]
        used = max(r["address"] + r["size"] for r in mine)
        words = f"local memory of core {core}: {used:,} of {memory.local_bytes:,} bytes are used, {memory.local_banks} banks"
        parts += _panel(top, words, memory.local_bytes, f"cycle 0 .. {found.cycles:,.0f}")
        for bank in range(1, memory.local_banks):
            y = top + PANEL * bank / memory.local_banks
            parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, svg.LINE, 0.5, "2 3"))
        for r in sorted(mine, key=lambda r: -r["size"] * (r["end"] - r["start"]))[:MOST]:
            span = f"cycles {r['start']:,.0f} to {r['end']:,.0f}"
            title = f"{r['layer']} ({r['operand']}): {r['size']:,} bytes at {r['address']:,}, {span}"
            parts.append(_box(
                top, r["start"] / found.cycles, r["end"] / found.cycles, r["address"], r["size"], memory.local_bytes,
                r["node"], title,
            ))  # fmt: skip
    name = found.program.meta.get("name") or "program"
    return svg.page(WIDTH, top + PANEL + 40, [svg.text(LEFT, 20, name, size=14), *parts])


def _panel(top: float, words: str, total: int, across: str) -> Iterator[str]:
    yield svg.text(LEFT, top - 6, words, svg.SOFT)
    yield svg.rect(LEFT, top, WIDTH - LEFT - RIGHT, PANEL, svg.PAPER, svg.SOFT)
    for part in range(5):
        y = top + PANEL * (1 - part / 4)
        yield svg.text(LEFT - 6, y + 4, f"{total * part // 4:,}", svg.SOFT, "end", 10)
    yield svg.text((LEFT + WIDTH - RIGHT) / 2, top + PANEL + 16, across, svg.SOFT, "middle", 11)


def _box(top: float, start: float, end: float, address: int, size: int, total: int, colour: int, title: str) -> str:
    width = WIDTH - LEFT - RIGHT
    y = top + PANEL * (1 - (address + size) / total)
    return svg.rect(LEFT + width * start, y, width * (end - start), PANEL * size / total, svg.hue(colour), svg.PAPER, title)


def text_map(found: Profile, lines: int = 24, width: int = 96) -> str:
    """External memory in letters: rows are addresses, columns steps, a letter is a value alive there."""
    rows, total = external(found), max(1, found.program.meta["data_bytes"])
    if not rows:
        return "no integer value lives in external memory"
    last = max(r["last"] for r in rows) + 1
    width = min(width, last)
    grid = [[" "] * width for _ in range(lines)]
    for n, row in enumerate(rows):
        mark = chr(ord("a") + n % 26)
        top, bottom = row["address"] * lines // total, max(1, -(-(row["address"] + row["size"]) * lines // total))
        for y in range(top, min(lines, bottom)):
            for x in range(row["first"] * width // last, max(row["last"] * width // last, row["first"] * width // last) + 1):
                grid[y][min(x, width - 1)] = mark
    shown = [f"{y * total // lines:>12,} |{''.join(marks)}|" for y, marks in enumerate(grid)]
    laid = found.program.meta["memory"]
    bound = laid["bound"]
    least = f"at least {bound:,} alive at once{_gap(total, bound)}"
    shown.append(f"{total:>12,} bytes, {least}; steps 0..{last - 1} from left to right")
    slots = local(found)
    for core in sorted({r["core"] for r in slots}):
        used = max(r["address"] + r["size"] for r in slots if r["core"] == core)
        shown.append(f"{used:>12,} bytes of core {core}'s {found.program.target.memory.local_bytes:,} local bytes are used")
    if "local_bound" in laid:
        used, bound = laid["local_used"], laid["local_bound"]
        shown.append(f"{used:>12,} of them at most, at least {bound:,} alive at once{_gap(used, bound)}; constants come in early "
                     "where bytes are free")  # fmt: skip
    return "\n".join(shown)


def _gap(used: int, bound: int) -> str:
    return f" (gap {used / bound:.2f})" if bound else ""
