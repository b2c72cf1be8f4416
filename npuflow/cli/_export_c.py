"""The C program of a recipe or of a built program: its files written, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuflow.base.wording import counted
from npuflow.cli._exported import graph_of
from npuflow.cli._slow import Working


def write(
    source: Path,
    folder: Path,
    *,
    name: str | None,
    samples: int,
    large: float,
    sets: Sequence[str],
    cache: Path | None,
) -> list[str]:
    """Write the files; what to report of them."""
    from npuflow.whole.export_c import compiler, files, vectors
    from npuflow.whole.export_c.network import network_of
    from npuflow.whole.export_c.program import identifier, program_of

    graph, numerics = graph_of(source, sets, cache, "c")
    with Working("writing C and its test vector"):
        network = network_of(graph)
        program = program_of(network, numerics, identifier(name or source.stem).lower())
        found = vectors.random_samples(network, numerics, samples)
        written = files.write(program, folder, found, int(large * (1 << 20)))
    taken = f"constants {program.constant_bytes} bytes, arena {program.arena} bytes"
    reported = [
        f"wrote {folder}: {', '.join(p.name for p in written)}",
        f"{counted(program.layers, 'layer')}; {taken} ({program.bound} live at once)",
    ]
    with Working("compiling it for its size"):
        built = compiler.measured(folder, program.name)
    if built is None:
        reported.append(
            "note: no C compiler (CC, cc, gcc or clang) was found, so code and stack are not known"
        )
    else:
        reported.append(f"code {built.code} bytes, stack at most {built.stack} bytes ({built.compiler})")
    reported.append(f"test it: make -C {folder} test")
    return reported
