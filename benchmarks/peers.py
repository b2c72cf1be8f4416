r"""Quantisers that anyone can install, on the networks and data of recipes/zoo, beside default builds.

    pip install --no-deps --target PACKAGES \
        $(grep -rhoP 'pkg:\K[^:"]+==[^:]+' recipes/zoo | sort -u) scikit-image==0.26.0
    pip install nncf        # amd-quark, aimet-onnx, nvidia-modelopt[onnx]: each in an environment of its own
    PYTHONPATH=PACKAGES python benchmarks/peers.py OUT NETWORK ...      # one OUT for all of them

Each quantises the float network as npuflow reads it (ONNX), with all calibration samples, and is scored by
the recipe's metric on all evaluation samples, run by onnxruntime on one thread. onnxruntime:
quant_pre_process, then quantize_static: QDQ, per channel, int8, minima and maxima; W4 the same with weights
of 4 bits. NNCF: nncf.quantize with its defaults. Quark: its configuration A8W8. AIMET: QuantizationSimModel
with its defaults (per channel, minima and maxima), as QDQ; W4 the same with weights of 4 bits. ModelOpt:
quantize in its mode int8 with its defaults, without 16-bit floats beside. npuflow: the program for edge-4t of
the recipe as it is; W4 with `quantize.weights = { bits = 4 }` and nothing else. Seconds are of the processor,
all processes, cold caches. Rows are kept in OUT; one that is there is not made again, nor one whose package
is not there.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import study
from onnx import version_converter

from npuflow.checks import evaluate as scoring
from npuflow.cli._components import graph_of
from npuflow.cli._engine import stages
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, plan_build
from npuflow.input.data.read import samples
from npuflow.ir.graph import Graph
from npuflow.onnx.export import session_model
from npuflow.stages.component_outputs import items_of
from npuflow.stages.evaluate import _Float, scored

MEANING = """\
A cell: score, SQNR of the first output, seconds of the processor for quantising (for npuflow: the whole
build, with searches, program, simulation and checks)."""
RECIPES, TARGET = study.ROOT / "recipes" / "zoo", "edge-4t"
Feed = dict[str, np.ndarray]
Row = dict[str, Any]


@dataclass
class Task:
    """A network with its data: the float graph, what calibrates, what scores."""

    name: str
    graph: Graph
    calibration: list[Feed]
    evaluate: scoring.Evaluate
    files: Any

    @classmethod
    def of(cls, name: str, cache: Path) -> Task:
        recipe, settings = load(RECIPES / f"{name}.toml", lenient=True), Settings(cache=cache)
        plan = plan_build(recipe, stages(), settings)
        graph = graph_of(plan, recipe, settings)
        types = {given: graph.type(given) for given in graph.inputs}
        listed = items_of(scoring.found(plan["samples"].listing_configs["data"]))
        read = samples({key: (item.files, item.detail["read"]) for key, item in listed.items()})
        tables = plan["evaluate"].listing_configs
        files = items_of(scoring.labelled(tables["evaluate"], tables["data"]))
        feeds = [sample.feed(types) for _, sample in read if not sample.broken]
        return cls(name, graph, feeds, plan["evaluate"].configs["evaluate"], files)

    def score(self, model: onnx.ModelProto) -> Row:
        """By the recipe's metric, in onnxruntime."""
        run = _Float(model.SerializeToString(), session)
        return figures(scored(self.files, self.graph, 1.0, run, self.evaluate))


def session(model: Any) -> Any:
    """One thread, and without the rewrite that moves roundings past reshapes and pools: of opset 21 it makes
    nodes that onnxruntime itself then refuses ("..._q ... output_dtype INT8 does not match")."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, disabled_optimizers=["QDQPropagationTransformer"])


def figures(score: scoring.Score) -> Row:
    watch = next(iter(score.figures))
    return {
        "metric": watch, "score": score.figures[watch], "float": score.beside.get(watch),
        "sqnr": next(iter(score.sqnr_db.values()), None),
    }


def reader(task: Task) -> Any:
    """All calibration samples, as onnxruntime's tools read them."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows: Iterator[Feed] = iter(task.calibration)

        def get_next(self) -> Feed | None:
            return next(self.rows, None)

        def rewind(self) -> None:
            self.rows = iter(task.calibration)

    return Reader()


