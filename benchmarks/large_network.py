"""Networks above 2 GB: whether they are built, how long that takes, and the memory of the largest process.

    python benchmarks/large_network.py [--networks matmul5,one,gemm5] [--folder DIR] [--write]

`matmul5`: five MatMul of 11,000 x 11,000; `one`: a MatMul of 24,000 x 24,000, whose weight alone is more than
protobuf holds; `gemm5`: five Gemm of 11,000 x 11,000 with biases, which corrections move. Weights are float32
in a file beside the model, random; 8 samples; target bm1684x; new caches. `plain`: `[correct] bias = "off"`
and `[precision] strategy = "none"`; `defaults`: both on.

`largest`: the most anonymous memory (RssAnon of /proc/PID/status, so without pages of mapped files) that one
process of the build had, `together`: that all had at once, in MB of 10^6 bytes, looked at ten times a second.
`during`: the last step that had ended when the largest was at its most. DIR needs 20 GB; it is made, and what
lies in it goes at the end. With --write the rows replace or join those of its study.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import study
from onnx import helper

NETWORKS = {"matmul5": ("MatMul", 5, 11_000), "one": ("MatMul", 1, 24_000), "gemm5": ("Gemm", 5, 11_000)}
SETTINGS = {"plain": ('correct.bias="off"', 'precision.strategy="none"'), "defaults": ()}
SAMPLES = 8
ROWS = 1_000                   # of a matrix that are written at a time
HEAD = (
    "| network | settings | built | minutes | largest MB | together MB | during |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def made(name: str, folder: Path) -> Path:
    """The network's recipe, with model and samples beside it."""
    op, count, size = NETWORKS[name]
    rng, tensors, nodes = np.random.default_rng(0), list[onnx.TensorProto](), list[onnx.NodeProto]()
    with (folder / "net.bin").open("wb") as file:
        for i in range(count):
            at = file.tell()
            for start in range(0, size, ROWS):
                rows = rng.standard_normal((min(ROWS, size - start), size), np.float32)
                file.write((rows / np.float32(size**0.5)).tobytes())
            tensor = onnx.TensorProto(
                name=f"w{i}", data_type=onnx.TensorProto.FLOAT, dims=[size, size],
                data_location=onnx.TensorProto.EXTERNAL,
            )
            for key, value in (("location", "net.bin"), ("offset", at), ("length", 4 * size * size)):
                tensor.external_data.add(key=key, value=str(value))
            bias = [onnx.numpy_helper.from_array(rng.standard_normal(size).astype(np.float32), f"b{i}")]
            tensors += [tensor, *(bias if op == "Gemm" else [])]
            inputs = [f"h{i}" if i else "x", f"w{i}", *([f"b{i}"] if op == "Gemm" else [])]
            nodes.append(helper.make_node(op, inputs, [f"h{i + 1}" if i < count - 1 else "y"]))
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, size]) for n in "xy"]
    graph = helper.make_graph(nodes, name, ports[:1], ports[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    np.savez(folder / "data.npz", x=rng.standard_normal((SAMPLES, 1, size)).astype(np.float32))
    recipe = folder / "net.toml"
    recipe.write_text(
        'target = "bm1684x"\n[model]\npath = "net.onnx"\n[data]\nsource = "data.npz"\n'
    )
    return recipe


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def anonymous(pid: int) -> int:
    """Bytes of a process that lie in no file; 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


@dataclass
class Watch:
    """The most memory of a build's processes."""

    pid: int
    step: str = "-"
    largest: int = 0
    together: int = 0
    during: str = "-"
    stop: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Until it is stopped."""
        while not self.stop.wait(0.1):
            try:
                sizes = [anonymous(pid) for pid in family(self.pid)]
            except OSError:            # one ended while it was looked at
                continue
            self.together = max(self.together, sum(sizes))
            if max(sizes, default=0) > self.largest:
                self.largest, self.during = max(sizes), self.step


def row(name: str, settings: str, recipe: Path) -> str:
    """The figures of one build."""
    cache = recipe.parent / "cache"
    words = [sys.executable, "-m", "npuflow", "build", str(recipe), "--json", "--cache", str(cache)]
    words += [word for one in SETTINGS[settings] for word in ("--set", one)]
    started = time.perf_counter()
    build = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    watch = Watch(build.pid)
    looking = threading.Thread(target=watch.look)
    looking.start()
    assert build.stdout is not None
    for line in build.stdout:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("stage") or event.get("step"):
            watch.step = str(event.get("stage") or event.get("step"))
    code = build.wait()
    seconds = time.perf_counter() - started
    watch.stop.set()
    looking.join()
    shutil.rmtree(cache, ignore_errors=True)
    cells = [
        name, settings, "no" if code else "yes", f"{seconds / 60:.1f}", f"{watch.largest / 1e6:,.0f}",
        f"{watch.together / 1e6:,.0f}", watch.during,
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    file, rows = study.page(__file__), dict[tuple[str, ...], str]()
    if file.exists():
        lines = [line for line in file.read_text().splitlines() if line.startswith("| ")][2:]
        rows = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in lines}
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    for name in chosen.networks.split(","):
        with tempfile.TemporaryDirectory(prefix="npuflow-large-", dir=chosen.folder) as folder:
            recipe = made(name, Path(folder))
            for settings in chosen.settings.split(","):
                rows[name, settings] = found = row(name, settings, recipe)
                print(found, flush=True)
                if chosen.write:
                    first, *rest = (__doc__ or "").strip().split("\n\n")
                    table = "\n".join([HEAD, *(rows[key] for key in sorted(rows))])
                    study.write(__file__, "\n\n".join([f"# {first}", *rest[1:], table]) + "\n")


if __name__ == "__main__":
    main()
