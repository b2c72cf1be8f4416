"""Writes an artifact's entries into a folder, or only their digests when there is no folder."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import StoreError
from npuflow.flow.store_files import Counted, write
from npuflow.flow.store_manifest import (
    MANIFEST,
    Manifest,
    bytes_digest,
    canonical,
    content_digest,
    safe_name,
)

if TYPE_CHECKING:
    import numpy as np

_BLOCK = 1 << 20
_PRETTY = 1 << 16  # smaller JSON is laid out for people; the digest is that of the compact text either way


class Writer:
    """One artifact being written: every entry is digested while its bytes pass."""

    def __init__(self, folder: Path | str | None) -> None:
        self.folder = None if folder is None else str(folder)
        self.entries: dict[str, dict[str, Any]] = {}
        self.files: dict[str, tuple[int, str]] = {}

    def json(self, name: str, value: object) -> None:
        """A JSON value; only the value counts, not its layout."""
        try:
            text = canonical(value)
        except (TypeError, ValueError) as fault:
            raise StoreError(f"entry {name!r} is not plain JSON: {fault}", code="NF-STORE-015") from fault
        shown = text
        if self.folder is not None and len(text) <= _PRETTY:
            plain = value is None or isinstance(value, str | int | float)  # laid out like this anyway
            shown = (
                text if plain else json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False).encode()
            ) + b"\n"
        self._put(name, "json", _suffixed(name, ".json"), shown, bytes_digest(text))

    def text(self, name: str, text: str) -> None:
        """A text, kept as UTF-8."""
        self._put(name, "text", name if "." in name else name + ".txt", text.encode(), None)

    def bytes(self, name: str, data: bytes | memoryview) -> None:
        """Raw bytes in a file of exactly this name."""
        self._put(name, "bytes", name, builtins.bytes(data), None)

    @contextmanager
    def stream(self, name: str) -> Iterator[Counted]:
        """Raw bytes too large for memory: write them as they come."""
        path = self._claim(name, name)
        if path is None:
            sink = Counted(None)
            yield sink
        else:
            with open(path, "wb") as file:  # noqa: PTH123
                sink = Counted(file)
                yield sink
        self._close(name, "bytes", name, sink.size, sink.hexdigest(), sink.hexdigest())

    def file(self, name: str, path: Path | str) -> None:
        """A copy of an existing file."""
        with Path(path).open("rb") as source, self.stream(name) as sink:
            while block := source.read(_BLOCK):
                sink.write(block)

    def array(self, name: str, array: np.ndarray[Any, Any], mapped: bool = False) -> None:
        """One array of numbers or booleans. `mapped`: a large one as a plain file, which readers map
        instead of reading."""
        self._arrays(name, "array", {"": array}, mapped)

    def arrays(self, name: str, arrays: Mapping[str, np.ndarray[Any, Any]], mapped: bool = False) -> None:
        """Named arrays; any text can be a name. `mapped`: large ones as plain files, which
        readers map instead of reading."""
        self._arrays(name, "arrays", arrays, mapped)

    def blocks(
        self, name: str, dtype: str, shape: tuple[int, ...], blocks: Iterable[np.ndarray[Any, Any]]
    ) -> None:
        """One array too large for memory, as consecutive blocks of its first axis."""
        from npuflow.flow.store_arrays import write_blocks

        path = self._claim(name, name + ".zarr")
        members, files = write_blocks(
            Path(path) if path is not None else None, name + ".zarr", dtype, shape, blocks
        )
        self._note_arrays(name, "array", members, files)

    def _arrays(
        self, name: str, kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], mapped: bool = False
    ) -> None:
        from npuflow.flow.store_arrays import write_arrays

        self._claim(name, name + ".npz")
        members, files = write_arrays(
            Path(self.folder) if self.folder is not None else None, name, arrays, mapped
        )
        self._note_arrays(name, kind, members, files)

    def _note_arrays(
        self, name: str, kind: str, members: dict[str, Any], files: dict[str, tuple[int, str]]
    ) -> None:
        logical = [[key, one["dtype"], one["shape"], one["digest"]] for key, one in sorted(members.items())]
        self.entries[name] = {"kind": kind, "members": members, "digest": bytes_digest(canonical(logical))}
        self.files.update(files)

    def _put(self, name: str, kind: str, file: str, data: builtins.bytes, digest: str | None) -> None:
        path, check = self._claim(name, file), bytes_digest(data)
        if path is not None:
            write(path, data)
        self._close(name, kind, file, len(data), digest or check, check)

    def _claim(self, name: str, file: str) -> str | None:
        safe_name(name)
        if name in self.entries or file in self.files or file == MANIFEST:
            raise StoreError(
                f"artifact entry {name!r} is written twice",
                hint="give every entry a name of its own", code="NF-STORE-016",
            )
        if self.folder is None:
            return None
        path = f"{self.folder}/{file}"
        if "/" in file:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return path

    def _close(self, name: str, kind: str, file: str, size: int, digest: str, check: str) -> None:
        self.entries[name] = {"kind": kind, "file": file, "digest": digest}
        self.files[file] = (size, check)

    def seal(self, kind: str, uses: Mapping[str, Iterable[str]], products: Mapping[str, str]) -> Manifest:
        """Fix the object's digest; with a folder, write the manifest."""
        ordered = {name: tuple(sorted(set(uses[name]))) for name in sorted(uses)}
        for product, entry in products.items():
            if "file" not in self.entries.get(entry, {}):
                raise StoreError(
                    f"product {product!r} names {entry!r}, which is not a single-file entry",
                    code="NF-STORE-017",
                )
        digest = content_digest(kind, self.entries, ordered, products)
        manifest = Manifest(digest, kind, self.entries, self.files, ordered, dict(products))
        if self.folder is not None:
            write(f"{self.folder}/{MANIFEST}", manifest.encode())
        return manifest


def _suffixed(name: str, suffix: str) -> str:
    return name if name.endswith(suffix) else name + suffix