def by_onnxruntime(task: Task, folder: Path, bits: int) -> onnx.ModelProto:
    """Static quantisation as its guide has it: preparation, QDQ, per channel, minima and maxima."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready, made = folder / "ready.onnx", folder / "made.onnx"
    try:
        quant_pre_process(source(task, folder), str(ready))
    except Exception:  # of some graphs its symbolic shapes know nothing
        quant_pre_process(source(task, folder), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready), str(made), reader(task), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt4 if bits == 4 else QuantType.QInt8,
    )
    return onnx.load(made)


def by_nncf(task: Task, folder: Path, bits: int) -> onnx.ModelProto:
    """Post-training quantisation with its defaults."""
    import nncf

    # onnxruntime rewrites its models of opset 21 into what it refuses (`session`)
    model = onnx.load(source(task, folder))
    with suppress(RuntimeError):          # an operator that the converter has no older form of
        model = version_converter.convert_version(model, 17)
    made: onnx.ModelProto = nncf.quantize(
        model, nncf.Dataset(task.calibration), subset_size=len(task.calibration)
    )
    return made


def by_quark(task: Task, folder: Path, bits: int) -> onnx.ModelProto:
    """Its configuration of 8 bits for codes and weights."""
    from quark.onnx import A8W8_QCONFIG, ModelQuantizer

    made = folder / "made.onnx"
    config = deepcopy(A8W8_QCONFIG)      # it is changed by what it configures
    ModelQuantizer(config).quantize_model(source(task, folder), str(made), reader(task))
    return onnx.load(made)


def by_aimet(task: Task, folder: Path, bits: int) -> onnx.ModelProto:
    """A simulated model with its defaults, ranges of all samples, as QDQ."""
    import aimet_onnx

    sim = aimet_onnx.QuantizationSimModel(
        onnx.load(source(task, folder)), param_type=f"int{bits}", activation_type="int8"
    )
    sim.compute_encodings(task.calibration)
    made: onnx.ModelProto = sim.to_onnx_qdq()
    return made


def by_modelopt(task: Task, folder: Path, bits: int) -> onnx.ModelProto:
    """Its mode int8; what it leaves in floats stays float32, as onnxruntime's processor code has it."""
    from modelopt.onnx.quantization import quantize

    made, first = folder / "made.onnx", task.calibration[0]
    rows = {name: np.concatenate([feed[name] for feed in task.calibration]) for name in first}
    quantize(
        source(task, folder), quantize_mode="int8", calibration_data=rows,
        output_path=str(made), high_precision_dtype="fp32", calibration_eps=["cpu"],
    )
    return onnx.load(made)


def source(task: Task, folder: Path) -> str:
    """The float network as npuflow reads it, as a file."""
    model = session_model(task.graph)
    assert isinstance(model, bytes), "the small networks of the zoo are one file"
    path = folder / "float.onnx"
    path.write_bytes(model)
    return str(path)


Peer = Callable[[Task, Path, int], onnx.ModelProto]
PEERS: dict[str, tuple[Peer, int, str]] = {         # the last: what is installed, as pip names it
    "onnxruntime": (by_onnxruntime, 8, "onnxruntime"), "NNCF": (by_nncf, 8, "nncf"),
    "Quark": (by_quark, 8, "amd-quark"), "AIMET": (by_aimet, 8, "aimet-onnx"),
    "ModelOpt": (by_modelopt, 8, "nvidia-modelopt"),
    "onnxruntime W4": (by_onnxruntime, 4, "onnxruntime"), "AIMET W4": (by_aimet, 4, "aimet-onnx"),
}
OWN = {"npuflow": (), "npuflow W4": ("--set", "quantize.weights={bits=4}")}


