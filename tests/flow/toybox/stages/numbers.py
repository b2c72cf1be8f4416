"""One number per source item."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from npuflow.flow.refs import Files
from npuflow.flow.stage import Item, Listing, log, stage
from toybox.kinds import Number, Reading, Source


def listing(source: Source) -> Listing:
    if source.folder:
        return {path.stem: Item((path,)) for path in sorted(Path(source.folder).glob("*.txt"))}
    return {f"n{index}": Item((), index) for index in range(source.count)[:: source.order]}


@stage(over="files", files=listing, batch=3)
def numbers(files: Files, reading: Reading) -> Iterator[tuple[str, Number]]:
    for name, item in files.items():
        if reading.fail == name:
            raise ValueError(f"{name} is not a number")
        if reading.leave == name:
            sys.exit("no such file")
        if reading.die and not _died(Path(reading.die), name):
            os.kill(os.getpid(), 9)
        if reading.sleep:
            time.sleep(reading.sleep)
        if reading.gates and int(item.detail) >= 20:
            _wait(Path(reading.gates) / ("threads" if item.detail < 60 else "processes"))
        if reading.trace:
            with Path(reading.trace).open("a") as trace:
                trace.write(f"{name}\n")
        if reading.keep and not _KEPT:
            _KEPT.append(b"1" * reading.keep)
        kept = bytearray(reading.hog)
        log(f"read {name}")
        yield (
            name,
            Number(
                int(item.files[0].read_text()) if item.files else int(item.detail) + len(kept) - reading.hog
            ),
        )


_KEPT: list[bytes] = []


def _wait(gate: Path) -> None:
    until = time.monotonic() + 60
    while not gate.exists() and time.monotonic() < until:
        time.sleep(0.01)


def _died(folder: Path, name: str) -> bool:
    """Whether a worker has died over this item before; in a folder called "always" nobody remembers, and one
    called "only-n1" is for that item."""
    if folder.name.startswith("only-"):
        return folder.name != f"only-{name}"
    mark = folder / name
    if mark.exists() and folder.name != "always":
        return True
    mark.touch()
    return False
