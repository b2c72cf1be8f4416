"""Addresses and lifetimes: values in external memory by step, buffers in local memory by cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
