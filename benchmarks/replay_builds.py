"""Whole builds replayed: digests of what decides numbers and of programs, recorded and compared.

    python benchmarks/replay_builds.py record FILE [SUBJECT ...] [--cache DIR]    # before a change
    python benchmarks/replay_builds.py compare FILE [SUBJECT ...] [--cache DIR]   # after it
    python benchmarks/replay_builds.py commits A B [SUBJECT ...]                  # both, in own checkouts

A subject is NETWORK/MODE/TARGET; a part of one names all that begin so. Content digests do not depend on
code, so a change that only moves or renames must leave every digest. Of a build that differs, the first
artifact in the order of the pipeline is printed: what differs behind it follows from it. A comparison ends
with status 1 if anything differs.

Networks are small and made by this script, with seeded weights and samples, beside the example `fashion`.
Modes are settings of a recipe: default builds, 4-bit weights, 16-bit activations, bf16, every rounding,
pruning, search and corrections.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
TARGETS = sorted(p.stem for p in (ROOT / "npuflow" / "targets").glob("*.toml"))
WATCHED = (
    "parse",
    "pruned",
    "ordered",
    "equalize",
    "samples",
    "statistics",
    "moments",
    "thresholds",
    "clipping",
    "box_codes",
    "pixel_codes",
    "ranges",
    "search",
    "tune",
    "unify",
    "placement",
    "baseline",
    "sensitivity",
    "masks",
    "rounded",
    "sequential",
    "blocks",
    "precision",
    "turned",
    "quantize",
    "correct",
    "verdict",
    "ledgers",
    "tiling",
    "codegen",
)
MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "plain": ('precision.strategy="none"', 'correct.bias="off"'),
    "w4a8": ("quantize.weights.bits=4",),
    "a16": ("quantize.activations.bits=16",),
    "bf16": ('quantize.mode="bf16"',),
    "gptq": ("quantize.weights.bits=4", 'round.method="gptq"'),
    "sequential": ("quantize.weights.bits=4", 'round.mode="sequential"'),
    "blocks": ("quantize.weights.bits=4", 'round.mode="blocks"'),
    "prune": ('prune.pattern="2:4"',),
    "channels": ("prune.channels.share=0.25",),
    "corrected": ("equalize={}", "unify={}", "search={}"),
    "judged": ("quantize.weights.bits=4", 'round.method="gptq"', "search={}", "unify={}"),
    "methods": ('calibrate.method="kl"', "ledger={}"),
}
FLOATS = {"gc200": ('quantize.mode="fp16"',)}  # targets that do not compute in integers
FEW = ("edge-4t", "bm1684x", "cv18xx")
TABLE: dict[tuple[str, str], Sequence[str]] = {
    ("residual", "default"): TARGETS,
    ("residual", "plain"): TARGETS,
    **{("residual", mode): FEW[:1] for mode in MODES if mode not in ("default", "plain", "bf16")},
    ("residual", "bf16"): ("bm1684x", "xdna2"),
    ("attention", "default"): FEW,
    ("attention", "w4a8"): FEW[:1],
    ("attention", "a16"): FEW[:1],
    ("attention", "bf16"): ("bm1684x",),
    ("attention", "sequential"): FEW[:1],
    ("recurrent", "default"): FEW[:1],
    ("recurrent", "w4a8"): FEW[:1],
    ("directions", "default"): ("edge-4t", "server-32t"),
    ("heads", "default"): FEW[:2],
    ("heads", "corrected"): FEW[:1],
    ("fashion", "default"): FEW[:1],
    ("fashion", "w4a8"): FEW[:1],
}
SAMPLES = 40


class Net:
    """An ONNX model, node by node, with seeded weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        """Normal numbers within the square root of the fan-in."""
        fan = int(np.prod(shape[1:])) or 1
        return self.constant(self.rng.normal(size=shape) * gain / np.sqrt(fan))

    def constant(self, array: object, kind: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array, kind), name))
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"t{len(self.nodes)}" + ("" if i == 0 else f"_{i}") for i in range(outputs)]
        self.nodes.append(
            onnx.helper.make_node(kind, list(inputs), names, f"n{len(self.nodes)}", **attributes)
        )
        return names[0]

    def model(self, shape: Sequence[int], *outputs: str) -> onnx.ModelProto:
        ports = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))]
        made = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs
        ]
        graph = onnx.helper.make_graph(self.nodes, "net", ports, made, self.weights)
        return onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
        )


