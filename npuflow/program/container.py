"""The .npu container: one file of sections with digests, deterministic; a damaged file is one clear error.

Layout, little endian: magic (8 bytes), format version u32, section count u32, target fingerprint (64 bytes,
zero padded); per section: name (16 bytes), offset u64, size u64, xxh3-128 (16 bytes); then the xxh3-128 of
all before it; then the sections, each on a 64-byte boundary, zeros between. Sections: `meta` (canonical
JSON), `core0`.. (commands), `const`, `taps` (if there are any: see taps.py), `graph` (if it is
kept: see program/graph_section.py), `host0`..; of a sealed file also `provenance` and `seal` (see seal.py),
which say nothing about how it runs.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from npuflow.base.digest import digest
from npuflow.base.errors import ModelError, Where
from npuflow.base.files import ByteSink
from npuflow.base.html_table import titled
from npuflow.base.tables import canonical, read
from npuflow.hw.command import Command
from npuflow.hw.encode import Words, decode_all
from npuflow.hw.isa import WORDS
from npuflow.hw.target import Target
from npuflow.program.counts import check_counts, shortened
from npuflow.program.meta import check_meta
from npuflow.program.repeats import expanded, has_repeats
from npuflow.program.taps import ProgramTaps, decode_taps

MAGIC = b"NPUFLOW\0"
VERSION = 2
ALIGN = 64
MAX_SECTIONS = 4096
WITHOUT = ("group_products",)
MACHINE = ("compute", "numerics", "memory", "dma", "limits")     # the target's tables that a program runs by
SET = "set"                                # the section that only files of several programs have
PROVENANCE, SEAL = "provenance", "seal"    # the sections that are about the file
ENDS = ("inputs", "outputs")
LARGE = 1 << 26                            # bytes of a file or section from which no copy of it is made
Body = bytes | memoryview
_HEAD = struct.Struct("<8sII64s")
_ENTRY = struct.Struct("<16sQQ16s")


@dataclass(frozen=True)
class Program:
    """A compiled network. `commands` has one uint32 array [n, 64] per core, with the commands of all rounds
    of loops; `stored`: the same as the file has them, where it repeats some (see repeats.py). `meta` is
    described in program_meta, and counts the commands of all rounds."""

    target_fingerprint: str
    meta: Mapping[str, Any]
    commands: tuple[Words, ...]
    const: Body = b""
    hosts: tuple[bytes, ...] = ()
    tap_bytes: bytes = b""
    graph_bytes: Body = b""
    stored: tuple[Words, ...] = ()

    @cached_property
    def taps(self) -> ProgramTaps:
        """Where values lie that only local memory holds."""
        counts = [len(words) for words in self.commands]
        return decode_taps(self.tap_bytes, counts, len(self.meta["nodes"]), self.meta["local_bytes"])

    @cached_property
    def target(self) -> Target:
        """The target the program was compiled for, from its metadata."""
        return target_of(self.meta["target"], self.target_fingerprint)

    @cached_property
    def decoded(self) -> tuple[tuple[Command, ...], ...]:
        """The commands of every core, decoded once."""
        alike = bool(self.stored)
        return tuple(decode_all(words, core=core, alike=alike) for core, words in enumerate(self.commands))

    def at(self, steps: Mapping[str, int], whole: bool = False) -> Program:
        """The program as the machine runs it for so many steps or at an index, by the inputs that say so
        (`lengths` and `indices` of the metadata): commands of the rounds that run. It has no taps, which are
        of the most steps, and of whole caches; `whole`: as with such an index, but caches are read whole."""
        if not self.stored:
            return self
        every, meta = shortened(self.meta, self.stored, steps, whole)
        taps = self.tap_bytes if whole else b""
        return replace(self, commands=every, stored=every, tap_bytes=taps, meta=meta)

    def __repr__(self) -> str:
        """A line: a program is megabytes of words and constants."""
        ends = (", ".join(entry["name"] for entry in self.meta.get(end, ())) for end in ENDS)
        commands, size = sum(map(len, self.commands)), len(self.const)
        about = f"{commands:,} commands, {size:,} bytes of weights and tables"
        return f"<Program {self.meta.get('name') or ''}: {' -> '.join(ends)}; {about}>"

    def _repr_html_(self) -> str:
        """For notebooks: what the program is of, what it takes and gives, and its sizes."""
        meta = self.meta
        ends = {end: [f"{e['name']} {'x'.join(map(str, e['shape']))}" for e in meta[end]] for end in ENDS}
        facts = {
            **ends, "layers": len(meta["nodes"]), "commands": sum(map(len, self.commands)),
            "cores": len(self.commands), "MAC units of a core": self.target.compute.macs,
            "bytes of weights and tables": len(self.const), "bytes of activations": meta["data_bytes"],
            "bytes of local memory": meta["local_bytes"],
        }
        return titled(str(meta.get("name") or "program"), facts)

    def to_bytes(self) -> bytes:
        return written(self.target_fingerprint, self.sections())

    def write(self, file: ByteSink, graph: Sequence[Body] = ()) -> None:
        """The same bytes into a file. `graph`: the body of that section, in parts and in place of
        `graph_bytes`."""
        parts = [(name, [body]) for name, body in replace(self, graph_bytes=b"").sections()]
        kept = list(graph) or ([self.graph_bytes] if self.graph_bytes else [])
        if kept:
            parts.insert(len(parts) - len(self.hosts), ("graph", kept))
        write(file, self.target_fingerprint, parts)

    def sections(self) -> list[tuple[str, Body]]:
        """Names and bodies, in the file's order."""
        sections: list[tuple[str, Body]] = [("meta", json_bytes(self.meta))]
        sections += [
            (f"core{i}", np.ascontiguousarray(w, "<u4").tobytes())
            for i, w in enumerate(self.stored or self.commands)
        ]
        sections += [("const", self.const)]
        sections += [("taps", self.tap_bytes)] if self.tap_bytes else []
        sections += [("graph", self.graph_bytes)] if self.graph_bytes else []
        sections += [(f"host{i}", h) for i, h in enumerate(self.hosts)]
        return sections

    def save(self, path: str | os.PathLike[str]) -> None:
        with Path(path).open("wb") as file:
            self.write(file)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, file: str | None = None, check: bool = True) -> Program:
        """Parse a container. `check=False` skips the digests (to study what damage
        does), never the structure."""
        where = Where(file=file)
        fingerprint, parts = sections_of(memoryview(data), where, check)
        parts = {name: body for name, body in parts.items() if name not in (PROVENANCE, SEAL)}
        if SET in parts:
            raise ModelError(
                "the file holds several programs", where=where,
                because=bytes(parts[SET]).decode(errors="replace"), hint='"FILE.npu#NETWORK" is one of them',
                code="NF-PROGRAM-060",
            )
        return cls.of_sections(fingerprint, parts, where)

    @classmethod
    def of_sections(cls, fingerprint: str, parts: dict[str, memoryview], where: Where) -> Program:
        """A program from the bodies of its sections, by name; none may be left over."""
        if "meta" not in parts:
            raise ModelError("the program has no metadata", where=where, code="NF-PROGRAM-009")
        meta = _meta(parts.pop("meta"), where)
        cores = _numbered(parts, "core", where)
        hosts = _numbered(parts, "host", where)
        const, graph = (_held(parts.pop(name, memoryview(b""))) for name in ("const", "graph"))
        taps = bytes(parts.pop("taps", b""))
        if parts:
            raise ModelError(f"unknown section {sorted(parts)[0]!r}", where=where, code="NF-PROGRAM-001")
        commands = []
        for i, body in enumerate(cores):
            if len(body) % (4 * WORDS):
                raise ModelError(
                    f"section core{i} is not a whole number of commands", where=where, code="NF-PROGRAM-002",
                )
            commands.append(np.frombuffer(body, "<u4").astype(np.uint32).reshape(-1, WORDS))
        try:
            every = tuple(expanded(words, core) for core, words in enumerate(commands))
            target_of(meta["target"], fingerprint)
            check_meta(meta, [len(w) for w in every], len(const), len(hosts))
            check_counts(meta, commands)
        except ModelError as error:
            raise error.at(where) from None
        stored = tuple(commands) if any(map(has_repeats, commands)) else ()
        held = tuple(bytes(h) for h in hosts)
        return cls(fingerprint, meta, every, const, held, taps, graph, stored)


