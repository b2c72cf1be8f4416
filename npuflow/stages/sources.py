"""Where the model's operators come from: modules of the training code, files and lines, layers of Keras."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files
from npuflow.flow.stage import stage
from npuflow.frontends import CodePlace, Located
from npuflow.input.sources import address, gathered
from npuflow.report.code_places import FILE, CodePlaces
from npuflow.stages.model import ModelTable, written

VERSION = 1


@dataclass(frozen=True)
class SourcesTable(Config, table="sources"):
    """Where layers come from in the training code: the product `sources.json`, which `npuflow profile` and
    `npuflow view` show; `npuflow why accuracy` and `npuflow show verdict` ask for it in any case."""

    on: bool = True
    """False: as without the table."""


@dataclass(frozen=True)
class SourcePlaces(Artifact):
    """Operator by its name in the model -> its place."""

    places: Mapping[str, CodePlace]

    def save(self, folder: Writer) -> None:
        rows = {name: asdict(one) for name, one in sorted(self.places.items())}
        text = json.dumps({"version": VERSION, "places": rows}, indent=0, ensure_ascii=False)
        folder.text(FILE, text)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(CodePlaces.read(folder.text(FILE)).places)

    def products(self) -> dict[str, str]:
        return {"sources": FILE}

    def summary(self) -> dict[str, Any]:
        return {"operators": len(self.places), "files": len({one.file for one in self.places.values()})}


@stage(files=written, when="sources", minor=True)
def sources(files: Files, model: ModelTable, sources: SourcesTable) -> SourcePlaces:
    """Ask the front end. Nothing that is computed depends on it: a line that moves in the training code runs
    this stage alone."""
    if not sources.on:
        return SourcePlaces({})
    _, reader, source = gathered(address(model.path, files["model"].files[0]))
    return SourcePlaces(reader.places(source, model.bindings) if isinstance(reader, Located) else {})
