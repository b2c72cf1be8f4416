"""The memory map: who lives where and when, in external memory by step and in local memory by cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from npuflow.engine.profile import svg
from npuflow.engine.profile.measure import Profile, Row
from npuflow.engine.sim.access import regions
from npuflow.hw.region import CONST, LOCAL

WIDTH, PANEL, LEFT, TOP, RIGHT, GAP = 960.0, 320.0, 92.0, 44.0, 24.0, 64.0
Array = npt.NDArray[np.int32]
MARKS = {"constants": "w", "values": "#"}
NAMED = 12                # values that the legend names
MOST = 6_000              # rectangles of one panel


def external(found: Profile) -> list[Row]:
    """Every value's bytes in external memory and the steps it lives, with the
    results that take the bytes over."""
    memory = found.program.meta.get("memory", {})
    heirs: dict[str, list[str]] = {}
    for result, value in memory.get("in_place", {}).items():
        heirs.setdefault(value, []).append(result)
    keys = ("value", "address", "size", "first", "last")
    lives = [(" > ".join([name, *heirs.get(name, [])]), *rest) for name, *rest in memory.get("lives", [])]
    return [dict(zip(keys, life, strict=True)) for life in lives]


def local(found: Profile) -> list[Row]:
    """Every slot of local memory that commands of a layer use, from the first command that touches it to the
    last that uses what they wrote there: a constant that came in early lives until it is read."""
    slots: dict[tuple[int, int, int, int], Row] = {}
    # of each core: the slot that last wrote there, by its place in `rows`
    owners: dict[int, Array] = {}
    rows: list[Row] = []
    t, memory = found.timeline, found.program.target.memory
    unit = memory.slot_align                 # no two slots share one
    for i in np.argsort(t.start, kind="stable").tolist():
        core, index = found.order.sequence[i]
        command, end = found.program.decoded[core][index], float(t.end[i])
        if core not in owners:
            owners[core] = np.full(-(-memory.local_bytes // unit), -1, np.int32)
        owner = owners[core]
        touched = regions(command)
        for region in sorted(touched, key=lambda r: r.write):
            if region.space != LOCAL:
                continue
            lo, hi = region.span
            key = (core, command.node, lo, hi)
            places = slice(lo // unit, -(-hi // unit))
            made = () if region.write else _different(owner[places])
            constant = any(rows[k]["kind"] == "constants" for k in made) or any(
                r.space == CONST for r in touched
            )
            if key not in slots:
                slots[key] = {
                    "core": core,
                    "layer": found.name(command.node),
                    "node": command.node,
                    "operand": region.name,
                    "kind": "constants" if constant else "values",
                    "address": lo,
                    "size": hi - lo,
                    "start": float(t.start[i]),
                    "end": 0.0,
                    "index": len(rows),
                }
                rows.append(slots[key])
            row = slots[key]
            row["end"] = max(row["end"], end)
            if region.write:
                owner[places] = row["index"]
            for k in made:
                rows[k]["end"] = max(rows[k]["end"], end)
    for row in rows:
        del row["index"]
    return sorted(rows, key=lambda r: (r["core"], r["start"], r["address"]))


def _different(owner: Array) -> set[int]:
    """The slots in a stretch of memory."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    return {k for k in owner[begins].tolist() if k >= 0}


def draw(found: Profile) -> str:
    """An SVG page: external memory, then every core's local memory that is used."""
    memory, values, slots = found.program.target.memory, external(found), local(found)
    cores = sorted({r["core"] for r in slots})
    parts: list[str] = []
    top, total = TOP, max(1, found.program.meta["data_bytes"])
    last = max((r["last"] for r in values), default=0) + 1
    bound = found.program.meta.get("memory", {}).get("bound", 0)
    words = (
        f"external memory: {total:,} bytes, at least {bound:,} are live at once; {len(values)} values over "
        f"{last} steps"
    )
    taken = len(found.program.meta.get("memory", {}).get("in_place", {}))
    words += f", {taken} results in place" if taken else ""
    words += "; all shared, on the chip" if total <= memory.shared_bytes else ""
    parts += _panel(top, words, total, f"step 0 .. {last - 1}")
    for n, r in enumerate(values):
        title = f"{r['value']}: {r['size']:,} bytes at {r['address']:,}, steps {r['first']} to {r['last']}"
        parts.append(
            _box(top, r["first"] / last, (r["last"] + 1) / last, r["address"], r["size"], total, n, title)
        )
    if 0 < memory.shared_bytes < total:
        y = top + PANEL * (1 - min(1.0, memory.shared_bytes / total))
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, svg.RED, 1.5, "6 3"))
        parts.append(svg.text(WIDTH - RIGHT, y - 4, "shared, on the chip", svg.RED, "end", 11))
    for core in cores:
        top += PANEL + GAP
        mine = [r for r in slots if r["core"] == core]
        used = max(r["address"] + r["size"] for r in mine)
        words = (
            f"local memory of core {core}: {used:,} of {memory.local_bytes:,} bytes are used, "
            f"{memory.local_banks} banks"
        )
        parts += _panel(top, words, memory.local_bytes, f"cycle 0 .. {found.cycles:,.0f}")
        for bank in range(1, memory.local_banks):
            y = top + PANEL * bank / memory.local_banks
            parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, svg.LINE, 0.5, "2 3"))
        for r in sorted(mine, key=lambda r: -r["size"] * (r["end"] - r["start"]))[:MOST]:
            span = f"cycles {r['start']:,.0f} to {r['end']:,.0f}"
            title = f"{r['layer']} ({r['operand']}): {r['size']:,} bytes at {r['address']:,}, {span}"
            parts.append(
                _box(
                    top,
                    r["start"] / found.cycles,
                    r["end"] / found.cycles,
                    r["address"],
                    r["size"],
                    memory.local_bytes,
                    r["node"],
                    title,
                )
            )
    name = found.program.meta.get("name") or "program"
    return svg.page(WIDTH, top + PANEL + 40, [svg.text(LEFT, 20, name, size=14), *parts])