def residual() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Convolutions with a depthwise one, a residual sum and a classifier."""
    n = Net(1)
    x = n.add(
        "Relu", n.add("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1] * 4, strides=[2, 2])
    )
    y = n.add("Conv", x, n.weight(16, 1, 3, 3), n.weight(16), pads=[1] * 4, group=16)
    y = n.add("Conv", n.add("HardSwish", y), n.weight(16, 16, 1, 1), n.weight(16))
    x = n.add("Relu", n.add("Add", x, y))
    x = n.add(
        "Relu", n.add("Conv", x, n.weight(32, 16, 3, 3), n.weight(32), pads=[1] * 4, strides=[2, 2])
    )
    x = n.add("Flatten", n.add("GlobalAveragePool", x))
    return n.model((1, 3, 24, 24), n.add("Gemm", x, n.weight(10, 32), n.weight(10), transB=1)), (
        3,
        24,
        24,
    )


def attention() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A transformer block of two heads."""
    n, width, heads = Net(2), 32, 2
    ones, zeros = n.constant(np.ones(width)), n.constant(np.zeros(width))
    h = n.add("LayerNormalization", "x", ones, zeros)
    split = n.constant([1, 12, heads, width // heads], np.int64)
    q, k, v = (
        n.add(
            "Transpose", n.add("Reshape", n.add("MatMul", h, n.weight(width, width)), split), perm=perm
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = n.add("Mul", n.add("MatMul", q, k), n.constant((width // heads) ** -0.5))
    found = n.add("Transpose", n.add("MatMul", n.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    found = n.add("Reshape", found, n.constant([1, 12, width], np.int64))
    x = n.add("Add", "x", n.add("MatMul", found, n.weight(width, width)))
    h = n.add("MatMul", n.add("LayerNormalization", x, ones, zeros), n.weight(width, 2 * width))
    h = n.add("Mul", h, n.add("Sigmoid", h))
    return n.model((1, 12, width), n.add("Add", x, n.add("MatMul", h, n.weight(2 * width, width)))), (
        12,
        width,
    )


def recurrent() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """An LSTM of six steps and a classifier of its last state."""
    n, hidden = Net(3), 16
    steps = n.add("Transpose", "x", perm=[1, 0, 2])
    weights = (n.weight(1, 4 * hidden, 8), n.weight(1, 4 * hidden, hidden), n.weight(1, 8 * hidden))
    n.add("LSTM", steps, *weights, outputs=2, hidden_size=hidden)
    last = n.add("Squeeze", f"{n.nodes[-1].output[1]}", n.constant([0], np.int64))
    return n.model((1, 6, 8), n.add("Gemm", last, n.weight(5, hidden), transB=1)), (6, 8)


def directions() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """An LSTM of 24 steps in both directions, which may run as one loop or on two cores."""
    n, hidden = Net(5), 16
    steps = n.add("Transpose", "x", perm=[1, 0, 2])
    weights = (n.weight(2, 4 * hidden, 8), n.weight(2, 4 * hidden, hidden), n.weight(2, 8 * hidden))
    made = n.add("LSTM", steps, *weights, hidden_size=hidden, direction="bidirectional")
    rows = n.add("Reshape", n.add("Transpose", made, perm=[2, 0, 1, 3]), n.constant([1, 24, 32], np.int64))
    return n.model((1, 24, 8), n.add("MatMul", rows, n.weight(2 * hidden, 5))), (24, 8)


def heads() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A map of scores and one of boxes over one trunk."""
    n = Net(4)
    x = n.add(
        "Relu", n.add("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1] * 4, strides=[2, 2])
    )
    x = n.add("Relu", n.add("Conv", x, n.weight(16, 16, 3, 3), n.weight(16), pads=[1] * 4))
    score = n.add("Sigmoid", n.add("Conv", x, n.weight(2, 16, 1, 1), n.weight(2)))
    box = n.add("Exp", n.add("Conv", x, n.weight(4, 16, 1, 1, gain=2.0), n.weight(4)))
    return n.model((1, 3, 16, 16), score, box), (3, 16, 16)


NETWORKS = {
    "residual": residual, "attention": attention, "recurrent": recurrent, "directions": directions,
    "heads": heads,
}


def subjects(wanted: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(network, mode, target) of every subject that begins with one of `wanted`."""
    for (network, mode), targets in TABLE.items():
        for target in targets:
            name = f"{network}/{mode}/{target}"
            if not wanted or any(name.startswith(one) for one in wanted):
                yield network, mode, target


def recipe_of(network: str, folder: Path) -> Path:
    """The network's recipe; what it reads is written beside it."""
    if network == "fashion":
        return ROOT / "recipes" / "fashion.toml"
    model, shape = NETWORKS[network]()
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "net.onnx")
    np.savez(
        folder / "calib.npz",
        x=np.random.default_rng(9).normal(size=(SAMPLES, *shape)).astype(np.float32),
    )
    path = folder / f"{network}.toml"
    path.write_text('target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "calib.npz"\n')
    return path


def replay(wanted: Sequence[str], cache: Path | None) -> dict[str, dict[str, str]]:
    """Subject -> stage -> digest of what it made, or what refused the build."""
    from npuflow import build
    from npuflow.base.errors import NpuflowError

    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for network, mode, target in subjects(wanted):
            begin = time.perf_counter()
            recipe = recipe_of(network, Path(folder) / network)
            sets = [f'target="{target}"', *MODES[mode], *FLOATS.get(target, ())]
            sets += ["data.count=40", "evaluate.count=16"] if network == "fashion" else []
            name = f"{network}/{mode}/{target}"
            try:
                made = build(
                    recipe, sets, cache=cache or Path(folder) / "cache", out=Path(folder) / "out"
                )
                found[name] = {stage: made.outputs[stage] for stage in WATCHED if stage in made.outputs}
            except NpuflowError as fault:
                found[name] = {"refused": f"{type(fault).__name__}: {fault}"}
            print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return found


def differences(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for every subject that differs: the first artifact that does, and what follows."""
    lines = []
    for name, digests in new.items():
        was = old.get(name)
        if was is None:
            lines.append(f"{name}: not in the record")
            continue
        stages = [s for s in ("refused", *WATCHED) if was.get(s) != digests.get(s)]
        if stages:
            why = f"\n  {digests['refused']}" if "refused" in digests else ""
            lines.append(f"{name}: {stages[0]} differs first, then {', '.join(stages[1:]) or 'nothing'}{why}")
    return lines


def at_commit(commit: str, wanted: Sequence[str], folder: Path) -> dict[str, dict[str, str]]:
    """The record of a commit, made by this script on the commit's own code."""
    tree = folder / commit
    subprocess.run(
        ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), commit], check=True
    )
    try:
        script = tree / "benchmarks" / Path(__file__).name
        script.write_text(Path(__file__).read_text())
        record = folder / f"{commit}.json"
        subprocess.run(
            [sys.executable, str(script), "record", str(record), *wanted], check=True, cwd=tree
        )
        return json.loads(record.read_text())
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


def report(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> int:
    lines = differences(old, new)
    refused = sum("refused" in digests for digests in new.values())
    print("\n".join([*lines, f"{len(new)} builds ({refused} refused), {len(lines)} differ"]))
    return 1 if lines else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("verb", choices=("record", "compare", "commits"))
    parser.add_argument("names", nargs="+", help="FILE or two commits, then subjects")
    parser.add_argument(
        "--cache", type=Path, help="a cache that is kept: a second run builds what changed"
    )
    asked = parser.parse_args()
    if asked.verb == "commits":
        first, second, *wanted = asked.names
        with tempfile.TemporaryDirectory() as folder:
            old, new = (at_commit(one, wanted, Path(folder)) for one in (first, second))
        return report(old, new)
    file, *wanted = asked.names
    found = replay(wanted, asked.cache)
    if asked.verb == "compare":
        return report(json.loads(Path(file).read_text()), found)
    Path(file).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
