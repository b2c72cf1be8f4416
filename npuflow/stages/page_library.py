"""The JavaScript that draws the figures of a page: made once for a version of the plotting library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import stage
from npuflow.report.figures.export import script


@dataclass(frozen=True)
class PageLibrary(Artifact):
    """One script, for a page that needs no network."""

    text: str

    def save(self, folder: Writer) -> None:
        folder.text("library.js", self.text)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.text("library.js"))

    def summary(self) -> dict[str, Any]:
        return {"bytes": len(self.text.encode())}


@stage(minor=True, memory="200MB")
def page_library() -> PageLibrary:
    """Bundle Vega, Vega-Lite and Vega-Embed."""
    return PageLibrary(script())