def _panel(top: float, words: str, total: int, across: str) -> Iterator[str]:
    yield svg.text(LEFT, top - 6, words, svg.SOFT)
    yield svg.rect(LEFT, top, WIDTH - LEFT - RIGHT, PANEL, svg.PAPER, svg.SOFT)
    for part in range(5):
        y = top + PANEL * (1 - part / 4)
        yield svg.text(LEFT - 6, y + 4, f"{total * part // 4:,}", svg.SOFT, "end", 10)
    yield svg.text((LEFT + WIDTH - RIGHT) / 2, top + PANEL + 16, across, svg.SOFT, "middle", 11)


def _box(
    top: float, start: float, end: float, address: int, size: int, total: int, colour: int, title: str
) -> str:
    width = WIDTH - LEFT - RIGHT
    y = top + PANEL * (1 - (address + size) / total)
    return svg.rect(
        LEFT + width * start,
        y,
        width * (end - start),
        PANEL * size / total,
        svg.hue(colour),
        svg.PAPER,
        title,
    )


def text_map(found: Profile, lines: int = 24, width: int = 96) -> str:
    """Both memories in letters: rows are addresses; columns steps and values above, cycles and
    slots of local memory below."""
    rows, total = external(found), max(1, found.program.meta["data_bytes"])
    if not rows:
        return "no integer value is in external memory"
    last = max(r["last"] for r in rows) + 1
    marks = [chr(ord("a") + n % 26) for n in range(len(rows))]
    cells = [(r["first"], r["last"], r["address"], r["size"], m) for r, m in zip(rows, marks, strict=True)]
    shown = _letters(cells, last, total, min(lines, total), min(width, last))
    laid = found.program.meta["memory"]
    bound = laid["bound"]
    least = f"at least {bound:,} live at once{_gap(total, bound)}"
    shown.append(f"{total:>12,} bytes, {least}; steps 0..{last - 1} from left to right")
    largest = sorted(
        sorted(zip(rows, marks, strict=True), key=lambda e: -e[0]["size"])[:NAMED],
        key=lambda e: e[0]["first"],
    )
    shown += [
        f"           {m}  {r['value']}: {r['size']:,} bytes, steps {r['first']}..{r['last']}"
        for r, m in largest
    ]
    shown += [f"           and {len(rows) - NAMED} smaller ones"] if len(rows) > NAMED else []
    slots, size = local(found), found.program.target.memory.local_bytes
    for core in sorted({r["core"] for r in slots}):
        mine = [r for r in slots if r["core"] == core]
        used = max(r["address"] + r["size"] for r in mine)
        if core == 0:
            wide = max(1.0, found.cycles) / width
            drawn = [(int(r["start"] / wide), min(width - 1, int(r["end"] / wide)), r["address"], r["size"],
                      MARKS[r["kind"]]) for r in sorted(mine, key=lambda r: r["kind"])]
            shown += ["", *_letters(drawn, width, used, min(lines, used), width)]
            words = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items())
            shown.append(f"{'':>12} cycles 0..{found.cycles:,.0f} from left to right; {words}")
        shown.append(f"{used:>12,} bytes of core {core}'s {size:,} local bytes are used")
    if "local_bound" in laid:
        used, bound = laid["local_used"], laid["local_bound"]
        shown.append(
            f"{used:>12,} of them at most, at least {bound:,} live at once{_gap(used, bound)}; "
            "constants are prefetched "
            "where bytes are free"
        )
    return "\n".join(shown)


def _letters(
    cells: Sequence[tuple[int, int, int, int, str]], last: int, total: int, lines: int, width: int
) -> list[str]:
    """Boxes (first and last column of `last`, address, size, mark) as rows of letters,
    each with its first address."""
    grid = [[" "] * width for _ in range(lines)]
    for first, end, address, size, mark in cells:
        top, bottom = address * lines // total, max(1, -(-(address + size) * lines // total))
        for y in range(top, min(lines, bottom)):
            for x in range(first * width // last, max(end * width // last, first * width // last) + 1):
                grid[y][min(x, width - 1)] = mark
    return [f"{y * total // lines:>12,} |{''.join(marks)}|" for y, marks in enumerate(grid)]


def _gap(used: int, bound: int) -> str:
    return f" (gap {used / bound:.2f})" if bound else ""