def written(fingerprint: str, sections: Sequence[tuple[str, Body]]) -> bytes:
    """A file of sections: header, table with digests, bodies."""
    out = io.BytesIO()
    write(out, fingerprint, [(name, [body]) for name, body in sections])
    return out.getvalue()


def write(file: ByteSink, fingerprint: str, sections: Sequence[tuple[str, Sequence[Body]]]) -> None:
    """The same into a file, of bodies in parts."""
    table_end = _HEAD.size + _ENTRY.size * len(sections) + 16
    at, entries = _aligned(table_end), []
    for name, parts in sections:
        size, state = sum(map(len, parts)), xxhash.xxh3_128()
        for part in parts:
            state.update(part)
        entries.append(_ENTRY.pack(name.encode(), at, size, state.digest()))
        at = _aligned(at + size)
    head = _HEAD.pack(MAGIC, VERSION, len(sections), fingerprint.encode()) + b"".join(entries)
    file.write(head + xxhash.xxh3_128_digest(head))
    at = table_end
    for _, parts in sections:
        file.write(bytes(_aligned(at) - at))
        for part in parts:
            file.write(part)
        at = _aligned(at) + sum(map(len, parts))


def _held(body: Body) -> Body:
    """A section of its own, or, if it is large, as it lies in the file."""
    return bytes(body) if len(body) < LARGE else body


