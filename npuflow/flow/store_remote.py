"""A store shared through a file system or an object server: read through, written behind, never relied on."""

from __future__ import annotations

import os
import secrets
import tarfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from npuflow.base.digest import ALGORITHM
from npuflow.base.errors import StoreError, UsageError
from npuflow.flow import store_files as files
from npuflow.flow.store_damage import REMOTE, Damages
from npuflow.flow.store_manifest import MANIFEST, Damaged, Manifest, file_digest, sealed
from npuflow.flow.store_record import Record

Mode = Literal["off", "read", "read-write"]
T = TypeVar("T")
USES = "uses"
"""The folder of notes of what builds use, a file a build."""
NOTED = 30.0
"""Seconds after which a build that uses more writes its note again."""
_QUICK = {"connect_timeout": 3, "read_timeout": 30, "retries": {"max_attempts": 1}}


class LocalStore(Protocol):
    """The store in front of a remote."""

    root: Path
    damages: Damages

    def scratch(self) -> Path: ...
    def settle(self, made: str, manifest: Manifest) -> bool: ...
    def object_path(self, digest: str) -> Path: ...


class _Unread(Exception):
    """The remote file system's refusal, told apart from faults of what it gave."""


class _Source:
    """A remote file being read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as fault:  # every file system has errors of its own
            raise _Unread from fault


class Remote:
    """Objects as one archive each, records beside them. The first failure turns the
    remote off for this process; damage does not: it counts as absence, and is written over."""

    def __init__(self, url: str, mode: Mode, warn: Callable[[str], None] | None = None) -> None:
        self.url, self.mode = url, mode
        self.shown = url.partition("?")[0]
        """Its name in messages: options behind the `?` may be credentials."""
        self.limit: int | None = None
        """Bytes that the remote cache is kept below."""
        self._report = warn
        self.down = False
        self._guard = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._there: set[str] = set()
        self._used: set[str] = set()
        self._noted = -NOTED
        self._note = f"{secrets.token_hex(8)}.json"

    def warn(self, text: str) -> None:
        """Tell whoever listens; a store that opens this remote listens when nobody else does."""
        if self._report is not None:
            self._report(text)

    def listen(self, reported: Callable[[str], None]) -> None:
        self._report = self._report or reported

    def _files(self) -> tuple[Any, str]:
        """The file system behind the URL and the folder in it; options may follow a `?`."""
        with self._guard:
            if self._opened is None:
                import fsspec

                parts = urlsplit(self.url)
                options: dict[str, Any] = dict(parse_qsl(parts.query))
                if parts.scheme == "s3":
                    options.setdefault("config_kwargs", _QUICK)
                plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
                system, base = fsspec.core.url_to_fs(plain, use_listings_cache=False, **options)
                self._opened = system, base.rstrip("/")
            return self._opened

    def _try(self, what: str, action: Callable[[Any, str], T], otherwise: T, *, absent: bool = True) -> T:
        """`absent`: to find nothing there is an answer, not a failure."""
        if self.down or self.mode == "off":
            return otherwise
        try:
            return action(*self._files())
        # every file system has errors of its own, and none of them may stop a build
        except files.Unwritable:
            raise
        except Exception as fault:
            if absent and isinstance(fault, FileNotFoundError):
                return otherwise
            self.down = True
            self.warn(f"the remote cache {self.shown} is not used by this build: {what} failed: {fault}")
            return otherwise

    def record(self, key: str) -> bytes | None:
        """The bytes of a record, if the remote has it."""
        data: bytes | None = self._try(
            "reading a record", lambda fs, base: fs.cat_file(_place(base, "records", key)), None
        )
        if data is not None:
            self._use(f"records/{key}")
        return data

    def has(self, digest: str) -> bool:
        """Whether the remote has an object."""
        if digest in self._there:
            return True
        found = bool(
            self._try(
                "looking for an object", lambda fs, base: fs.exists(_place(base, "objects", digest)), False
            )
        )
        if found:
            self._there.add(digest)
            self._use(f"objects/{digest}")
        return found

    def _use(self, name: str) -> None:
        """Note that this build uses something, so that nobody who keeps the remote cache small removes it."""
        self._used.add(name)
        if time.monotonic() - self._noted > NOTED:
            self.beat()

    def beat(self) -> None:
        """Write down what this build uses, as of now. Only a build that may write can."""
        if self.mode != "read-write" or not self._used:
            return
        self._noted = time.monotonic()
        data = sealed({"v": 1, "used": dict.fromkeys(sorted(self._used))})
        self._try(
            "noting what is used",
            lambda fs, base: _send(fs, f"{base}/{USES}/{self._note}", lambda out: out.write(data)),
            None, absent=False,
        )

    def files(self) -> tuple[Any, str]:
        """The file system and the folder in it, for whoever looks after the whole remote cache."""
        return self._files()

    def fetch(self, store: LocalStore, digest: str) -> bool:
        """Bring an object here; it is settled only once every file of it has been checked. One that is
        damaged is noted."""

        def bring(fs: Any, base: str) -> bool:
            made = store.scratch()
            try:
                with files.writing(store.root):
                    made.mkdir()
                with fs.open(_place(base, "objects", digest), "rb") as stream:
                    return self._take(store, digest, made, stream)
            finally:
                if made.exists():
                    files.remove(made)

        came = self._try("fetching an object", bring, False)
        if not came:
            self._there.discard(digest)
        return came

    def _take(self, store: LocalStore, digest: str, made: Path, stream: IO[bytes]) -> bool:
        """Unpack, check and settle an object."""
        try:
            _unpack(_Source(stream), made)
            manifest = Manifest.decode((made / MANIFEST).read_bytes(), digest, f"remote object {digest}")
            _check(made, manifest)
        except _Unread as refused:
            raise refused.__cause__ or refused from None
        except Exception as fault:  # flipped bytes can name any file and break any reader
            if isinstance(fault, OSError) and fault.errno in files.FULL:
                with files.writing(store.root):
                    raise
            store.damages.note(REMOTE, f"objects/{digest}")
            return False
        store.settle(str(made), manifest)
        return True

    def push(self, store: LocalStore, record: Record, *, over: bool = False) -> None:
        """Upload a record, after its objects. What is there already stays, but for what was damaged. `over`:
        the record takes the place of one whose objects are lost."""

        def send(fs: Any, base: str) -> None:
            # where the record was damaged, its objects may be too: nobody has looked at them
            bad = store.damages.distrusted(f"records/{record.key}")
            for digest in record.objects:
                if bad or store.damages.distrusted(f"objects/{digest}") or not self.has(digest):
                    _send(fs, _place(base, "objects", digest), partial(_pack, store.object_path(digest)))
                    self._there.add(digest)
                    store.damages.replaced(f"objects/{digest}")
            if bad or over or not fs.exists(_place(base, "records", record.key)):
                self.send_record(record)
                store.damages.replaced(f"records/{record.key}")

        if self.mode == "read-write":
            self._try("an upload", send, None, absent=False)

    # What follows is for whoever asked for an upload: faults are raised.

    def reach(self) -> None:
        """Raise what is wrong with the place, before anything is sent there."""
        hint = "check the URL, the network, the credentials and whether the folder is mounted"
        try:
            fs, base = self._files()
            if _is_local(fs) and not Path(base).parent.is_dir():      # a share that is not mounted
                raise FileNotFoundError(f"there is no folder {Path(base).parent}")
            fs.exists(f"{base}/records")
        except Exception as fault:  # every file system has errors of its own
            text = f"the remote cache {self.shown} cannot be reached"
            raise StoreError(
                text, because=str(fault) or type(fault).__name__, hint=hint, code="NF-REMOTE-005",
            ) from fault

    def holds(self, kind: str, name: str) -> bool:
        """Whether it has a record or an object."""
        fs, base = self._files()
        return bool(fs.exists(_place(base, kind, name)))

    def send_record(self, record: Record) -> int:
        """Upload a record; its bytes."""
        fs, base = self._files()
        data = record.encode()
        _send(fs, _place(base, "records", record.key), lambda out: out.write(data))
        return len(data)

    def send_object(self, store: LocalStore, manifest: Manifest, *, dry: bool = False) -> int:
        """Upload an object whose files are what its manifest says (else: `Damaged`);
        their bytes. `dry`: only look."""
        fs, base = self._files()
        folder = store.object_path(manifest.digest)
        _check(folder, manifest, "is not what was written")
        if not dry:
            _send(fs, _place(base, "objects", manifest.digest), partial(_pack, folder))
            self._there.add(manifest.digest)
        return sum(size for size, _ in manifest.files.values())


def _place(base: str, kind: str, name: str) -> str:
    number = name.partition(":")[2]
    return f"{base}/{kind}/{number[:2]}/{number[2:]}" + (".tar" if kind == "objects" else ".json")


def name_of(base: str, path: str) -> str | None:
    """What a remote file is: objects/DIGEST or records/KEY; None for a file of another kind."""
    kind, _, rest = path.removeprefix(base).lstrip("/").partition("/")
    ending = {"objects": ".tar", "records": ".json"}.get(kind)
    number = rest.replace("/", "")
    if ending is None or not number.endswith(ending) or number.startswith(".") or "/." in rest:
        return None
    return f"{kind}/{ALGORITHM}:{number.removesuffix(ending)}"


def _is_local(fs: Any) -> bool:
    return "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,))


def _send(fs: Any, place: str, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a remote file that appears whole: object servers do so by themselves, folders by renaming."""
    if not _is_local(fs):
        out = fs.open(place, "wb")
        try:
            fill(out)
        except BaseException:
            with suppress(Exception):
                out.discard()
            with suppress(AttributeError):
                out.closed = True  # closing it would upload the half that was written
            raise
        out.close()
        return
    target = Path(place)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = files.fresh(target.parent, f".{target.name}.")
    try:
        with made.open("wb") as out:
            fill(out)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)