def spent() -> float:
    """Seconds of the processor, of this process and its children."""
    return sum(
        one.ru_utime + one.ru_stime
        for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def peer_row(task: Task, name: str) -> Row:
    make, bits, package = PEERS[name]
    with TemporaryDirectory() as folder:
        begun = spent()
        try:
            made = make(task, Path(folder), bits)
            seconds = spent() - begun
            return {**task.score(made), "seconds": seconds, "version": f"{package} {version(package)}"}
        except Exception as fault:  # whatever a peer raises is its row
            first = next(iter(str(fault).splitlines()), "")
            said = f"{type(fault).__name__}: {first[:200]}"
            return {"failed": said, "version": f"{package} {version(package)}"}


def own_row(name: str, network: str, out: Path) -> Row:
    with TemporaryDirectory(dir=out) as folder:
        begun = spent()
        words = [sys.executable, "-m", "npuflow", "zoo", str(RECIPES), "--only", network, "--targets", TARGET]
        words += ["--json", "--cache", f"{folder}/cache", "--out", f"{folder}/page", *OWN[name]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        row = next(line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "row")
        if row["status"] != "built":
            return {"failed": row["notes"][0]}
        return {
            "metric": row["score_name"], "score": row["score"], "float": row["float"],
            "sqnr": row["figures"].get("evaluate.sqnr_db", row["score"]), "seconds": spent() - begun,
            "warned": bool(row["notes"]),
        }


def rows(networks: list[str], out: Path) -> dict[str, dict[str, Row]]:
    """By network and column. What is in OUT is not made again."""
    file = out / "peers.json"
    known: dict[str, dict[str, Row]] = json.loads(file.read_text()) if file.is_file() else {}
    for network in networks:
        mine = known.setdefault(network, {})
        task = None
        for name in (*PEERS, *OWN):
            if name in mine or not installed(name):
                continue
            if name in OWN:
                mine[name] = own_row(name, network, out)
            else:
                task = task or Task.of(network, out / "cache")
                mine[name] = peer_row(task, name)
            print(network, name, mine[name], file=sys.stderr, flush=True)
            file.write_text(json.dumps(known, indent=1))
    return known


def installed(name: str) -> bool:
    try:
        return name in OWN or bool(version(PEERS[name][2]))
    except PackageNotFoundError:
        return False


def table(known: dict[str, dict[str, Row]]) -> Iterator[str]:
    names = [*PEERS, *OWN]
    yield f"| network | score | float | {' | '.join(names)} |"
    yield f"| --- | --- | ---: | {' | '.join('---:' for _ in names)} |"
    for network, mine in known.items():
        one = next(row for row in mine.values() if "metric" in row)
        cells = [cell(mine.get(name)) for name in names]
        shown = "-" if one["float"] is None else f"{one['float']:.3f}"
        yield f"| {network} | {one['metric']} | {shown} | {' | '.join(cells)} |"


def cell(row: Row | None) -> str:
    if row is None:
        return ""
    if "failed" in row:
        return "failed"
    level = "" if row["sqnr"] is None else f"; {row['sqnr']:.1f} dB"
    warned = "; warned" if row.get("warned") else ""
    return f"{row['score']:.3f}{level}; {row['seconds']:.0f} s{warned}"


def counts(known: dict[str, dict[str, Row]]) -> Iterator[str]:
    """How often each is within a point of the float network, and how often npuflow's drop is the smallest."""
    for name in (*PEERS, *OWN):
        drops = [d for mine in known.values() if (d := drop(mine.get(name))) is not None]
        close = sum(one <= 0.01 for one in drops)
        failed = sum("failed" in mine.get(name, {}) for mine in known.values())
        yield f"- {name}: {close} of {len(drops)} within a point of the float network; {failed} failed."


def drop(row: Row | None) -> float | None:
    if row is None or "failed" in row or row["float"] is None:
        return None
    return float(row["float"] - row["score"])


def main() -> None:
    out, *networks = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    known = rows(networks, out)
    made = (row["version"] for mine in known.values() for row in mine.values() if "version" in row)
    versions = ", ".join(dict.fromkeys(made))
    faults = [
        f"- {network}, {name}: {row['failed']}"
        for network, mine in known.items() for name, row in mine.items() if "failed" in row
    ]
    parts = [
        "# Other quantisers on the networks of the zoo", f"{versions}; npuflow's programs are for {TARGET}.",
        "\n".join(counts(known)),
        MEANING,
        "\n".join(table(known)), *(["\n".join(["## What failed", "", *faults])] if faults else []),
    ]
    study.write(__file__, "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