def load_program(path: str | os.PathLike[str], *, check: bool = True) -> Program:
    """Read a .npu file; whatever is wrong with it is a ModelError that names the file."""
    return Program.from_bytes(file_bytes(path), file=str(path), check=check)


def file_bytes(path: str | os.PathLike[str]) -> Body:
    """All of a .npu file; a large one is mapped."""
    try:
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size < LARGE:
                return file.read()
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(
            f"cannot read the program: {error.strerror}", where=Where(file=str(path)), code="NF-PROGRAM-003",
        ) from error


def fingerprint(target: Target) -> str:
    """The digest of what a program's commands depend on: everything but the target's
    name, description and host."""
    return digest(_tables(target, MACHINE))


def target_meta(target: Target) -> dict[str, Any]:
    """The target as `meta["target"]`: what the simulator and the fingerprint read, and the host's rates."""
    return _tables(target, (*MACHINE, "host"))


def _tables(target: Target, names: tuple[str, ...]) -> dict[str, Any]:
    """How cores are used is the program's, not the machine's. Keys of `WITHOUT` are left out where they are
    empty: programs for machines without what they state are those of before there were such keys."""
    whole = canonical(target)
    return {
        name: {k: v for k, v in whole[name].items() if k != "cores_mode" and (v or k not in WITHOUT)}
        for name in names
    }


