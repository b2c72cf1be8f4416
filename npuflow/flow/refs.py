"""Names of products: what a key holds of an artifact, a collection, an item or a source file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from npuflow.base.digest import digest
from npuflow.flow.artifact import ArtifactRef, Uses

__all__ = ["ArtifactRef", "Files", "Item", "ItemsRef", "Listing", "Ref", "Uses", "groups", "pair", "parts"]


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


def pair(by: str, over: str) -> str:
    """The id of the item that two collections have where one item of each meets the other."""
    return f"{by}:{over}"


def parts(item: str) -> tuple[str, str]:
    """The two ids of a pair; of any other id, nothing and the id."""
    by, colon, over = item.partition(":")
    return (by, over) if colon else ("", item)


FAN_IN = 64
"""Most items of a group. A group ends after one item in 32 on average, which the items' names decide."""


def groups(ids: Iterable[str], salt: str) -> dict[str, tuple[str, ...]]:
    """Runs of neighbours, each under the id of its first. Pairs of different first parts stay apart.
    Where a run ends is a matter of names, not positions, so that items which come or go change the
    groups around them and no others.
    """
    found: dict[str, tuple[str, ...]] = {}
    run: list[str] = []
    for item in ids:
        by, over = parts(item)
        if run and parts(run[0])[0] != by:
            found[run[0]], run = tuple(run), []
        run.append(item)
        if (
            len(run) == FAN_IN
            or zlib.crc32(f"{salt}/{over}".encode(errors="surrogatepass")) % (FAN_IN // 2) == 0
        ):
            found[run[0]], run = tuple(run), []
    if run:
        found[run[0]] = tuple(run)
    return found


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
