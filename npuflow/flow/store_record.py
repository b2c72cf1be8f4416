"""The record of a step: what it depended on, what it gave, how long it took and what it said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuflow.flow.artifact import ArtifactRef, Uses
from npuflow.flow.refs import ItemsRef
from npuflow.flow.store_manifest import Damaged, sealed, unsealed

LOG_LIMIT = 1 << 18


@dataclass(frozen=True, slots=True)
class Record:
    """One settled key. `items` is set for a step that yields a collection at once."""

    key: str
    stage: str
    item: str | None
    preimage: Mapping[str, Any]
    output: str
    uses: Uses = field(default_factory=dict)
    items: Mapping[str, tuple[str, Uses]] | None = None
    seconds: float = 0.0
    log: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref(self) -> ArtifactRef | ItemsRef:
        """What later keys see of this step."""
        if self.items is None:
            return ArtifactRef(self.output, self.uses)
        return ItemsRef({name: ArtifactRef(digest, uses) for name, (digest, uses) in self.items.items()})

    @property
    def objects(self) -> list[str]:
        """Every object that the record stands for."""
        return [self.output] if self.items is None else [digest for digest, _ in self.items.values()]

    def encode(self) -> bytes:
        items = None if self.items is None else [[n, d, _lists(u)] for n, (d, u) in self.items.items()]
        return sealed(
            {
                "v": 1,
                "key": self.key,
                "stage": self.stage,
                "item": self.item,
                "preimage": self.preimage,
                "output": self.output,
                "uses": _lists(self.uses),
                "items": items,
                "seconds": round(self.seconds, 6),
                "log": self.log if len(self.log) <= LOG_LIMIT else self.log[-LOG_LIMIT:],
                "summary": dict(self.summary),
            },
            in_order=True,  # the summary's figures are shown as the step gave them
        )

    @classmethod
    def decode(cls, data: bytes, key: str, path: str) -> Record:
        """Read a record back; it must be whole and be that of `key`."""
        body = unsealed(data, f"record {key}", path)
        if body["key"] != key:
            raise Damaged(f"record {key}", path, f"it is the record of {body['key']}")
        items = body["items"]
        return cls(
            key,
            body["stage"],
            body["item"],
            body["preimage"],
            body["output"],
            _tuples(body["uses"]),
            None if items is None else {name: (digest, _tuples(uses)) for name, digest, uses in items},
            body["seconds"],
            body["log"],
            body["summary"],
        )


def _lists(uses: Uses) -> dict[str, list[str]]:
    return {registry: list(names) for registry, names in uses.items()}


def _tuples(uses: Mapping[str, Any]) -> Uses:
    return {registry: tuple(names) for registry, names in uses.items()}
