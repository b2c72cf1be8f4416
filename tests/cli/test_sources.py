"""Rows of reports lead back to the training code; a line that moves there runs no step that computes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commandline import Ran
from onnx import TensorProto, helper, numpy_helper

from npuflow.apps.view.network import network
from npuflow.cli import main
from npuflow.cli._explorer import FIGURES, documents
from npuflow.flow.store import Store
from npuflow.frontends import Bindings, CodePlace
from npuflow.frontends._nodes.traces import line_of
from npuflow.frontends.onnx import Onnx
from npuflow.frontends.tflite import layer_of
from npuflow.report.code_places import CodePlaces

CODE = "/home/me/net.py"
RECIPE = """target = "edge-4t"
sources.on = true
[model]
path = "net.onnx"
[data]
source = "samples.npz"
[precision]
strategy = "none"
"""


def model(line: int = 7) -> onnx.ModelProto:
    """stem (Conv) -> relu, exported as torch.onnx does from a program: modules and lines in its nodes."""
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32), "stem.weight")
    nodes = [
        helper.make_node("Conv", ["x", "stem.weight"], ["conv"], "node_conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["y"], "node_relu"),
    ]
    said: list[dict[str, Any]] = [
        {"name_scopes": ["", "stem", "conv2d"],
         "class_hierarchy": ["net.Net", "torch.nn.modules.conv.Conv2d", "aten.conv2d.default"],
         "stack_trace": trace(line)},
        {"name_scopes": ["", "relu"], "class_hierarchy": ["net.Net", "aten.relu.default"],
         "stack_trace": trace(line + 1)},
    ]
    for node, facts in zip(nodes, said, strict=True):
        for key, value in facts.items():
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=str(value))
    sizes = {"x": [1, 3, 8, 8], "y": [1, 8, 8, 8]}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, size) for n, size in sizes.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def trace(line: int) -> str:
    inner = "/usr/lib/python3/site-packages/torch/nn/modules/conv.py"
    return f'File "{CODE}", line {line}, in forward\n  File "{inner}", line 548, in forward\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the model; the folder."""
    folder = tmp_path_factory.mktemp("sources")
    onnx.save(model(), folder / "net.onnx")
    samples = np.random.default_rng(1).normal(0, 1, (24, 3, 8, 8)).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    (folder / "net.toml").write_text(RECIPE)
    assert main(["build", str(folder / "net.toml"), *where(folder)]) == 0
    return folder


def where(folder: Path) -> list[str]:
    return ["--cache", str(folder / "cache"), "--out", str(folder)]


def call(capfd: pytest.CaptureFixture[str], *args: str) -> Ran:
    capfd.readouterr()
    code = main(list(args))
    out, err = capfd.readouterr()
    assert code == 0 and "Traceback" not in err, err
    return Ran(code, out, err)


def test_the_innermost_line_that_is_not_the_librarys() -> None:
    assert line_of(trace(7)) == (CODE, 7)
    assert line_of('File "/x/torchvision/models/resnet.py", line 92, in forward\n') == (
        "/x/torchvision/models/resnet.py", 92,
    )
    assert line_of('File "C:\\net\\torch\\nn\\a.py", line 1, in f\n') == ("", 0) == line_of("")


def test_an_exported_onnx_model_says_where_its_nodes_come_from() -> None:
    found = Onnx().places(_source(model()), Bindings())
    assert found == {
        "node_conv": CodePlace("stem", "Conv2d", CODE, 7), "node_relu": CodePlace("", "Net", CODE, 8),
    }
    plain = model()
    for node in plain.graph.node:
        del node.metadata_props[:]
    assert Onnx().places(_source(plain), Bindings()) == {}


def _source(made: onnx.ModelProto) -> Any:
    from npuflow.frontends import Source

    return Source(made.SerializeToString())


def test_a_tflite_operator_has_the_layer_in_its_name() -> None:
    assert layer_of("net/conv/Relu;net/conv/BiasAdd;net/conv/Conv2D") == "net/conv"
    assert layer_of("StatefulPartitionedCall/net/dense/MatMul") == "net/dense"
    assert layer_of("Identity") == "" == layer_of("StatefulPartitionedCall:0")


def test_names_that_npuflow_made_lead_back_too() -> None:
    held = CodePlaces({"stem": CodePlace("stem", "Conv2d", CODE, 7)}, {"y": ("folded", "stem")})
    assert held.text("stem:q") == held.text("none", "y:f") == held.text("stem@3") == "stem (net.py:7)"
    assert held.row("none") == {} and held.row("stem")["source"]["line"] == 7


