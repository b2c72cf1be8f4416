"""The store: objects by content, records by key, whatever is damaged set aside and never used."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from npuflow.base.digest import ALGORITHM
from npuflow.base.errors import StoreError, UsageError
from npuflow.flow import store_files as files
from npuflow.flow.artifact import Artifact, ArtifactRef, Reader, Writer, seal
from npuflow.flow.store_damage import ABSENT, LEFT, LOCAL, REMOTE, Damages
from npuflow.flow.store_manifest import MANIFEST, Damaged, Manifest, listed, sealed, unsealed
from npuflow.flow.store_record import Record

if TYPE_CHECKING:
    from npuflow.flow.store_remote import Remote

A = TypeVar("A", bound=Artifact)
TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of npuflow; anything in it can be built again.\n"
)
_FOLDERS = ("objects", "records", "tmp", "quarantine", "leases", "roots")


class Spec(NamedTuple):
    """All that another process needs to open the same store for the same build."""

    root: str
    remote: str | None = None
    mode: str = "off"
    lease: str | None = None


class Store:
    """A cache folder. Safe for any number of threads, processes and machines at once."""

    def __init__(
        self,
        root: Path | str,
        remote: Remote | None = None,
        *,
        lease: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.remote = remote
        self.warn = warn or (lambda _: None)
        if remote is not None and warn is not None:
            remote.listen(warn)
        self._base = str(self.root)
        self._tmp = f"{self._base}/tmp"
        self._scratch = f"{lease}." if lease else ""
        self.lease = lease
        self.limit: int | None = None
        """Bytes that the cache is kept below, of those that no running build uses."""
        self.damages = Damages(self.root / "leases" / lease if lease is not None else None)
        self._left: set[str] = set()
        """What is damaged and could not be set aside."""
        self.id = self._identify()

    @property
    def spec(self) -> Spec:
        if self.remote is None:
            return Spec(str(self.root), lease=self.lease)
        return Spec(str(self.root), self.remote.url, self.remote.mode, self.lease)

    def _identify(self) -> str:
        """Make the folder a store, or read what it is; the digest algorithm is fixed when it is made."""
        path = self.root / "store.json"
        for _ in range(3):
            try:
                body = unsealed(path.read_bytes(), "store", str(path))
                name, algorithm = str(body["id"]), str(body["algorithm"])
            except FileNotFoundError:
                self._create(path)
                continue
            except (OSError, ValueError, KeyError, TypeError, Damaged) as fault:
                self.set_aside(path, f"it is not a store description: {fault}")
                continue
            if algorithm != ALGORITHM:
                hint = "choose another folder with --cache, or use the npuflow that wrote it"
                raise StoreError(
                    f"the cache {self.root} uses the digest {algorithm}, not {ALGORITHM}",
                    hint=hint, code="NF-STORE-006",
                )
            return name
        raise StoreError(
            f"cannot open the cache {self.root}",
            hint="choose another place: --cache DIR", code="NF-STORE-007",
        )

    def _create(self, path: Path) -> None:
        with files.writing(self.root):
            for name in _FOLDERS:
                (self.root / name).mkdir(parents=True, exist_ok=True)
            (self.root / "CACHEDIR.TAG").write_text(TAG)
            body = {"v": 1, "algorithm": ALGORITHM, "id": secrets.token_hex(6)}
            files.create(str(path), sealed(body), self._tmp)

    # places

    def object_path(self, digest: str) -> Path:
        return Path(self._object(digest))

    def record_path(self, key: str) -> Path:
        return Path(self._record(key))

    # Plain text where thousands are made: a `Path` costs as much as opening the file it names.

    def _object(self, digest: str) -> str:
        name = digest.partition(":")[2]
        return f"{self._base}/objects/{name[:2]}/{name[2:]}"

    def _record(self, key: str) -> str:
        name = key.partition(":")[2]
        return f"{self._base}/records/{name[:2]}/{name[2:]}.json"

    # records

    def record(self, key: str, *, touch: bool = True, remote: bool = True) -> Record | None:
        """The record of a key, if it is there and whole."""
        path = self._record(key)
        found = self._read_record(key, path)
        if found is not None and touch:
            _touch(path)
        if found is None and remote and self.remote is not None:
            data = None if self.damages.distrusted(f"records/{key}") else self.remote.record(key)
            if data is not None:
                found = self._take_record(key, data)
        return found

    def _read_record(self, key: str, path: str) -> Record | None:
        try:
            return Record.decode(files.read(path), key, path)
        except FileNotFoundError:
            return None
        except Damaged as damage:
            self.set_aside(Path(path), damage.reason)
        except (OSError, ValueError, KeyError, TypeError) as fault:
            self.set_aside(Path(path), f"it cannot be read: {fault}")
        return None

    def _take_record(self, key: str, data: bytes) -> Record | None:
        try:
            found = Record.decode(data, key, f"remote record {key}")
        except (Damaged, ValueError, KeyError, TypeError, AttributeError):
            self.damages.note(REMOTE, f"records/{key}")
            return None
        return self.commit(found, upload=False)[0]

    def commit(self, record: Record, *, upload: bool = True) -> tuple[Record, str | None]:
        """Settle a key. The first record wins; the second value is its digest when the two disagree."""
        path, data = self._record(record.key), record.encode()
        kept, other, over = record, None, False
        with files.writing(self.root):
            while not files.create(path, data, self._tmp):
                first = self._read_record(record.key, path)
                if first is None:
                    continue
                if first.output == record.output:
                    kept = first
                elif not all(self.intact(digest) for digest in first.objects):
                    # the first value is lost: the new one takes its place, and is reported
                    other, over = first.output, True
                    files.replace(path, data, self._tmp)
                else:
                    kept, other = first, first.output
                break
        if upload and self.remote is not None:
            self.remote.push(self, kept, over=over)
        return kept, other

    # objects

    def write(self, artifact: Artifact) -> ArtifactRef:
        """Store an artifact, streaming; nothing is visible before it is complete."""
        made = files.spare(self._tmp, self._scratch)
        moved = False
        try:
            with files.writing(self.root):
                os.mkdir(made)  # noqa: PTH102
                manifest = seal(artifact, Writer(made))
                moved = self.settle(made, manifest)
        finally:
            if not moved:
                files.remove(Path(made))
        return ArtifactRef(manifest.digest, manifest.uses)

    def settle(self, made: str, manifest: Manifest) -> bool:
        """Give a complete object folder its place; one that is there already stays,
        if it is whole (then: False)."""
        path = self._object(manifest.digest)
        with files.writing(self.root):
            while not files.settle_folder(made, path):
                if self.intact(manifest.digest, remote=False):
                    os.utime(path)
                    return False
                self.set_aside(
                    Path(path), "an object of this content is written again, and this one is incomplete"
                )
        return True

    def scratch(self) -> Path:
        """An unused path on the store's file system."""
        return Path(files.spare(self._tmp, self._scratch))

    def manifest(self, digest: str, *, remote: bool = True) -> Manifest:
        """The manifest of an object, or `Damaged`; a remote object is brought here first."""
        path = f"{self._object(digest)}/{MANIFEST}"
        try:
            data = files.read(path)
        except OSError:
            if remote and self._fetched(digest):
                data = files.read(path)
            else:
                raise Damaged(f"object {digest}", path, "it is not in the store") from None
        try:
            return Manifest.decode(data, digest, path)
        except (ValueError, KeyError, TypeError) as fault:
            raise Damaged(f"object {digest}", path, f"its manifest cannot be read: {fault}") from fault

    def intact(self, digest: str, *, remote: bool = True) -> bool:
        """Whether an object is there with all its files at their sizes; a remote one
        counts, and is not fetched."""
        path = self._object(digest)
        if digest in self._left:
            return False
        try:
            for name, (size, _) in listed(files.read(f"{path}/{MANIFEST}"), digest, path).items():
                if os.stat(f"{path}/{name}").st_size != size:  # noqa: PTH116 (hot: one call per file)
                    return False
        except (OSError, ValueError, KeyError, TypeError, Damaged):
            if not remote or self.remote is None or Path(path).exists():
                return False
            return not self.damages.distrusted(f"objects/{digest}") and self.remote.has(digest)
        return True

    def _fetched(self, digest: str) -> bool:
        """Bring an object here from the remote cache. One that does not come is not asked for again."""
        if self.remote is None or self.damages.distrusted(f"objects/{digest}"):
            return False
        came = self.remote.fetch(self, digest)
        if not came:
            self.damages.note(ABSENT, f"objects/{digest}")
        return came

    def usable(self, record: Record, *, remote: bool = True) -> bool:
        """Whether a record's objects are there; those that are not whole are set aside."""
        bad = []
        for digest in record.objects:
            path = self._object(digest)
            _touch(path)  # first: a collection then leaves it alone
            if not self.intact(digest, remote=remote):
                bad.append(digest)
                # once more: a collection that had just taken it away has put it back
                if os.path.exists(path) and not self.intact(digest, remote=remote):  # noqa: PTH110
                    self.quarantine(digest, "a file is missing, or has another size or a damaged manifest")
        return not bad

    def flawed(self, digest: str) -> str:
        """What is wrong with an object, every byte of it read: the reason, or nothing. A remote one is
        brought here first."""
        try:
            reader = self.open(digest)
            for file in reader.manifest.files:
                reader.checked(file)
        except Damaged as damage:
            return damage.reason
        return ""

    def open(self, digest: str) -> Reader:
        """A reader of an object's entries."""
        return Reader(self.object_path(digest), self.manifest(digest))

    def load(self, ref: ArtifactRef | str, kind: type[A]) -> A:
        """An artifact, its files checked as they are read."""
        return kind.load(self.open(ref if isinstance(ref, str) else ref.digest))

    def adopt(self, folder: Path, kind: type[A]) -> ArtifactRef:
        """Take in a hand-edited artifact folder: it is read without checks and
        stored under its own digest."""
        path = Path(folder) / MANIFEST
        try:
            body = json.loads(path.read_bytes())["body"]
        except (OSError, ValueError, KeyError) as fault:
            hint = "start from a copy of an artifact: npuflow show STAGE RECIPE --export DIR"
            because = (
                f"it has no {MANIFEST}"
                if isinstance(fault, FileNotFoundError | NotADirectoryError)
                else str(fault)
            )
            raise UsageError(
                f"{folder} is not an artifact folder", because=because, hint=hint, code="NF-USAGE-052",
            ) from fault
        manifest = Manifest(body["digest"], body["kind"], body["entries"], body["files"])
        try:
            artifact = kind.load(Reader(Path(folder), manifest, trusted=True))
        except (ValueError, KeyError, TypeError) as fault:
            raise UsageError(
                f"{folder} cannot be read as a {kind.__name__}", because=str(fault), code="NF-USAGE-059",
            ) from fault
        return self.write(artifact)

    # damage

    def quarantine(self, name: str, reason: str) -> None:
        """Set an object (or, for a key, a record) aside."""
        for path in (self.object_path(name), self.record_path(name)):
            if path.exists():
                self.set_aside(path, reason)
                if path.exists():
                    self._left.add(name)

    def quarantine_damaged(self, digest: str) -> None:
        """Set an object aside if it is there and damaged. One that a worker could not read may be whole by
        now: another worker has written it meanwhile."""
        if self.object_path(digest).exists() and (reason := self.flawed(digest)):
            self.quarantine(digest, reason)

    def set_aside(self, path: Path, reason: str) -> None:
        """Move a damaged file or folder out of use, with the reason beside it. In a cache that can only be
        read it stays, and is not used."""
        shown = path.relative_to(self.root)
        target = files.fresh(self.root / "quarantine", f"{time.strftime('%Y%m%dT%H%M%S')}-")
        try:
            with files.writing(self.root):
                target.mkdir(parents=True)
                (target / "reason.txt").write_text(f"{shown}: {reason}\n")
                path.rename(target / path.name)
        except FileNotFoundError:
            files.remove(target)  # another process set it aside first
            return
        except files.Unwritable as refused:
            if not refused.readonly:
                raise
            self.damages.note(LEFT, str(shown))
            return
        self.damages.note(LOCAL, str(shown))

    def tell_damages(self) -> list[tuple[str, str]]:
        """What was found damaged since this store was opened, with what to do: one warning for each cache."""
        remote = self.remote
        told = self.damages.told(
            self.root, remote.shown if remote is not None else "", remote is None or remote.mode == "read"
        )
        self.damages.forget()
        return told

    # everything

    def digests(self) -> Iterator[str]:
        """Every object."""
        yield from (
            f"{ALGORITHM}:{a.name}{b.name}" for a in _listed(self.root / "objects") for b in _listed(a)
        )

    def record_keys(self) -> Iterator[str]:
        """Every record."""
        yield from (
            f"{ALGORITHM}:{a.name}{b.stem}" for a in _listed(self.root / "records") for b in _listed(a)
        )


def _listed(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _touch(path: str) -> None:
    """Note that a build uses something, where the cache can be written and has it."""
    with suppress(OSError):
        os.utime(path)


_OPEN: dict[Spec, Store] = {}


def open_store(spec: Spec) -> Store:
    """The store of a spec, opened once per process."""
    store = _OPEN.get(spec)
    if store is None:
        from npuflow.flow.store_remote import connect

        remote = connect(spec.remote, spec.mode) if spec.remote else None
        store = _OPEN[spec] = Store(spec.root, remote, lease=spec.lease)
    return store
