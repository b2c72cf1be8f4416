"""The calibration samples, each an artifact of its own: bytes after geometry, point-wise steps as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.config import InputSample as Content
from npuflow.input.data.fold import Folding, adapted
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples as read
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.input.text.model import TextModel
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array


@dataclass(frozen=True)
class Sample(
    Artifact, spread=("content",), optional=("clip",),
    about=("steps", "picture", "noise", "broken", "clip"),
):
    """One sample; `content.feed` gives what the model is fed."""

    content: Content

    def summary(self) -> dict[str, Any]:
        if self.content.broken:
            return {"broken": self.content.broken}
        return {"data": "RANDOM"} if self.content.noise is not None else {}


def listing(
    data: Data, folding: Folding, numerics: Numerics, preprocess: Preprocess | None = None,
    model: TextModel | None = None,
) -> Listing:
    listed = adapted(found(data, model), data, folding, numerics, pixel_zeros(preprocess))
    return {name: Item(tuple(one.files), dict(one.detail)) for name, one in listed.items()}


@stage(over="files", files=listing, batch=32)
def samples(files: Files) -> Iterator[tuple[str, Sample]]:
    """Read the samples; a file that cannot be read is kept as a sample that says
    why, and is left out later."""
    for name, content in read({name: (item.files, item.detail) for name, item in files.items()}):
        if content.broken:
            log(f"{name} is left out: {content.broken}")
        yield name, Sample(content)


def feeds(samples: Items[Sample], graph: Graph, count: int) -> Iterator[dict[str, Array]]:
    """What the first `count` samples that could be read feed a graph."""
    types = {name: graph.type(name) for name in graph.inputs}
    whole = (one.content for one in samples.values() if not one.content.broken)
    return (content.feed(types) for content in islice(whole, count))
