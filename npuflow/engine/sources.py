"""Model files: which front end reads one, by its suffix, and what it gathers of it."""

from __future__ import annotations

from pathlib import Path

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Frontend, Gatherer, Source


def frontend(path: Path) -> tuple[str, Gatherer]:
    """The source format of a file, by its suffix."""
    known: list[str] = []
    for name in FRONTENDS.names():
        reader: Gatherer = FRONTENDS[name]()
        known += reader.suffixes
        if path.suffix.lower() in reader.suffixes:
            return name, reader
    hint = f"known are {', '.join(sorted(known))}; others are exported to ONNX first"
    raise ModelError(
        f'"{path.name}" has an unknown model format', hint=hint, code="NF-MODEL-035",
    ).at(file=str(path))


def gathered(path: Path) -> tuple[str, Frontend, Source]:
    """A model, the format that it is kept in, and who reads that."""
    name, gatherer = frontend(path)
    source = gatherer.gather(path)
    reader: Frontend = FRONTENDS[source.format or name]()
    return source.format or name, reader, source
