"""The labelled samples that judge the rivals of [search] by a metric; none of them
takes part in the evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuflow.base.digest import digest, digest_file
from npuflow.base.errors import DataError
from npuflow.checks.evaluate import LabelledTable as Table
from npuflow.checks.evaluate import asked, ready
from npuflow.checks.evaluate import labelled as listed
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.fold import Folding, adapted
from npuflow.input.data.read import samples as read
from npuflow.input.data.text import KIND as TEXT
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.input.text.model import TextModel
from npuflow.ir.graph import Graph
from npuflow.metrics import Metric
from npuflow.stages.samples import Sample
from npuflow.tune.judge import Judge
from npuflow.tune.metric import MetricJudge


@dataclass(frozen=True)
class Labelled(Artifact, spread=("sample",), labelled=("label", "identity")):
    """A sample, what is true of it, and what identifies it wherever it is listed."""

    sample: Sample
    label: Any
    identity: str

    def summary(self) -> dict[str, Any]:
        return self.sample.summary()


def listing(
    labelled: Table, data: Data, folding: Folding, numerics: Numerics, preprocess: Preprocess | None = None,
    model: TextModel | None = None,
) -> Listing:
    return listed_of(listed(labelled, data, model), data, folding, numerics, preprocess)


def listed_of(
    samples: Mapping[str, FoundSample], data: Data, folding: Folding, numerics: Numerics,
    preprocess: Preprocess | None = None,
) -> Listing:
    """Samples that a table names, with their labels."""
    found = adapted(samples, data, folding, numerics, pixel_zeros(preprocess))
    return {
        name: Item(tuple(one.files), {"read": dict(one.detail), "label": one.label})
        for name, one in found.items()
    }


@stage(over="files", files=listing, when="search.labelled", batch=32, minor=True)
def labelled(files: Files) -> Iterator[tuple[str, Labelled]]:
    """Read the samples, with their labels."""
    yield from read_labelled(files)


def read_labelled(files: Files) -> Iterator[tuple[str, Labelled]]:
    """The samples by name, with their labels and identities."""
    known = dict(identities((name, item.files, item.detail["read"]) for name, item in files.items()))
    for name, content in read({name: (item.files, item.detail["read"]) for name, item in files.items()}):
        if content.broken:
            log(f"{name} is left out: {content.broken}")
        yield name, Labelled(Sample(content), files[name].detail["label"], known[name])


def identities(items: Iterable[tuple[str, tuple[Path, ...], Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Name and identity of each: contents of its files and its place in them, whatever they are called."""
    contents: dict[Path, str] = {}
    for name, paths, detail in items:
        if detail["kind"] == TEXT:            # its tokens: a text may be in several windows
            yield name, digest(detail["tokens"])
            continue
        for path in paths:
            contents[path] = contents.get(path) or digest_file(path)
        own = name if detail["kind"] == "python" else None
        place = [own, detail.get("function"), detail.get("row"), detail.get("seed")]
        yield name, digest([[contents[path] for path in paths], place])


def metric_judge(graph: Graph, samples: Items[Labelled], metric: Metric, key: str) -> MetricJudge:
    """The judge by a metric that `key` of the recipe names, of those samples that could be read."""
    whole = [one for one in samples.values() if not one.sample.content.broken]
    if not whole:
        raise DataError("no labelled sample could be read", code="NF-DATA-009")
    types = {name: graph.type(name) for name in graph.inputs}
    ready(metric, key, graph.outputs)
    if metric.better == "lower":
        raise DataError(
            f'the metric "{key.rpartition(".")[2]}" cannot choose', because="of its figure less is better",
            hint='one of which more is better, as "sqnr" or "agreement"', code="NF-METRIC-045",
        ).at(key=key)
    labels = asked(metric, key.rpartition(".")[2], [one.label for one in whole])
    return MetricJudge(Judge(graph, [one.sample.content.feed(types) for one in whole]), metric, labels)
