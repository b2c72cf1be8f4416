"""Ranges out of a calibration table, in place of what the threshold method chose."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.exchange import read_table
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage
from npuflow.quantise.exchange import Ranges, taken
from npuflow.stages.parse import Parsed
from npuflow.stages.thresholds import Thresholds

SHOWN = 10                                # names of a long list that are printed


def listing(ranges: Ranges) -> Listing:
    """The table's file; its format decides whose code reads it."""
    path = ranges.file.path
    found, _ = read_table(path.read_bytes(), path.name, ranges.format)
    return {"table": Item((path,), {"format": found}, {"exchange": (found,)})}


@stage(refines="thresholds", files=listing, when="ranges", after=("clipping",))
def ranges(thresholds: Thresholds, graph: Parsed, files: Files, ranges: Ranges) -> Thresholds:
    """Take the table's rows for the tensors that it names."""
    path, chosen = files.only(), files["table"].detail["format"]
    _, table = read_table(path.read_bytes(), path.name, chosen)
    found = taken(graph.graph, thresholds.ranges, thresholds.methods, table, chosen, ranges)
    log(
        f"used of {path.name} ({chosen}): {found.used} of {counted(len(table), 'row')}, {len(found.codes)} "
        "with their codes"
    )
    for names, what in (
        (found.unknown, "name no tensor of the network"),
        (found.absent, "are calibrated, the table has none"),
    ):
        if names:
            log(f"{len(names)} {what}: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}")
    return replace(
        thresholds, ranges=found.ranges, methods=found.methods, codes={**thresholds.codes, **found.codes}
    )
