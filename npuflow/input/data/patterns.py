"""Files that a pattern names, with alternatives in braces."""

from __future__ import annotations

import re
from pathlib import Path

from npuflow.input.data.zarr_store import is_store

WILD = "*?[{"


def expand(pattern: Path) -> tuple[Path, list[Path]]:
    """Files that match, sorted, and the folder above the first wildcard. `{a,b}`
    alternatives are supported."""
    parts = pattern.parts
    at = next(i for i, part in enumerate(parts) if any(c in part for c in WILD))
    root = Path(*parts[:at])
    rest = "/".join(parts[at:])
    matches = (
        {f for option in _braces(rest) for f in root.glob(option) if f.is_file() or is_store(f)}
        if root.is_dir()
        else set()
    )
    return root, sorted(matches)


def _braces(text: str) -> list[str]:
    inner = re.search(r"\{([^{}]*)\}", text)
    if inner is None:
        return [text]
    head, tail = text[: inner.start()], text[inner.end() :]
    return [full for option in inner[1].split(",") for full in _braces(head + option + tail)]
