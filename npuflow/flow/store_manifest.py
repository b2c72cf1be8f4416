"""The manifest of a stored object: its logical entries, and size and digest of every file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from npuflow.base.digest import Hasher, digest
from npuflow.base.errors import StoreError

MANIFEST = "manifest.json"
_BLOCK = 1 << 20


class Damaged(StoreError):
    """A file of the cache is not what was written: truncated, altered, deleted or taken from elsewhere."""

    def __init__(self, what: str, path: str, because: str) -> None:
        super().__init__(f"{what} is damaged: {because} ({path})", code="NF-STORE-001")
        self.what, self.path, self.reason = what, path, because

    @property
    def digest(self) -> str | None:
        """The object's digest, when the damage is in an object."""
        kind, _, name = self.what.partition(" ")
        return name if kind == "object" else None



def canonical(value: object, *, in_order: bool = False) -> bytes:
    """The one JSON text of a value: sorted keys (or keys `in_order`, as they are), no spaces, no characters
    left to taste."""
    return json.dumps(value, sort_keys=not in_order, separators=(",", ":"), ensure_ascii=False).encode()


def file_digest(path: Path) -> tuple[int, str]:
    """Size and digest of a file's bytes, streamed."""
    hasher, size = Hasher("bytes"), 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            hasher.update(block)
            size += len(block)
    return size, hasher.hexdigest()


def bytes_digest(data: bytes | memoryview) -> str:
    """The digest `file_digest` would give a file with these bytes."""
    hasher = Hasher("bytes")
    hasher.update(data)
    return hasher.hexdigest()


def sealed(body: dict[str, Any], *, in_order: bool = False) -> bytes:
    """A JSON document that carries a checksum of itself; its keys are sorted, or `in_order` as they are."""
    text = canonical(body, in_order=in_order)
    return b'{"check":"' + bytes_digest(text).encode() + b'","body":' + text + b"}\n"


def unsealed(data: bytes, what: str, path: str) -> dict[str, Any]:
    """The body of a sealed document, or `Damaged`."""
    head, mark, tail = data.partition(b'","body":')
    if not (mark and head.startswith(b'{"check":"') and tail.endswith(b"}\n")):
        raise Damaged(what, path, "it is truncated or not a sealed document")
    text = tail[:-2]
    if bytes_digest(text).encode() != head[len(b'{"check":"') :]:
        raise Damaged(what, path, "its checksum does not match its text")
    body: dict[str, Any] = json.loads(text)
    return body


def content_digest(
    kind: str, entries: Mapping[str, Any], uses: Mapping[str, Any], products: Mapping[str, str]
) -> str:
    """The identity of an artifact: kind and content of its entries, whatever files hold them."""
    logical = {name: [entry["kind"], entry["digest"]] for name, entry in entries.items()}
    return digest(
        ["object", 1, kind, logical, {name: list(names) for name, names in uses.items()}, dict(products)]
    )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an object holds; `files` maps a path inside the object to its size and digest."""

    digest: str
    kind: str
    entries: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, tuple[int, str]]
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(size for size, _ in self.files.values())

    def encode(self) -> bytes:
        body = {
            "v": 1,
            "digest": self.digest,
            "kind": self.kind,
            "entries": self.entries,
            "files": {name: list(pair) for name, pair in self.files.items()},
            "uses": {name: list(names) for name, names in self.uses.items()},
            "products": dict(self.products),
        }
        return sealed(body)

    @classmethod
    def decode(cls, data: bytes, expected: str, path: str) -> Manifest:
        """Read a manifest back; it must be whole, and be the manifest of `expected`."""
        what = f"object {expected}"
        body = unsealed(data, what, path)
        uses = {name: tuple(names) for name, names in body["uses"].items()}
        if body["digest"] != expected:
            raise Damaged(what, path, f"it holds another object, {body['digest']}")
        if content_digest(body["kind"], body["entries"], uses, body["products"]) != expected:
            raise Damaged(what, path, "its entries do not give its digest")
        files = {name: (int(size), str(check)) for name, (size, check) in body["files"].items()}
        return cls(expected, body["kind"], body["entries"], files, uses, body["products"])


def listed(data: bytes, expected: str, path: str) -> Mapping[str, tuple[int, str]]:
    """The files of a whole manifest of `expected`; whether its entries give its
    digest is for those who open it."""
    body = unsealed(data, f"object {expected}", path)
    if body["digest"] != expected:
        raise Damaged(f"object {expected}", path, f"it holds another object, {body['digest']}")
    found: Mapping[str, tuple[int, str]] = body["files"]
    return found


def safe_name(name: str) -> str:
    """An entry's name, refused when it could leave the object's folder or hide in it."""
    if name.isidentifier() or (name.replace(".", "_").isidentifier() and name[0] != "." and name != MANIFEST):
        return name
    parts = PurePosixPath(name).parts
    plain = name and name.isprintable() and "\\" not in name and not name.startswith("/")
    if not plain or any(part.startswith(".") for part in parts) or name == MANIFEST or "//" in name:
        hint = "use a plain relative name such as graph.json"
        raise StoreError(f"an artifact entry cannot be named {name!r}", hint=hint, code="NF-STORE-012")
    return name
