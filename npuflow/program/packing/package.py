"""Packs several programs into one file that shares external memory.
Constants lie side by side, equal blocks once, and the activations of all in the same place, as one runs at a
time.

The file is a program's container (see container.py) with the section `set`, {"networks": [names]} and, where
outputs of networks are inputs of others, "chain": {network: {input: [network, output]}}, the
sections `const` of all and, where graphs are kept, `arrays` (their constants, each once: see
program/graph_section.py), and of network k the sections "k/meta", "k/core0".., "k/taps", "k/graph" (without
its constants), "k/host0"..
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, InternalError, ModelError, UsageError, Where, meant
from npuflow.hw.encode import Words, decode_all, layout
from npuflow.hw.region import CONST
from npuflow.program.access import regions
from npuflow.program.container import (
    PROVENANCE,
    SEAL,
    SET,
    Body,
    Program,
    file_bytes,
    json_bytes,
    load_program,
    sections_of,
    written,
)
from npuflow.program.graph_section import joined, shared
from npuflow.program.repeats import expanded
from npuflow.program.seal import Key, check_sealed

Ints = npt.NDArray[np.int64]
Chain = Mapping[str, Mapping[str, tuple[str, str]]]
ARRAYS = "arrays"                         # the section of the constants that kept graphs share
MARK = "#"      # before the name of a network, in "FILE.npu#NETWORK"


@dataclass(frozen=True)
class Package:
    """Programs by name; the constants of each are those of all. `chain`: by network its inputs that are
    outputs of networks before it."""

    networks: Mapping[str, Program]
    chain: Chain = field(default_factory=dict)

    @property
    def const(self) -> Body:
        return next(iter(self.networks.values())).const

    @property
    def data_bytes(self) -> int:
        """Of activations in external memory: of the network that takes most."""
        return max(int(program.meta["data_bytes"]) for program in self.networks.values())

    def network(self, name: str) -> Program:
        """One of them; an unknown name is an error that lists them."""
        if name not in self.networks:
            known = tuple(self.networks)
            raise UsageError(
                f'the file has no network "{name}"', because=f"its networks: {', '.join(known)}",
                hint=meant(name, known), code="NF-USAGE-160",
            )
        return self.networks[name]

    def of_shapes(self, shapes: Mapping[str, Sequence[int]]) -> Program:
        """The network that takes inputs of these shapes; where there is none, DataError lists those known."""
        ports = {
            name: {entry["name"]: tuple(entry["shape"]) for entry in one.meta["inputs"]}
            for name, one in self.networks.items()
        }
        for name, own in ports.items():
            if own == {port: tuple(shape) for port, shape in shapes.items()}:
                return self.networks[name]
        raise unlisted(shapes, list(ports.values()))

    def to_bytes(self) -> bytes:
        heads, arrays = shared([program.graph_bytes for program in self.networks.values()])
        chain = {"chain": self.chain} if self.chain else {}
        listed = json_bytes({"networks": list(self.networks), **chain})
        sections: list[tuple[str, Body]] = [(SET, listed), ("const", self.const)]
        sections += [(ARRAYS, arrays)] if any(heads) else []
        for k, (head, one) in enumerate(zip(heads, self.networks.values(), strict=True)):
            program = replace(one, graph_bytes=head)
            sections += [(f"{k}/{name}", body) for name, body in program.sections() if name != "const"]
        return written(next(iter(self.networks.values())).target_fingerprint, sections)

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, file: str | None = None) -> Package:
        """Parse a file of several programs; whatever is wrong with it is a ModelError."""
        where = Where(file=file)
        target, parts = sections_of(memoryview(data), where, True)
        parts = {name: body for name, body in parts.items() if name not in (PROVENANCE, SEAL)}
        try:
            stated = json.loads(bytes(parts.pop(SET)))
            names = stated["networks"]
            if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise ValueError("names")
            chain = _chain(stated.get("chain", {}), names)
            const = parts.pop("const")
            for name in parts if (arrays := bytes(parts.pop(ARRAYS, b""))) else ():
                if name.endswith("/graph"):
                    parts[name] = memoryview(joined(bytes(parts[name]), arrays))
        except (AttributeError, KeyError, TypeError, ValueError, struct.error):
            raise ModelError(
                "the file's table of networks is malformed", where=where, hint="pack the programs again",
                code="NF-PROGRAM-061",
            ) from None
        found = {}
        for k, name in enumerate(names):
            own = {key.partition("/")[2]: body for key, body in parts.items() if key.startswith(f"{k}/")}
            parts = {key: body for key, body in parts.items() if not key.startswith(f"{k}/")}
            found[name] = Program.of_sections(target, {**own, "const": const}, where)
        if parts:
            raise ModelError(f"unknown section {sorted(parts)[0]!r}", where=where, code="NF-PROGRAM-001")
        return cls(found, chain)


def _chain(stated: Any, names: Sequence[str]) -> Chain:
    """A table of inputs that are outputs of networks before their own; ValueError where it is none."""
    found = {}
    for name, inputs in stated.items():
        known = names[: names.index(name)]
        found[name] = {key: (source, output) for key, (source, output) in inputs.items()}
        if not all(source in known and isinstance(out, str) for source, out in found[name].values()):
            raise ValueError("chain")
    return found


def unlisted(given: Mapping[str, Sequence[int]], known: Sequence[Mapping[str, Sequence[int]]]) -> DataError:
    """The fault of inputs that none of the programs takes."""
    return DataError(
        f"the program was not built for {_text(given)}",
        because=f"its shapes: {'; '.join(map(_text, known))}",
        hint="bring the inputs to one of them, or add the shape to [model] shapes and build again",
        code="NF-DATA-160",
    )


def _text(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())


def packed(programs: Mapping[str, Program], chain: Chain | None = None) -> Package:
    """Programs of one target as one package; their commands load constants from where these now are. `chain`:
    inputs that are outputs of programs before their own."""
    (first, *others) = programs.items()
    for name, program in others:
        if program.target_fingerprint != first[1].target_fingerprint:
            raise UsageError(
                f'"{name}" and "{first[0]}" are not compiled for the same target',
                hint="build both with the same target, and with the same [target] keys", code="NF-USAGE-161",
            )
    pool, known = bytearray(), dict[bytes, int]()
    moved = {}
    for name, program in programs.items():
        align = program.target.memory.burst
        starts, places = [], []
        for low, high in _blocks(program):
            block = bytes(program.const[low:high])
            if block not in known:
                pool += bytes(-len(pool) % align)
                known[block] = len(pool)
                pool += block
            starts.append(low)
            places.append(known[block])
        moved[name] = program, np.array(starts, np.int64), np.array(places, np.int64)
    _require_room(programs, len(pool))
    const = bytes(pool)
    return Package({
        name: replace(
            _relocated(program, starts, places), const=const,
            meta={**program.meta, "name": name, "const_bytes": len(const)},
        )
        for name, (program, starts, places) in moved.items()
    }, chain or {})


def _require_room(programs: Mapping[str, Program], const: int) -> None:
    room = min(program.target.memory.external_bytes for program in programs.values())
    data = max(int(program.meta["data_bytes"]) for program in programs.values())
    if const + data > room:
        raise UsageError(
            "the networks do not fit external memory together",
            because=f"constants of {const} bytes and activations of {data} are more than {room}",
            hint="fewer networks", code="NF-USAGE-162",
        )


def _blocks(program: Program) -> list[tuple[int, int]]:
    """Bytes of constants that commands load, at any index, joined where two loads overlap."""
    first = program.at({one["input"]: 0 for one in program.meta.get("indices", ())})
    spans = sorted({
        region.span for core in (*program.decoded, *first.decoded) for command in core
        for region in regions(command) if region.space == CONST
    })
    found: list[tuple[int, int]] = []
    for low, high in spans:
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _relocated(program: Program, starts: Ints, places: Ints) -> Program:
    """With commands that load constants from where they now are, all and as they are stored. Where blocks
    that went on by one step lie elsewhere apart, rounds are written out."""
    def moved(every: Sequence[Words]) -> tuple[Words, ...]:
        return tuple(_moved(words, core, starts, places) for core, words in enumerate(every))

    commands, stored = moved(program.commands), moved(program.stored)
    kept = all(np.array_equal(expanded(w, c), commands[c]) for c, w in enumerate(stored))
    if not kept and program.meta.get("indices"):
        raise InternalError("blocks at an index load constants of several places", code="NF-INTERNAL-096")
    return replace(program, commands=commands, stored=stored if kept else ())


def _moved(words: Words, core: int, starts: Ints, places: Ints) -> Words:
    words = words.copy()
    for i, command in enumerate(decode_all(words, core=core)):
        if command.fields.get("space") == "CONST":
            address = command.number("external")
            # rows may be walked backwards: the block is that of the lowest byte
            low = min(r.span[0] for r in regions(command) if r.space == CONST)
            block = int(np.searchsorted(starts, low, "right")) - 1
            at = {field.name: word for field, word in layout(command.opcode)}["external"]
            words[i, at] = address - starts[block] + places[block]
    return words


def load_package(path: str | os.PathLike[str]) -> Package:
    """Read a file of several programs."""
    return Package.from_bytes(file_bytes(path), file=str(path))


def load_file(path: str | os.PathLike[str], keys: Sequence[Key] = ()) -> Program | Package:
    """What a .npu file holds: a program, or several. `keys`: public keys, one of which must have sealed
    it."""
    data = file_bytes(path)
    if keys:
        check_sealed(data, keys, Where(file=str(path)))
    return of_bytes(data, str(path))


def of_bytes(data: Body, file: str | None = None) -> Program | Package:
    """What the bytes of a .npu file hold."""
    try:
        return Program.from_bytes(data, file=file)
    except ModelError as error:
        if error.code != "NF-PROGRAM-060":
            raise
    return Package.from_bytes(data, file=file)


def programs_of(path: str | os.PathLike[str]) -> Mapping[str, Program]:
    """The programs of a .npu file, or of "FILE.npu#NETWORK", by name; a program alone has the name ""."""
    if MARK in str(path) and not Path(path).exists():
        return {"": load_network(path)}
    loaded = load_file(path)
    return loaded.networks if isinstance(loaded, Package) else {"": loaded}


def load_network(path: str | os.PathLike[str], keys: Sequence[Key] = ()) -> Program:
    """The program of a file; with "FILE.npu#NETWORK" one of a file of several, with "FILE.npu#T=100" what a
    program of any length runs for 100 steps, with "FILE.npu#position=100" what one of a language model runs
    behind 100 tokens. `keys` as for `load_file`."""
    file, mark, name = str(path).rpartition(MARK)
    if not mark or Path(path).exists():
        return load_program(path)
    several = MARK in file and not Path(file).exists()
    found = load_network(file, keys) if several else load_file(file, keys)
    if isinstance(found, Package):
        return found.network(name)
    known = _numbers(found.meta)
    if several and not known:
        raise UsageError(
            f'"{name}" chooses nothing of the program', because="it takes no index or length",
            hint=f'"{file}"', code="NF-USAGE-400",
        )
    if not known:
        return load_package(file).network(name)
    dim, _, count = name.partition("=")
    one, least, most = known.get(dim, ("", 1, 0))
    if not count.isdecimal() or not least <= int(count) <= most:
        raise UsageError(
            f'the program has no "{name}"',
            hint="; ".join(f"{dim}={low} to {dim}={high}" for dim, (_, low, high) in known.items()),
            code="NF-USAGE-260",
        )
    return found.at({one: int(count)})


def _numbers(meta: Mapping[str, Any]) -> dict[str, tuple[str, int, int]]:
    """What a program reads before it runs: by name the input, the least and the most."""
    lengths = {
        one["input"].rpartition("<=")[0]: (one["input"], one["least"], one["most"])
        for one in meta.get("lengths", ())
    }
    return lengths | {one["input"]: (one["input"], 0, one["most"]) for one in meta.get("indices", ())}
