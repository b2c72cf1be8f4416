"""Reads an artifact's entries back, each file checked against the manifest before a byte of it is used."""

from __future__ import annotations

import builtins
import json
import mmap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import StoreError
from npuflow.base.mapped import LARGE
from npuflow.flow.store_files import read
from npuflow.flow.store_manifest import Damaged, Manifest, bytes_digest, file_digest

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Files whose bytes were checked by this process, by what `stat` said then: a change
# since makes them unchecked again.
_CHECKED: dict[str, tuple[int, int, int]] = {}
_LOCK = threading.Lock()


class Reader:
    """One stored artifact, opened for reading; nothing is read before it is asked for."""

    def __init__(self, folder: Path, manifest: Manifest, *, trusted: bool = False) -> None:
        self.folder = folder
        self.manifest = manifest
        # a hand-edited folder that enters as an override: its manifest only names the files
        self._trusted = trusted

    @property
    def digest(self) -> str:
        return self.manifest.digest

    def names(self) -> list[str]:
        """The entries, sorted."""
        return sorted(self.manifest.entries)

    def __contains__(self, name: str) -> bool:
        return name in self.manifest.entries

    def json(self, name: str) -> Any:
        return json.loads(self._bytes(self._file(name, "json")))

    def text(self, name: str) -> str:
        return self._bytes(self._file(name, "text")).decode()

    def bytes(self, name: str) -> builtins.bytes:
        return self._bytes(self._file(name, "bytes"))

    def path(self, name: str) -> Path:
        """The checked file itself, for readers that want a path; it must not be written to."""
        return self.checked(self._file(name))

    def array(self, name: str) -> Array:
        """One array, whole in memory."""
        return self._member(name, "array", "")

    def arrays(self, name: str) -> dict[str, Array]:
        """All arrays of an entry, whole in memory, by name; those that share a file are read at once."""
        from npuflow.flow import store_npz

        members = self._entry(name, "arrays")["members"]
        small: dict[str, list[str]] = {}
        for key, one in members.items():
            if "npz" in one:
                small.setdefault(one["npz"], []).append(key)
        found: dict[str, Array] = {}
        for file, keys in small.items():
            found |= store_npz.read(self._archive(file), keys)
        return {k: found[k] if k in found else self._member(name, "arrays", k) for k in sorted(members)}

    def lazy(self, name: str) -> Mapping[str, Array]:
        """The arrays of an entry, each read when it is asked for."""
        return _Lazy(self._entry(name, "arrays")["members"], lambda key: self._member(name, "arrays", key))

    def sliced(self, name: str, key: str = "") -> Any:
        """An array that reads only what is indexed: `reader.sliced("acts")[3:7]`."""
        member = self._entry(name)["members"][key]
        if "npz" in member or "npy" in member:
            return self._member(name, self._entry(name)["kind"], key)
        from npuflow.flow.store_zarr import open_zarr

        return open_zarr(member["zarr"], self.manifest.files, self._bytes)

    def _member(self, name: str, kind: str, key: str) -> Array:
        from npuflow.flow import store_npz
        from npuflow.flow.store_arrays import open_npy
        from npuflow.flow.store_zarr import open_zarr

        member = self._entry(name, kind)["members"][key]
        if "npy" in member:
            return open_npy(self.checked(member["npy"]))
        if "npz" in member:
            return store_npz.read(self._archive(member["npz"]), [key])[key]
        array: Array = open_zarr(member["zarr"], self.manifest.files, self._bytes)[...]
        return array

    def _entry(self, name: str, kind: str | None = None) -> Mapping[str, Any]:
        entry = self.manifest.entries.get(name)
        if entry is None or kind not in (None, entry["kind"]):
            found = "no entry" if entry is None else f"an entry of kind {entry['kind']}"
            raise StoreError(
                f"artifact {self.manifest.kind} {self.digest} has {found} {name!r}",
                because=f"its entries are {', '.join(self.names())}", code="NF-STORE-013",
            )
        return entry

    def _file(self, name: str, kind: str | None = None) -> str:
        entry = self._entry(name, kind)
        if "file" not in entry:
            raise StoreError(
                f"entry {name!r} is not a single file",
                hint="read it with array() or arrays()", code="NF-STORE-014",
            )
        file: str = entry["file"]
        return file

    def _bytes(self, file: str) -> builtins.bytes:
        """A file's bytes; what is returned is what was checked."""
        path = f"{self.folder}/{file}"
        try:
            data = read(path)
        except OSError as fault:
            raise self._damaged(path, f"{file} cannot be read: {fault.strerror}") from fault
        self._compare(path, file, len(data), lambda: bytes_digest(data))
        return data

    def _archive(self, file: str) -> builtins.bytes | mmap.mmap:
        """The checked bytes of an npz file; a large one is mapped."""
        from npuflow.flow import store_npz

        large = self.manifest.files.get(file, (0, ""))[0] >= LARGE
        return store_npz.mapped(self.checked(file)) if large else self._bytes(file)

    def checked(self, file: str) -> Path:
        """The path of a file of the object, once its bytes have been compared with the manifest."""
        path = self.folder / file
        try:
            seen = path.stat()
            stamp = (seen.st_size, seen.st_mtime_ns, seen.st_ino)
            if _CHECKED.get(str(path)) == stamp:
                return path
            size, found = file_digest(path)
        except OSError as fault:
            raise self._damaged(path, f"{file} cannot be read: {fault.strerror}") from fault
        self._compare(path, file, size, lambda: found)
        with _LOCK:
            _CHECKED[str(path)] = stamp
        return path

    def _compare(self, path: Path | str, file: str, size: int, found: Callable[[], str]) -> None:
        if self._trusted:
            return
        if file not in self.manifest.files:
            raise self._damaged(path, f"{file} is not listed in the manifest")
        wanted, check = self.manifest.files[file]
        if size != wanted:
            raise self._damaged(path, f"{file} has {size} bytes instead of {wanted}")
        if found() != check:
            raise self._damaged(path, f"the bytes of {file} do not match the manifest")

    def _damaged(self, path: Path | str, because: str) -> Damaged:
        return Damaged(f"object {self.digest}", str(path), because)


class _Lazy(Mapping[str, Any]):
    """Arrays by name, read one at a time."""

    def __init__(self, members: Mapping[str, Any], read: Callable[[str], Any]) -> None:
        self._members, self._read = members, read

    def __getitem__(self, key: str) -> Any:
        if key not in self._members:
            raise KeyError(key)
        return self._read(key)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._members))

    def __len__(self) -> int:
        return len(self._members)
