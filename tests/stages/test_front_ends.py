"""The import stages: artifacts that reload as they were, keys that see operators and rules, refusals kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.base.errors import ModelError
from npuflow.base.tables import FilePath
from npuflow.flow.artifact import Artifact, Reader, seal
from npuflow.flow.refs import Files
from npuflow.flow.store_writer import Writer
from npuflow.hw.target import Compute, Dma, HostProcessor, Limits, Memory, Numerics
from npuflow.place.islands import PlacementTable
from npuflow.stages._targets import PlannedTarget, WholeTarget
from npuflow.stages.hardware import Asked
from npuflow.stages.model import Model, ModelTable, listing, model
from npuflow.stages.parse import Parse, Parsed, parse
from npuflow.stages.placement import Placement, placement

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] x) => (float[N,4,8,8] y) {
    a = Sub(x, m) b = Conv<pads=[1,1,1,1]>(a, k) c = Relu(b)
    d = Pow(c, c) y = Tanh(d) }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    proto = parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "k": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "m": np.float32([[[1]], [[2]], [[3]]]),
    }
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    file = tmp_path / "net.onnx"
    onnx.save_model(proto, str(file), save_as_external_data=True, location="net.bin", size_threshold=0)
    return file


def reloaded(artifact: Artifact, folder: Path) -> Artifact:
    folder.mkdir()
    manifest = seal(artifact, Writer(folder))
    assert manifest.digest == artifact.digest()
    return type(artifact).load(Reader(folder, manifest))


def test_the_stages_hand_on_what_they_keep(path: Path, tmp_path: Path) -> None:
    table = ModelTable(FilePath("net.onnx", path))
    items = listing(table)
    assert [p.name for p in items["model"].files] == ["net.onnx", "net.bin"] and "conv" in items[
        "model"
    ].detail["ops"]
    source = reloaded(model(Files(items), table), tmp_path / "model")
    assert (
        isinstance(source, Model)
        and {"conv", "host", "sub"} <= set(source.uses()["ops"])
        and source.uses()["rules"]
    )
    read = [type(n.op).__name__ for n in source.reading.graph.nodes]
    assert read == ["Sub", "Conv", "Relu", "Host", "Tanh"], "nothing is rewritten yet"
    first = parse(source, Asked(), Parse())
    again = reloaded(first, tmp_path / "parsed")
    assert (
        isinstance(again, Parsed)
        and again == first
        and again.graph.consts.keys() == first.graph.consts.keys()
    )
    assert [type(n.op).__name__ for n in again.graph.nodes] == ["Sub", "Conv", "Host", "Tanh"]
    assert any(r.rule == "fold_input_scale" and "zero padding" in r.reason for r in again.refusals)
    assert (
        again.notes == ('dimension 0 (N) of input "x" is free and taken as 1',)
        and "host" in again.uses()["ops"]
    )
    planned = PlannedTarget(Compute(), Memory(), Dma(), Numerics(), HostProcessor())
    placed = placement(again, WholeTarget(planned, Limits()), PlacementTable(min_macs=0))
    kept = reloaded(placed, tmp_path / "placement")
    counts = {"npu_nodes": 3, "host_nodes": 1, "npu_macs": 1.0, "host_macs": 0}
    assert isinstance(kept, Placement) and kept == placed and kept.summary() == counts


def test_rules_can_be_skipped(path: Path) -> None:
    table = ModelTable(FilePath("net.onnx", path))
    source = model(Files(listing(table)), table)
    assert len(parse(source, Asked(), Parse(skip=("fuse_clip",))).graph.nodes) == 5


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "net.caffe"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="known model format"):
        listing(ModelTable(FilePath("net.caffe", file)))
