"""Names of products: what a key holds of an artifact, a collection, an item or a source file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from npuflow.base.digest import digest
from npuflow.flow.artifact import ArtifactRef, Uses

__all__ = ["ArtifactRef", "Files", "Item", "ItemsRef", "Listing", "Ref", "Uses"]


@dataclass(frozen=True)
class ItemsRef:
    """A fan-out's product: item id -> artifact, in listing order."""

    items: Mapping[str, ArtifactRef]

    @cached_property
    def digest(self) -> str:
        """Order counts here, and only here: a merge sees it."""
        return digest([[name, ref.digest] for name, ref in self.items.items()])

    @cached_property
    def uses(self) -> Uses:
        merged: dict[str, set[str]] = {}
        for ref in self.items.values():
            for registry, names in ref.uses.items():
                merged.setdefault(registry, set()).update(names)
        return {registry: tuple(sorted(names)) for registry, names in sorted(merged.items())}

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


Ref = ArtifactRef | ItemsRef


@dataclass(frozen=True)
class Item:
    """One source item of a listing: the files it reads, and whatever else about it matters (JSON-able)."""

    files: tuple[Path, ...] = ()
    detail: Any = None
    uses: Uses = field(default_factory=dict)


Listing = dict[str, Item]
"""What a listing function returns: item id -> item, in order. Ids are stable names, not positions."""


class Files(dict[str, Item]):
    """The listed source items that a stage is asked for: id -> item."""

    def only(self) -> Path:
        """The path of the one file of the one item."""
        (item,) = self.values()
        (path,) = item.files
        return path
