"""Addresses and lifetimes, as rows and in letters: values in external memory, buffers in local memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.wording import counted
from npuflow.hw.region import CONST, LOCAL
from npuflow.program.access import regions
from npuflow.report.profile.measure import Profile, Row

Array = npt.NDArray[np.int32]


def external(found: Profile) -> list[Row]:
    """Every value in external memory: address, size, first and last step, with the results that are
    computed in place."""
    memory = found.program.meta.get("memory", {})
    heirs: dict[str, list[str]] = {}
    for result, value in memory.get("in_place", {}).items():
        heirs.setdefault(value, []).append(result)
    keys = ("value", "address", "size", "first", "last")
    lives = [(" > ".join([name, *heirs.get(name, [])]), *rest) for name, *rest in memory.get("lives", [])]
    return [dict(zip(keys, life, strict=True)) for life in lives]


def local(found: Profile) -> list[Row]:
    """Every buffer in local memory that commands of a layer use, from the first command that touches it to
    the last that reads what they wrote: a prefetched constant lives until it is read."""
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
    """The buffers in a range of addresses."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    return {k for k in owner[begins].tolist() if k >= 0}


def external_map(found: Profile) -> dict[str, Any]:
    """What `figures.memory_map` takes for external memory."""
    memory, meta, values = found.program.target.memory, found.program.meta, external(found)
    total, laid = max(1, meta["data_bytes"]), meta.get("memory", {})
    last = max((r["last"] for r in values), default=0) + 1
    words = (
        f"external memory: {total:,} bytes, at least {laid.get('bound', 0):,} are live at once; "
        f"{counted(len(values), 'value')} over {counted(last, 'step')}"
    )
    words += f", {len(laid['in_place'])} results in place" if laid.get("in_place") else ""
    words += "; all shared, on the chip" if total <= memory.shared_bytes else ""
    partly = 0 < memory.shared_bytes < total
    marks = [{"address": memory.shared_bytes, "label": "below: shared, on the chip"}] if partly else []
    return {
        "title": words, "boxes": boxes(values), "total": total, "across": "step", "end": last, "marks": marks,
    }


def boxes(values: Iterable[Mapping[str, Any]], name: str = "value") -> list[Row]:
    """Values with an address and their first and last step, as boxes of a memory map."""
    return [
        {
            "start": v["first"],
            "end": v["last"] + 1,
            "address": v["address"],
            "size": v["size"],
            "group": n,
            "label": f"{v[name]}: {v['size']:,} bytes at {v['address']:,}, steps {v['first']} to {v['last']}",
        }
        for n, v in enumerate(values)
    ]


def local_maps(found: Profile) -> Iterator[dict[str, Any]]:
    """What `figures.memory_map` takes, for every core that uses its local memory."""
    memory, slots = found.program.target.memory, local(found)
    size, banks = memory.local_bytes, memory.local_banks
    marks = [{"address": size * bank // banks, "label": ""} for bank in range(1, banks)]
    for core in sorted({r["core"] for r in slots}):
        mine = [r for r in slots if r["core"] == core]
        used = max(r["address"] + r["size"] for r in mine)
        words = f"local memory of core {core}: {used:,} of {size:,} bytes are used, {banks} banks"
        rows = [
            {
                **{key: r[key] for key in ("start", "end", "address", "size")},
                "group": r["node"],
                "label": f"{r['layer']} ({r['operand']}): {r['size']:,} bytes at {r['address']:,}, "
                f"cycles {r['start']:,.0f} to {r['end']:,.0f}",
            }
            for r in mine
        ]
        yield {
            "title": words, "boxes": rows, "total": size, "across": "cycle", "end": found.cycles,
            "marks": marks,
        }


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
