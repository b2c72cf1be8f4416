"""The memory map in letters: rows are addresses, columns steps or cycles."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.report.profile.measure import Profile
from npuflow.report.profile.memory import external, local

MARKS = {"constants": "w", "values": "#"}
NAMED = 12                                # values that the legend names


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
