"""`npuflow new` of a language model: [data] and [evaluate] from text, where none is named the built-in one.
"""

from __future__ import annotations

import os
from pathlib import Path

from npuflow.base.tables_files import resolve
from npuflow.base.tables_write import value
from npuflow.cli._model import Ports
from npuflow.cli._template import Draft, TemplateValue
from npuflow.input.data.lists import ARRAYS, LISTS, is_data
from npuflow.input.data.patterns import WILD, expand
from npuflow.input.data.propose import CALIBRATION, EVALUATION
from npuflow.input.data.text import BUILTIN, PLAIN
from npuflow.input.text.windows import whole_chunks

WINDOW = 128  # tokens: enough for the cache to matter, few enough for many windows of a short text
JUDGED = 4  # windows of the evaluation, which the program runs token by token
OTHERS = (*ARRAYS, ".zarr", ".bin", ".raw", *(suffix for suffix in LISTS if suffix not in PLAIN))


def text_places(data: str | None, folder: Path) -> tuple[str, str] | None:
    """Texts for calibration and for the evaluation, as the recipe in `folder` writes them; None where the
    data are no texts."""
    if data is None:
        return BUILTIN, BUILTIN
    if data == "random" or data.startswith("python:"):
        return None
    where = resolve(data, Path.cwd())
    if any(c in str(where) for c in WILD):
        found = expand(where)[1]
    else:
        found = [where] if where.is_file() else [f for f in where.rglob("*") if f.is_file()]
    if where.is_dir() and not any(f.suffix.lower() in PLAIN for f in found):
        return None
    if not found or any(is_data(f) or f.suffix.lower() in OTHERS for f in found):
        return None
    if data.startswith("pkg:"):
        return data, BUILTIN
    mine, theirs = where, None
    if where.is_dir():
        entries = sorted(where.iterdir())
        mine = next((p for p in entries if p.stem.lower().startswith(CALIBRATION)), where)
        theirs = next((p for p in entries if p.stem.lower().startswith(EVALUATION)), None)
        if theirs is not None and mine == where:
            theirs = None                 # its texts are calibration data, too
    return _shown(mine, folder), BUILTIN if theirs is None else _shown(theirs, folder)


def draft(places: tuple[str, str], found: Ports) -> Draft:
    """What the recipe says of texts at these places."""
    (chunk,) = found.inputs[0].shape[1:] if found.inputs[0].shape is not None else (1,)
    window = whole_chunks(min(WINDOW, found.sizes.get("context", WINDOW)), int(chunk or 1))
    mine, theirs = places
    own = "a sample text that npuflow brings; texts like those of your use are better"
    other = "another text that npuflow brings"
    fills = {
        ("data", "text"): TemplateValue(value(mine), own if mine == BUILTIN else ""),
        ("data", "window"): TemplateValue(str(window), "tokens"),
        ("evaluate", "text"): TemplateValue(value(theirs), other if theirs == BUILTIN else ""),
        ("evaluate", "window"): TemplateValue(str(window), "tokens"),
        ("evaluate", "count"): TemplateValue(str(JUDGED), "windows; more take longer and are more reliable"),
        ("evaluate", "metric"): TemplateValue('"perplexity"', 'or "kl", or "choice" of questions'),
    }
    return Draft(fills, {"data": (), "evaluate": ()}, on={"evaluate"})


def _shown(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder.resolve()).replace(os.sep, "/")
