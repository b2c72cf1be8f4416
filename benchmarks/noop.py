"""A build with nothing to do: ten stages, a 100 MB model, 1,000 sample files; beside other build tools.

    python benchmarks/noop.py [--peers VENV] [--rounds 9]

VENV is a virtual environment with pytask, dvc, snakemake and ninja; those that are missing are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STEPS, SAMPLES, MODEL_BYTES = 10, 1000, 100 << 20

KINDS = '''
"""What the stages hand on."""
from collections.abc import Iterator
from dataclasses import dataclass
from npuflow.base.tables import Config, FilePath, Location
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, stage

@dataclass(frozen=True)
class Value(Artifact):
    value: int = 0
    def save(self, folder): folder.json("value", self.value)
    @classmethod
    def load(cls, folder): return cls(folder.json("value"))

class Model(Value): ...
class Sample(Value): ...
class Last(Value):
    def products(self): return {"value": "value"}
@dataclass(frozen=True)
class Net(Config):
    path: FilePath
@dataclass(frozen=True)
class Data(Config):
    source: Location
'''
FIRST = """
def listing(net: Net) -> Listing:
    return {"net": Item((net.path.path,))}
@stage(files=listing)
def s0(files: Files) -> Model:
    return Model(files.only().stat().st_size)
"""
FAN = """
def listing(data: Data) -> Listing:
    place = data.source.path
    return {p.name: Item((p,)) for p in sorted(place.parent.glob(place.name))}
@stage(over="files", files=listing, batch=100)
def s1(files: Files) -> Iterator[tuple[str, Sample]]:
    for name, item in files.items():
        yield name, Sample(len(item.files[0].read_bytes()))
"""
MERGE = """
@stage
def s2(s1: Items[Sample], s0: Model) -> Value2:
    return Value2(s0.value + sum(one.value for one in s1.values()))
