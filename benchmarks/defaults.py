"""Default builds of networks that nobody tuned: a recipe of model, shapes and data,
built, simulated and scored.

    python benchmarks/defaults.py MODELS OUT [TASK ...] [--target edge-4t] [--limit N] [--set KEY=VALUE ...]

MODELS is a folder with `models`, `data`, `models2` and `data2` (networks, calibration and evaluation sets,
and the two scripts that score them); models that are made by a script or taken from a package are looked for
in OUT/models. Calibration inputs are written as they are fed. Prints a line a task: figures of the program on
the simulator beside the float network's, cycles, what was widened, build times of the stages. `--limit`
scores the first N evaluation samples.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from builds import built

FIRST = ("photos", "scenes", "sts", "vad", "fashion")
SHAPES: dict[str, dict[str, list[int]]] = {
    "lines": {"x": [1, 3, 48, 320]},
    "text": {"x": [1, 3, 320, 320]},
    "notes": {"serving_default_input_2:0": [1, 43844, 1]},
    "thai": {"input": [1, 96]},
    "oskut": {f"input{i}": [1, 21] for i in (1, 2, 3)},
    "focus": {"input_image": [1, 3, 224, 224]},
    "fashion": {"x": [1, 1, 28, 28]},
}
MODELS = {
    "photos": "efficientnet-lite0.onnx",
    "scenes": "yolox-tiny.onnx",
    "sts": "minilm-l6-v2.onnx",
    "vad": "silero-vad.onnx",
    "fashion": "fashion-lenet.onnx",
}
Feed = Mapping[str, Any]


def scorer(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"score_{name}", folder / name / "score.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


class Task:
    """One network with its data."""

    def __init__(self, name: str, folder: Path, out: Path) -> None:
        self.name, self.folder = name, folder
        self.score = scorer(folder, "data" if name in FIRST else "data2")
        file = MODELS[name] if name in FIRST else self.score.TASKS[name][0]
        places = [folder / ("models" if name in FIRST else "models2") / file, out / "models" / file]
        self.model = next((p for p in places if p.exists()), places[0])

    def calibration(self) -> Iterator[Feed]:
        if self.name not in FIRST:
            yield from self.score.samples(self.name, "calib")
            return
        data = self.folder / "data" / self.name
        if self.name in ("photos", "scenes"):
            from PIL import Image

            for path in sorted((data / "calib").glob("*.jpg")):
                picture = Image.open(path).convert("RGB")
                if self.name == "photos":
                    real = np.asarray(picture.resize((224, 224), Image.Resampling.BICUBIC), np.float32)
                    yield {"input": ((real - 127) / 128).transpose(2, 0, 1)[None]}
                else:
                    yield {"images": np.asarray(picture, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]}
            return
        held = np.load(data / "calib.npz")
        if self.name == "fashion":
            yield from (
                {"x": ((i[None, None].astype(np.float32) / 255 - 0.286) / 0.353)} for i in held["images"]
            )
        elif self.name == "sts":
            yield from (
                {k: held[k][i : i + 1] for k in ("input_ids", "attention_mask")}
                for i in range(len(held["input_ids"]))
            )
        else:
            yield from (
                {"input": held["input"][i : i + 1], "state": held["state"][i]}
                for i in range(len(held["input"]))
            )

    def outputs(self, run: Callable[[Feed], Mapping[str, Any]], limit: int) -> dict[str, Any]:
        """The evaluation set through `run`, states carried where the network has some."""
        kept: dict[str, list[Any]] = {}
        states: dict[str, Any] = {}
        clips = 0
        for index, item in enumerate(self.score.samples(self.name)):
            stateful = self.name in ("wake", "vad")
            clips += bool(stateful and item[0])
            if limit and (clips > limit if stateful else index >= limit):
                break
            feed = item[1] if stateful else item
            if stateful and item[0]:
                states = {k: np.zeros(shape, np.float32) for k, shape in self.states().items()}
            made = run({**feed, **states})
            after = {"state": "stateN"} if self.name == "vad" else {k: f"{k}n" for k in states}
            states = {k: np.asarray(made[after[k]], np.float32) for k in states}
            for name, value in made.items():
                if name not in after.values():
                    kept.setdefault(name, []).append(
                        np.asarray(value)[None] if self.name == "thai" else np.asarray(value)
                    )
        return {name: np.concatenate(values) for name, values in kept.items()}

    def states(self) -> dict[str, tuple[int, ...]]:
        import onnx

        inputs = onnx.load(self.model, load_external_data=False).graph.input
        return {
            i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim)
            for i in inputs
            if i.name.startswith("state")
        }

    def figures(self, outputs: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
        found = self.score.score(self.name, outputs, baseline)
        return {k: v for k, v in found.items() if k not in ("task", "n", "finite")}


def floats(task: Task, out: Path, limit: int) -> dict[str, Any]:
    """The float network's outputs, kept beside the builds."""
    import onnxruntime

    path = out / "float" / f"{task.name}-{limit}.npz"
    if not path.exists():
        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(str(task.model), providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        made = task.outputs(lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True)), limit)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **made)
    return dict(np.load(path))


def recipe(task: Task, out: Path, target: str) -> Path:
    """Model, shapes, data; nothing else."""
    folder = out / task.name
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "calibration.npz"
    if not data.exists():
        feeds = list(task.calibration())
        stacked = {k: np.stack([np.asarray(f[k]) for f in feeds]) for k in feeds[0]}
        np.savez(data, **stacked)
    shapes = "".join(f'"{k}" = {v}, ' for k, v in SHAPES.get(task.name, {}).items()).rstrip(", ")
    text = f'target = "{target}"\n\n[model]\npath = "{task.model}"\n'
    text += f"inputs = {{ {shapes} }}\n" if shapes else ""
    text += f'\n[data]\nsource = "{data}"\n'
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def summaries(path: Path, folder: Path, cache: Path, settings: list[str]) -> tuple[dict[str, Any], float]:
    """Summaries of the steps by stage, and seconds."""
    events, seconds = built(path, folder, cache, settings)
    steps = [e for e in events if e.get("event") == "step" and e.get("figures")]
    return {e["stage"]: e["figures"] for e in steps}, seconds


def scored(task: Task, program: Path, baseline: Mapping[str, Any], limit: int) -> dict[str, Any]:
    import npuflow

    runner = npuflow.Runner(npuflow.load_program(program))
    return task.figures(task.outputs(lambda feed: runner.run(dict(feed)), limit), baseline)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=[])
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    args = parser.parse_args()
    out = args.out.resolve()
    for name in args.tasks:
        task = Task(name, args.models.resolve(), out)
        path = recipe(task, out, args.target)
        steps, seconds = summaries(path, out / name / "out", out / "cache", args.settings)
        baseline = floats(task, out, args.limit)
        program = next((out / name / "out").rglob("model.npu"))
        figures = scored(task, program, baseline, args.limit)
        kept = {k: steps[k] for k in ("baseline", "precision", "tiling", "simulate") if k in steps}
        print(json.dumps({"task": name, "seconds": round(seconds, 1), **figures, "stages": kept}), flush=True)


if __name__ == "__main__":
    main()
