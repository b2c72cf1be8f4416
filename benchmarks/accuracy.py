"""Scores of compiled programs on labelled tasks, from the bit-exact simulator, beside the float model.

    python benchmarks/accuracy.py SCORER TASK PROGRAM MODEL [--limit N] [--batch B]

SCORER is a Python file with `samples(task)`, which yields model inputs by name (for "vad": pairs of a
new-clip flag and inputs without the recurrent state), `OUTPUT[task]`, and `score(task, arrays,
baseline)`, which returns metrics. PROGRAM is a .npu file and MODEL the float ONNX it was built from.
One JSON line per run is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.macs import graph_macs
from npuflow.program.container import Program, load_program
from npuflow.runner.simulated import ProgramRunner


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("scorer", path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while part := list(islice(items, size)):
        yield part


def recurrent(step: Any, samples: Iterator[tuple[bool, dict[str, Any]]]) -> Iterator[Any]:
    """Outputs in order, the state of a clip carried from frame to frame."""
    state = np.zeros((2, 1, 128), np.float32)
    for new, feed in samples:
        state = np.zeros_like(state) if new else state
        output, state = step({**feed, "state": state})
        yield output


def model_macs(model: Path, program: Program) -> int:
    """Multiply-accumulates of the float model, its free dimensions as the program has them."""
    shapes = {port["name"]: tuple(port["shape"]) for port in program.meta["inputs"]}
    return graph_macs(FRONTENDS["onnx"]().read(model.read_bytes(), Bindings(shapes)).graph)


class Task:
    """A labelled task with the float model's outputs, which are computed once (and kept in
    `floats`, if a file is given)."""

    def __init__(
        self, scorer: ModuleType, task: str, model: Path, limit: int | None, floats: Path | None = None
    ) -> None:
        self.scorer, self.task, self.model, self.limit = scorer, task, model, limit
        self.name = scorer.OUTPUT[task]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(str(model), options)
        self.outputs = [o.name for o in session.get_outputs()]
        if floats is not None and floats.exists():
            self.base = list(np.load(floats)[self.name][:, None][:limit])
        elif task == "vad":
            self.base = list(recurrent(lambda feed: session.run([self.name, "stateN"], feed), self.samples()))
        else:
            self.base = [session.run([self.name], feed)[0] for feed in self.samples()]
        if floats is not None and not floats.exists() and limit is None:
            np.savez(floats, **{self.name: np.concatenate(self.base)})

    def samples(self) -> Iterator[Any]:
        return islice(self.scorer.samples(self.task), self.limit)

    def score(self, program: Program, batch: int = 8) -> dict[str, Any]:
        """Figures of a program, from the simulator."""
        start = time.perf_counter()
        own = dict(zip(self.outputs, [o["name"] for o in program.meta["outputs"]], strict=True))
        if self.task == "vad":
            runner = ProgramRunner(program, batch=1)

            def simulated(feed: dict[str, Any]) -> tuple[Any, Any]:
                found = runner.run(feed)
                return found[own[self.name]], found[own["stateN"]]

            got = list(recurrent(simulated, self.samples()))
        else:
            runner = ProgramRunner(program, batch=batch)
            got = [r[own[self.name]] for part in chunks(self.samples(), batch) for r in runner.run_many(part)]
        arrays, floats = ({self.name: np.concatenate(rows)} for rows in (got, self.base))
        line = self.scorer.score(self.task, arrays, floats)
        macs, total = sum(n["macs"] for n in program.meta["nodes"]), model_macs(self.model, program)
        share = round(macs / total, 4) if total else 1.0
        return {
            **line,
            "npu_macs": macs,
            "npu_share": share,
            "seconds": round(time.perf_counter() - start, 1),
        }


def task_parser(description: str | None, judged: str = "recipe") -> argparse.ArgumentParser:
    """Of a script that takes a file of scorers, the name of one of its tasks, and what is judged."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scorer", type=Path)
    parser.add_argument("task")
    parser.add_argument(judged, type=Path)
    return parser


def main() -> None:
    parser = task_parser(__doc__, "program")
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    task = Task(module(args.scorer), args.task, args.model, args.limit)
    print(json.dumps(task.score(load_program(args.program), args.batch)), flush=True)


if __name__ == "__main__":
    main()