"""
NEXT = "@stage\ndef s{n}(before: Value{m}) -> {kind}:\n    return {kind}(before.value + 1)\n"


def project(root: Path) -> None:
    """Model, samples, a package of ten stages and the recipe."""
    (root / "samples").mkdir()
    (root / "model.bin").write_bytes(os.urandom(MODEL_BYTES))
    for index in range(SAMPLES):
        (root / f"samples/{index:04}.bin").write_bytes(os.urandom(2000))
    stages = root / "ten/stages"
    stages.mkdir(parents=True)
    for folder in (root / "ten", stages):
        (folder / "__init__.py").write_text("")
    kinds = "".join(f"class Value{n}(Value): ...\n" for n in range(2, STEPS - 1))
    (root / "ten/kinds.py").write_text(KINDS + kinds)
    texts = {"s0": FIRST, "s1": FAN, "s2": MERGE}
    for n in range(3, STEPS):
        texts[f"s{n}"] = NEXT.format(n=n, m=n - 1, kind="Last" if n == STEPS - 1 else f"Value{n}")
    for name, text in texts.items():
        (stages / f"{name}.py").write_text("from ten.kinds import *\n" + text)
    (root / "ten.toml").write_text('[net]\npath = "model.bin"\n[data]\nsource = "samples/*.bin"\n')


Command = tuple[list[str], dict[str, str], Path]


def npuflow(root: Path) -> Command:
    env = {"PYTHONPATH": str(root), "NPUFLOW_STAGES": "ten.stages", "NPUFLOW_CACHE": str(root / "cache")}
    return [sys.executable, "-m", "npuflow", "build", "ten.toml"], env, root


def imported(root: Path) -> list[str]:
    """Which heavy packages a build with nothing to do imports."""
    (line, env, _), heavy = npuflow(root), ("numpy", "dask", "zarr", "onnx", "onnxruntime")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *line[1:]],
        env={**os.environ, **env},
        cwd=root,
        capture_output=True,
        text=True,
    )
    names = {
        row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if row.startswith("import time:")
    }
    return [name for name in heavy if name in names]


# ***** the same graph for other tools: a step on the model, one on all samples, and eight after them *****


def deps(n: int) -> list[str]:
    samples = [f"samples/{index:04}.bin" for index in range(SAMPLES)]
    return ["model.bin"] if n == 0 else samples if n == 1 else ["o0", "o1"] if n == 2 else [f"o{n - 1}"]


def ninja(bin_: Path, root: Path) -> Command:
    rows = ["rule touch\n  command = touch $out\n"]
    rows += [f"build o{n}: touch {' '.join(deps(n))}\n" for n in range(STEPS)]
    (root / "build.ninja").write_text("".join(rows))
    return [str(bin_ / "ninja")], {}, root


def snakemake(bin_: Path, root: Path) -> Command:
    rows = [f"rule all:\n    input: 'o{STEPS - 1}'\n"]
    rows += [
        f"rule s{n}:\n    input: {deps(n)!r}\n    output: 'o{n}'\n    shell: 'touch {{output}}'\n"
        for n in range(STEPS)
    ]
    (root / "Snakefile").write_text("".join(rows))
    return [str(bin_ / "snakemake"), "-c1", "-q", "all"], {}, root


def pytask(bin_: Path, root: Path) -> Command:
    rows = [
        ("from pathlib import Path\nfrom typing import Annotated\nfrom pytask import Product\nH = "
        "Path(__file__).parent\n")
    ]
    for n in range(STEPS):
        rows.append(
            f"def task_s{n}(d: list[Path] = [H / p for p in {deps(n)!r}], o: Annotated[Path, Product] = H / "
            f"'o{n}'):\n"
            "    o.touch()\n"
        )
    (root / "task_all.py").write_text("".join(rows))
    return [str(bin_ / "pytask"), "-v", "0"], {}, root


def dvc(bin_: Path, root: Path) -> Command:
    rows = ["stages:\n"]
    for n in range(STEPS):
        given = ["samples"] if n == 1 else deps(n)
        rows.append(f"  s{n}:\n    cmd: date +%N > o{n}\n    deps: {json.dumps(given)}\n    outs: [o{n}]\n")
    (root / "dvc.yaml").write_text("".join(rows))
    env = {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "DVC_NO_ANALYTICS": "1"}
    subprocess.run(
        [str(bin_ / "dvc"), "init", "--no-scm", "-q"], cwd=root, env={**os.environ, **env}, check=True
    )
    return [str(bin_ / "dvc"), "repro", "-q"], env, root


PEERS: dict[str, Callable[[Path, Path], Command]] = {
    "ninja": ninja, "pytask": pytask, "dvc": dvc, "snakemake": snakemake,
}


def commands(base: Path, peers: Path | None) -> Iterator[tuple[str, Command]]:
    yield "python -c pass", ([sys.executable, "-c", "pass"], {}, base)
    yield "import typer", ([sys.executable, "-c", "import typer"], {}, base)
    yield "npuflow", npuflow(base)
    for name, make in PEERS.items():
        if peers is not None and (peers / "bin" / name).exists():
            root = base / f"peer-{name}"
            root.mkdir()
            os.link(base / "model.bin", root / "model.bin")
            (root / "samples").mkdir()
            for path in (base / "samples").iterdir():
                (root / "samples" / path.name).write_bytes(path.read_bytes())
            yield name, make(peers / "bin", root)


def run(command: Command) -> float:
    line, env, folder = command
    begun = time.perf_counter()
    done = subprocess.run(
        line, env={**os.environ, **env}, cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{line[0]}: {done.stdout}{done.stderr}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="npuflow-noop-") as name:
        base = Path(name)
        project(base)
        found = dict(commands(base, options.peers.absolute() if options.peers else None))
        first = {tool: run(command) for tool, command in found.items()}
        time.sleep(2.1)  # files younger than this are read again by content
        second = {tool: run(command) for tool, command in found.items()}
        taken: dict[str, list[float]] = {tool: [] for tool in found}
        for _ in range(options.rounds):
            for tool, command in found.items():
                taken[tool].append(run(command))
        heavy = imported(base)
    typer = statistics.median(taken["import typer"])
    print(f"A build with nothing to do: {STEPS} stages, a 100 MB model, {SAMPLES} sample files.")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores; {options.rounds} interleaved rounds; "
        "seconds.\n"
    )
    print(f"{'':16}{'first':>9}{'second':>9}{'median':>9}{'best':>9}  x import typer")
    for tool, times in taken.items():
        middle = statistics.median(times)
        print(
            f"{tool:16}{first[tool]:9.3f}{second[tool]:9.3f}{middle:9.3f}{min(times):9.3f}"
            f"{middle / typer:9.2f}"
        )
    print(f"\nheavy imports of npuflow's no-op: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
