"""What a stage yields: an immutable value that saves itself as named entries and is known by their digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuflow.flow.codec import Codec, StoredDataclass
from npuflow.flow.store_manifest import Damaged, Manifest
from npuflow.flow.store_reader import Reader
from npuflow.flow.store_writer import Writer

__all__ = ["Artifact", "ArtifactRef", "Codec", "Damaged", "Manifest", "Need", "Reader", "Writer"]

Uses = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Need:
    """What a later step will take of memory, foreseen: `fixed` bytes, and `each` for every one of the `count`
    things that it holds at once. `least`: as many it needs at any rate. `key`: the recipe key that sets the
    count, with `{count}` in it, or other words on what to set; empty where no key helps."""

    fixed: int
    each: int = 0
    count: int = 1
    least: int = 1
    key: str = ""
    about: str = ""
    """What takes the most, in words."""


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A stored artifact seen from outside: all that keys and schedulers ever handle."""

    digest: str
    uses: Uses = field(default_factory=dict, hash=False)


class Artifact(StoredDataclass):
    """Base of every product of a stage: normally a frozen dataclass, stored field by field (see `codec`).

    A class may define `save` and `load` itself. The digest is that of the entries' logical content, so it
    does not depend on the compression, the chunking or the machine.
    """

    __slots__ = ()

    def uses(self) -> dict[str, tuple[str, ...]]:
        """Registry name -> entries whose code gives this value its meaning (a graph: its operators)."""
        return {}

    def products(self) -> dict[str, str]:
        """Product name -> entry that is copied beside the build's lock (`{"program": "model.npu"}`)."""
        return {}

    def summary(self) -> dict[str, Any]:
        """A few scalars worth a line on the terminal."""
        return {}

    def needs(self) -> Mapping[str, Need]:
        """Stage name -> the memory that the stage will take, as far as this value determines it."""
        return {}

    def digest(self) -> str:
        """The digest a store would give this value; nothing is written."""
        return seal(self, Writer(None)).digest


def seal(artifact: Artifact, writer: Writer) -> Manifest:
    """Save the artifact through the writer and close it with a manifest."""
    artifact.save(writer)
    return writer.seal(type(artifact).__qualname__, artifact.uses(), artifact.products())
