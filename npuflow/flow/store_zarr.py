"""Zarr arrays of stored artifacts: read-only, every chunk checked against the manifest as it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from npuflow.base.errors import StoreError


def open_zarr(place: str, files: Mapping[str, Any], verified: Callable[[str], bytes]) -> Any:
    """The array below a folder. `verified`: the checked bytes of a file, by its path inside the object."""
    return zarr.open_array(_CheckedStore(place, files, verified), mode="r", zarr_format=3)


class _CheckedStore(Store):
    """Serves exactly the files that the manifest lists."""

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, place: str, files: Mapping[str, Any], verified: Callable[[str], bytes]) -> None:
        super().__init__(read_only=True)
        self.place, self.files, self.verified = place, files, verified

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        path = f"{self.place}/{key}"
        if path not in self.files and not key.startswith("c"):
            return None  # zarr asks for metadata of other format versions
        data = self.verified(path)
        if isinstance(byte_range, RangeByteRequest):
            data = data[byte_range.start : byte_range.end]
        elif isinstance(byte_range, OffsetByteRequest):
            data = data[byte_range.offset :]
        elif isinstance(byte_range, SuffixByteRequest):
            data = data[-byte_range.suffix :]
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        return [await self.get(key, prototype, span) for key, span in key_ranges]

    async def exists(self, key: str) -> bool:
        return f"{self.place}/{key}" in self.files

    async def set(self, key: str, value: Any) -> None:
        raise StoreError("a stored artifact cannot be changed", code="NF-STORE-011")

    async def delete(self, key: str) -> None:
        raise StoreError("a stored artifact cannot be changed", code="NF-STORE-011")

    async def list(self) -> AsyncIterator[str]:
        for path in self.files:
            if path.startswith(self.place + "/"):
                yield path[len(self.place) + 1 :]

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        stem = prefix.rstrip("/") + "/" if prefix else ""
        names = {key[len(stem) :].split("/", 1)[0]: None async for key in self.list_prefix(stem)}
        for one in names:
            yield one