def _stated(target: Target, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The machine's tables without keys that a program does not state, where they say nothing."""
    usual, own = _tables(Target(), MACHINE), _tables(target, MACHINE)
    return {
        name: {k: v for k, v in own[name].items() if k in theirs.get(name, ()) or v != usual[name].get(k)}
        for name in MACHINE
    }


def without_group_products(target: Target) -> Target:
    """The machine that a program without such commands needs."""
    return replace(target, numerics=replace(target.numerics, group_products=()))


def target_of(table: Any, expected: str) -> Target:
    """The target from a program's metadata, checked against the fingerprint in the header. Keys that came
    after the program are those of a machine without what they state."""
    if not isinstance(table, dict):
        raise ModelError("the program does not describe its target", code="NF-PROGRAM-004")
    target, found = read(Target, table)
    if target is None or found:
        raise ModelError(
            f"the program's target is malformed: {found[0].message if found else 'unreadable'}",
            code="NF-PROGRAM-005",
        )
    if digest({name: table.get(name) for name in MACHINE}) != expected:
        raise ModelError(
            "the program's target is not the one of its fingerprint", code="NF-PROGRAM-006",
            because="its tables were changed, or another version of npuflow wrote it",
            hint="build the program again",
        )
    if not (1 <= target.compute.cores <= 64 and 1 <= target.dma.channels <= 7):
        raise ModelError(
            "the program's target has an impossible number of cores or DMA channels", code="NF-PROGRAM-007",
        )
    return target


def instances_of(program: Program) -> int:
    """How many inferences run at the same time, each on cores of its own."""
    return int(program.meta.get("instances", 1))


def require_target(program: Program, target: Target, name: str) -> None:
    """Refuse to run a program on a machine that it was not compiled for, with the
    keys in which the two differ."""
    one = replace(target.compute, cores=target.compute.cores // instances_of(program))
    machine, theirs = replace(target, compute=one), program.meta["target"]
    if "group_products" not in theirs.get("numerics", {}):
        target, machine = without_group_products(target), without_group_products(machine)
    if program.target_fingerprint == digest(_stated(machine, theirs)):
        return
    own = target_meta(target)
    keys = [(t, k) for t in MACHINE for k in own[t] if theirs.get(t, {}).get(k) != own[t][k]]
    reported = [f"{t}.{k} is {theirs.get(t, {}).get(k)}, {name} has {own[t][k]}" for t, k in keys[:4]]
    more = f", and {len(keys) - 4} more" if len(keys) > 4 else ""
    raise ModelError(
        f"the program was not compiled for {name}", because="; ".join(reported) + more,
        hint=f"build it with --set target={name}", code="NF-PROGRAM-008",
    )


def json_bytes(value: Any) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _aligned(at: int) -> int:
    return -(-at // ALIGN) * ALIGN


def sections_of(data: memoryview, where: Where, check: bool) -> tuple[str, dict[str, memoryview]]:
    """Fingerprint and section bodies, by the header and the table, whose every number
    is checked against the file."""

    def fail(message: str, hint: str = "build the program again") -> ModelError:
        return ModelError(message, where=where, code="NF-PROGRAM-009", hint=hint)

    other = "a program is the .npu file of a build"

    if len(data) < _HEAD.size:
        raise fail("not an npuflow program: shorter than its header", other)
    magic, version, count, name = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise fail("not an npuflow program: wrong magic", other)
    if version != VERSION:
        raise fail(f"program format {version}; this npuflow reads format {VERSION}")
    end = _HEAD.size + count * _ENTRY.size
    if count > MAX_SECTIONS or end + 16 > len(data):
        raise fail(f"a table of {count} sections does not fit the file of {len(data)} bytes")
    if check and xxhash.xxh3_128_digest(data[:end]) != data[end : end + 16]:
        raise fail("the header or section table is damaged (its digest differs)")
    parts: dict[str, memoryview] = {}
    at = end + 16
    for i in range(count):
        raw, offset, size, want = _ENTRY.unpack_from(data, _HEAD.size + i * _ENTRY.size)
        try:
            title = raw.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise fail(f"section {i} has an unreadable name") from None
        if offset != _aligned(at) or offset + size > len(data) or title in parts:
            raise fail(f"section {i} ({title!r}) is misplaced, cut off or repeated")
        if any(data[at:offset]):
            raise fail(f"bytes before section {title!r} are not zero")
        body = data[offset : offset + size]
        if check and xxhash.xxh3_128_digest(body) != want:
            raise fail(f"section {title!r} is damaged (its digest differs)")
        parts[title] = body
        at = offset + size
    if at != len(data):
        raise fail(f"{len(data) - at} bytes after the last section")
    try:
        return name.rstrip(b"\0").decode("ascii"), parts
    except UnicodeDecodeError:
        raise fail("the target fingerprint is unreadable") from None


def _meta(body: memoryview, where: Where) -> dict[str, Any]:
    try:
        meta = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"the program's metadata is not JSON: {error}", where=where, code="NF-PROGRAM-010",
        ) from None
    if not isinstance(meta, dict) or "target" not in meta:
        raise ModelError(
            "the program's metadata is not an object with a target", where=where, code="NF-PROGRAM-011",
        )
    return meta


def _numbered(parts: dict[str, memoryview], kind: str, where: Where) -> list[memoryview]:
    """Sections kind0, kind1, ... in order, taken out of `parts`."""
    found: list[memoryview] = []
    while (name := f"{kind}{len(found)}") in parts:
        found.append(parts.pop(name))
    return found