def _pack(folder: Path, out: IO[bytes]) -> None:
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"there is no object in {folder}", code="NF-STORE-018")
    with tarfile.open(fileobj=out, mode="w|", bufsize=1 << 20) as archive:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            with path.open("rb") as source:
                archive.addfile(entry, source)


def _unpack(source: _Source, folder: Path) -> None:
    with tarfile.open(fileobj=source, mode="r|", bufsize=1 << 20) as archive:  # type: ignore[call-overload]
        for entry in archive:
            target = folder / entry.name
            if not entry.isfile() or not target.resolve().is_relative_to(folder.resolve()):
                raise tarfile.TarError(f"an entry {entry.name!r} does not belong in an object")
            target.parent.mkdir(parents=True, exist_ok=True)
            data = archive.extractfile(entry)
            with target.open("wb") as out:
                while data is not None and (block := data.read(1 << 20)):
                    out.write(block)


def _check(folder: Path, manifest: Manifest, altered: str = "arrived altered") -> None:
    for name, wanted in manifest.files.items():
        path = folder / name
        if not path.is_file() or file_digest(path) != wanted:
            raise Damaged(f"object {manifest.digest}", str(path), f"{name} {altered}")
    extra = (
        {os.path.relpath(one, folder) for one in folder.rglob("*") if one.is_file()}
        - set(manifest.files)
        - {MANIFEST}
    )
    if extra:
        reason = f"it contains {sorted(extra)[0]}, which its manifest does not list"
        raise Damaged(f"object {manifest.digest}", str(folder), reason)


def connect(url: str | None, mode: str, warn: Callable[[str], None] | None = None) -> Remote | None:
    """The remote of a URL; nothing is contacted yet."""
    if mode not in ("off", "read", "read-write"):
        raise UsageError(
            f'a remote cache cannot be "{mode}"', hint="off, read or read-write", code="NF-REMOTE-006",
        )
    if url is None or mode == "off":
        return None
    return Remote(url, mode, warn)  # type: ignore[arg-type]
