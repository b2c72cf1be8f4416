"""Models of MODELS.md and MODELS2.md with their calibration samples and scored
evaluation samples, for verdicts.py."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.flow.stage import Items
from npuflow.frontends import FRONTENDS
from npuflow.input.data.config import InputSample as Content
from npuflow.input.data.profile import MOST
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.place.islands import PlacementTable
from npuflow.stages._targets import PlannedTarget, WholeTarget
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import Parsed, parsed
from npuflow.stages.placement import Placement, placement
from npuflow.stages.samples import Sample
from npuflow.stages.statistics import Statistics
from npuflow.stages.tiling import shipped_targets
from npuflow.statistics import statistics as merging
from npuflow.statistics.observe import Observer, needed_values
from npuflow.tune.walk import SampleWalk, stretch

FIRST = ("photos", "scenes", "vad", "fashion")
NET: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "lines": ("models2/ppocrv4-rec.onnx", {"x": (1, 3, 48, 320)}),
    "text": ("models2/ppocrv4-det.onnx", {"x": (1, 3, 320, 320)}),
    "pitch": ("models2/crepe-tiny.onnx", {}),
    "notes": ("models2/basic-pitch.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    "face": ("models2/mtcnn-onet.onnx", {}),
    "box": ("models2/blazeface.onnx", {}),
    "g2p": ("models2/g2p-gru.onnx", {}),
    "thai": ("models2/attacut-c.onnx", {"input": (1, 96)}),
    "oskut": ("models2/oskut-ws.onnx", {"input1": (1, 21), "input2": (1, 21), "input3": (1, 21)}),
    "wake": ("models2/alexa-float.onnx", {}),
    "selfie": ("models2/selfie.onnx", {}),
    "photos": ("models/efficientnet-lite0.onnx", {}),
    "scenes": ("models/yolox-tiny.onnx", {}),
    "vad": ("models/silero-vad.onnx", {}),
    "fashion": ("models/fashion-lenet.onnx", {"x": (1, 1, 28, 28)}),
}
EVAL = {"photos": 169, "scenes": 16, "lines": 64, "text": 32, "notes": 16, "selfie": 32, "wake": 24}
EVAL_OTHERS = 2000
CALIBRATION = {"scenes": 32, "fashion": 256}
TARGET = "edge-4t"


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"score_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@dataclass(frozen=True)
class Change:
    """What is done to every calibration sample. Statistics are kept under its name."""

    name: str
    of: Callable[[Mapping[str, Array]], dict[str, Array]]


def real_inputs(
    feed: Mapping[str, Array], of: Callable[[Array], Array], kind: str = "f"
) -> dict[str, Array]:
    """The feed with inputs of one kind of type changed; states stay."""
    return {
        k: of(v).astype(v.dtype) if v.dtype.kind == kind and not k.startswith("state") else v
        for k, v in feed.items()
    }


ORDINARY = Change("all", dict)
# as with the mean and deviation of another network
WRONG_MEAN = Change(
    "mean", lambda feed: real_inputs(feed, lambda v: (v - v.mean()) / 2 + v.mean() + v.std())
)


class Task:
    """A model with calibration samples and scored evaluation samples."""

    def __init__(self, shared: Path, name: str, folder: Path, limit: int | None) -> None:
        self.name, self.folder = name, folder
        self.scorer = module(shared / ("data" if name in FIRST else "data2") / "score.py")
        path, bindings = NET[name]
        self.model = shared / path
        self.parsed: Parsed = parsed(
            self.model.read_bytes(), FRONTENDS["onnx"](), ModelTable(path=self.model, inputs=bindings)
        )
        self.graph: Graph = self.parsed.graph
        self.limit = min(limit or 10**9, EVAL.get(name, EVAL_OTHERS))
        target = shipped_targets()[TARGET]
        self.target = target
        planned = PlannedTarget(target.compute, target.memory, target.dma, target.numerics, target.host)
        whole = WholeTarget(planned, target.limits)
        self.placement: Placement = placement(self.parsed, whole, PlacementTable())

    def fed(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        types = {n: self.graph.type(n) for n in self.graph.inputs}
        return {
            n: np.ascontiguousarray(np.asarray(feed[n]).reshape(t.shape).astype(t.dtype))
            for n, t in types.items()
        }

    def calibration(self) -> Iterator[Mapping[str, Array]]:
        data = self.scorer.DATA
        if self.name not in FIRST:
            yield from self.scorer.samples(self.name, "calib")
        elif self.name in ("photos", "scenes"):
            from PIL import Image

            for path in sorted((data / self.name / "calib").glob("*.jpg")):
                image = Image.open(path).convert("RGB")
                photo = self.name == "photos"
                size = image.resize((224, 224), Image.Resampling.BICUBIC) if photo else image
                yield (self.scorer.photo_input if photo else self.scorer.scene_input)(np.asarray(size))
        elif self.name == "vad":
            held = np.load(data / "vad/calib.npz")
            yield from (
                {"input": a[None], "state": b} for a, b in zip(held["input"], held["state"], strict=True)
            )
        else:
            yield from map(self.scorer.fashion_input, np.load(data / "fashion/calib.npz")["images"])

    @cached_property
    def feeds(self) -> list[dict[str, Array]]:
        most = CALIBRATION.get(self.name, 128)
        return [self.fed(f) for _, f in zip(range(most), self.calibration(), strict=False)]

    def samples(self, change: Change = ORDINARY) -> Items[Sample]:
        fed = [change.of(f) for f in self.feeds]
        return Items({f"s{i:04}": partial(Sample, Content(arrays=f)) for i, f in enumerate(fed)})

    def statistics(self, samples: Items[Sample], key: str) -> Statistics:
        path = self.folder / f"{self.name}-{key}.pkl"
        if path.exists():
            found: Statistics = pickle.loads(path.read_bytes())
            return found
        names = needed_values(self.graph, self.placement.placed.on_npu)
        types = {n: self.graph.type(n) for n in self.graph.inputs}
        observer = Observer(export_model(self.graph, [n for n in names if n not in types]), types, names)
        seen = ((name, observer.observe(samples[name].content.feed(types))) for name in samples)
        made = Statistics(merging.merged(seen), (), 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(made))
        return made

    def outputs(self, graph: Graph) -> dict[str, Array]:
        """What a float or quantised graph makes of the evaluation samples, states fed back."""
        session = stretch(
            graph, range(len(graph.nodes)), list(graph.inputs), list(dict.fromkeys(graph.outputs))
        )
        read, empty = {i.name for i in session.get_inputs()}, SampleWalk(graph, [])

        def run(feed: Mapping[str, Array]) -> dict[str, Array]:
            values = SampleWalk(graph, [self.fed(feed)]).values
            made = session.run(list(graph.outputs), {n: values[n][0] for n in read})
            real = [empty.real(o, [x])[0] for o, x in zip(graph.outputs, made, strict=True)]
            return dict(zip(self.graph.outputs, real, strict=True))

        kept: dict[str, list[Array]] = {}
        states = (
            {n: n + "n" for n in self.graph.inputs if n.startswith("state")} if self.name == "wake" else {}
        )
        states = {"state": "stateN"} if self.name == "vad" else states
        clips, state = 0, {}
        for item in self.scorer.samples(self.name):
            new, feed = item if states else (True, item)
            clips += new
            if clips > self.limit:
                break
            if new:
                state = {n: np.zeros(self.graph.type(n).shape, np.float32) for n in states}
            made = run({**feed, **state})
            state = {n: made[o] for n, o in states.items()}
            for name, array in made.items():
                kept.setdefault(name, []).append(array)
        return {
            k: np.concatenate([x[None] if self.name == "thai" else x for x in v]) for k, v in kept.items()
        }

    def evaluation_feeds(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """Some of what the model is fed in the evaluation; states are those of the calibration."""
        for i, item in zip(range(MOST), self.scorer.samples(self.name), strict=False):
            states = {k: v for k, v in self.feeds[i % len(self.feeds)].items() if k.startswith("state")}
            yield f"e{i}", self.fed({**(item[1] if isinstance(item, tuple) else item), **states})

    @cached_property
    def truth(self) -> dict[str, Array]:
        return self.outputs(self.graph)

    def score(self, graph: Graph) -> dict[str, Any]:
        found: dict[str, Any] = self.scorer.score(self.name, self.outputs(graph), self.truth)
        return found
