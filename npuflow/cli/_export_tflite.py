"""The TFLite file of a recipe or of a built program, and how it compares with the program in LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import ModelError
from npuflow.cli._exported import graph_of
from npuflow.cli._files import write_file
from npuflow.cli._slow import Working
from npuflow.hw.target import Numerics

if TYPE_CHECKING:
    from npuflow.export_tflite.export import LiteModel
    from npuflow.ir.graph import Graph


MOST = 6  # layers that an error lists
SAMPLES = 2  # that a file is checked with unless said otherwise


def write(
    source: Path, output: Path, check: int | None, sets: Sequence[str], cache: Path | None,
    unroll: bool = False,
) -> list[str]:
    """Write the file, once LiteRT has computed what the program computes; what to report of it. `check`:
    samples; None: some, where LiteRT is installed. `unroll`: loops step after step."""
    from npuflow.export_tflite.export import to_tflite
    from npuflow.ir.unroll import unnested, written_out

    graph, numerics = graph_of(source, sets, cache, "tflite")
    graph = written_out(graph) if unroll else unnested(graph)
    with Working("writing TFLite"):
        model = to_tflite(graph, source.stem)
    told = []
    if check is None and find_spec("ai_edge_litert") is None:
        told = ["note: not checked against the program: pip install ai-edge-litert"]
    elif check != 0:
        told = [_checked(model, graph, numerics, SAMPLES if check is None else check)]
    write_file(output, model.model)
    return [*_described(model, output), *told]


def _described(model: LiteModel, output: Path) -> list[str]:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(model.operators.items()))
    reported = [f"wrote {output}: {len(model.model)} bytes; {counts}"]
    for side, ends in (("input", model.inputs), ("output", model.outputs)):
        for end in ends:
            codes, shape = end.tensor.codes, "x".join(map(str, end.tensor.shape))
            layout = ", channels last" if end.turned else ""
            kind = "indices" if codes is None else f"scale {codes.scale[0]:.6g}, zero point {codes.zero[0]}"
            reported.append(f"{side} {end.name}: {shape}{layout}, {end.tensor.dtype}, {kind}")
    return reported


def _checked(model: LiteModel, graph: Graph, numerics: Numerics, samples: int) -> str:
    """How LiteRT and the program compare; a ModelError where a layer computes something else."""
    from npuflow.export_tflite.judge import judge, unequal
    from npuflow.whole.export_c.network import network_of
    from npuflow.whole.export_c.vectors import random_samples

    what = f"{samples} random sample{'' if samples == 1 else 's'}"
    with Working(f"running {what} here and in LiteRT"):
        drawn = random_samples(network_of(graph), numerics, samples, interpreted=0)
        found = judge(model, drawn)
    if found.worst > 1 or found.others:
        with Working("comparing layer by layer"):
            wrong = unequal(graph, numerics, drawn[0][0])
        if wrong:
            listed = [f"{name}: {one}" for name, one in list(wrong.items())[:MOST]]
            more = f"; and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
            raise ModelError(
                f"in LiteRT, layers of the file differ from the program: {'; '.join(listed)}{more}",
                because="each was given the program's own codes, so that rounding does not explain it",
                hint="npuflow export c writes the same integers; --check 0 writes the file all the same",
                code="NF-PROGRAM-124",
            )
    counts = [f"{found.differ} of {found.codes} codes"] if found.codes else []
    counts += [f"{found.others} of {found.indices} indices"] if found.indices else []
    by = f", codes by {found.worst} at most" if found.codes else ""
    return f"LiteRT on {what}: {' and '.join(counts)} differ from the program's{by}"