def test_profile_view_and_why_accuracy_name_module_and_line(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = str(place / "net" / "model.npu")
    stem = {"module": "stem", "kind": "Conv2d", "file": CODE, "line": 7}
    (layer,) = [one for one in call(capfd, "profile", program, "--json").lines if one["event"] == "layer"]
    assert layer["source"] == stem and "stem (net.py:7)" in call(capfd, "profile", program).out
    assert all(
        one["source"] == stem for one in call(capfd, "profile", program, "--commands", "--json").lines
        if one["event"] == "command" and one["layer"] == layer["name"]
    )
    store = Store(place / "cache")
    (root,) = (place / "cache" / "roots").glob("*.json")
    shown = network(store, root.stem)
    assert shown is not None
    assert {row["name"]: row["source"] for row in shown["layers"] if "source" in row} == {"node_conv": stem}
    recipe = [str(place / "net.toml"), *where(place)]
    said = call(capfd, "why", "accuracy", *recipe)
    assert "stem (net.py:7)" in said.out
    (ledger,) = call(capfd, "why", "accuracy", *recipe, "--json").lines
    assert any(entry.get("source") == stem for entry in ledger["entries"])


def test_a_moved_line_runs_no_step_that_computes(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(70), place / "net.onnx")
    try:
        ran = call(capfd, "build", str(place / "net.toml"), *where(place), "--json")
        steps = {line["stage"] for line in ran.lines if line["event"] == "step" and line["status"] == "ran"}
        assert steps <= {"model", "sources", "rewrite_check"} and "sources" in steps
        assert CodePlaces.beside(place / "net" / "model.npu").places["node_conv"].line == 70
    finally:
        onnx.save(model(), place / "net.onnx")
        call(capfd, "build", str(place / "net.toml"), *where(place))


def test_model_explorer_takes_the_files(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The graph's nodes are whole, edges lead to nodes, and node data name them; where the package is
    installed (NPUFLOW_MODEL_EXPLORER: its Python), its own classes write the same."""
    folder, cache = place / "explorer", ["--cache", str(place / "cache")]
    call(capfd, "export", "explorer", str(place / "net.toml"), "-o", str(folder), *cache)
    (graph,) = json.loads((folder / "graph.json").read_text())["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) and {"input x", "node_conv"} < set(nodes)
    assert nodes["node_conv"]["namespace"] == "stem"
    assert {"key": "source", "value": f"{CODE}:7"} in nodes["node_conv"]["attrs"]
    edges = [edge for node in graph["nodes"] for edge in node.get("incomingEdges", ())]
    assert len(edges) == len(nodes) - 1 and {edge["sourceNodeId"] for edge in edges} < set(nodes)
    data = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "graph"}
    assert {"cycles", "macs", "sqnr"} <= set(data) <= set(FIGURES)
    assert all("node_conv" in one["results"] and set(one["results"]) < set(nodes) for one in data.values())
    python = os.environ.get("NPUFLOW_MODEL_EXPLORER")
    if python is None and importlib.util.find_spec("model_explorer") is None:
        return
    words = [python or sys.executable, "-c", JUDGE, str(folder)]
    judged = subprocess.run(words, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stderr


JUDGE = """
import json, sys, pathlib
from model_explorer import graph_builder as g, node_data_builder as n
for path in pathlib.Path(sys.argv[1]).glob("*.json"):
    body = json.loads(path.read_text())
    if path.stem == "graph":
        for graph in body["graphs"]:
            for node in graph["nodes"]:
                made = g.GraphNode(**node)
                [g.IncomingEdge(**edge) for edge in made.incomingEdges]
                [g.KeyValue(**one) for one in made.attrs]
                [g.MetadataItem(**one) for one in made.outputsMetadata]
        continue
    results = {name: n.NodeDataResult(**one) for name, one in body["results"].items()}
    steps = [n.GradientItem(**one) for one in body["gradient"]]
    made = n.GraphNodeData(results, body["name"], gradient=steps)
    theirs = json.loads(made.to_json_string())
    assert all(theirs[key] == value for key, value in body.items()), path
"""


def test_layers_of_one_name_are_nodes_of_their_own() -> None:
    rows = [
        {"name": "same", "op": "add", "inputs": ["x"], "outputs": ["a"], "cycles": 1.0},
        {"name": "same", "op": "add", "inputs": ["a", "x"], "outputs": ["b"], "cycles": 2.0},
    ]
    found = dict(documents({"nodes": rows}, "net", CodePlaces()))
    nodes = found["graph"]["graphs"][0]["nodes"]
    assert [node["id"] for node in nodes] == ["input x", "a", "b"] and set(found) == {"graph", "cycles"}
    assert [edge["sourceNodeId"] for edge in nodes[2]["incomingEdges"]] == ["a", "input x"]
