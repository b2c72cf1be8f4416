"""The TFLite file of a recipe or of a built program, and how it compares with the program in LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuflow.cli._exported import graph_of
from npuflow.cli._slow import Working


def write(source: Path, output: Path, check: int, sets: Sequence[str], cache: Path | None) -> list[str]:
    """Write the file; what to report of it."""
    from npuflow.engine.export_c.network import network_of
    from npuflow.engine.export_c.vectors import random_samples
    from npuflow.engine.export_tflite.export import to_tflite
    from npuflow.engine.export_tflite.judge import judge

    graph, numerics = graph_of(source, sets, cache, "tflite")
    with Working("writing TFLite"):
        model = to_tflite(graph, source.stem)
    output.write_bytes(model.model)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(model.operators.items()))
    reported = [f"wrote {output}: {len(model.model)} bytes; {counts}"]
    for side, ends in (("input", model.inputs), ("output", model.outputs)):
        for end in ends:
            codes, shape = end.tensor.codes, "x".join(map(str, end.tensor.shape))
            layout = ", channels last" if end.turned else ""
            kind = "indices" if codes is None else f"scale {codes.scale[0]:.6g}, zero point {codes.zero[0]}"
            reported.append(f"{side} {end.name}: {shape}{layout}, {end.tensor.dtype}, {kind}")
    if check:
        with Working(f"running {check} samples here and in LiteRT"):
            found = judge(model, random_samples(network_of(graph), numerics, check))
        reported.append(
            f"LiteRT on {check} random samples: {found.differ} of {found.codes} codes differ from the "
            f"program's, by {found.worst} at most"
        )
    return reported
