"""Networks whose weights are fed to sessions and not copied into models: every step gives what it gives of
the same network in one piece. `[parse] max_weights` takes a small network the way of one above 2 GB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from npuflow.base.errors import NpuflowError
from npuflow.flow.run_state import Result
from npuflow.onnx.external import read_model
from npuflow.onnx.fed import FedModel
from npuflow.stages.qdq import DATA, FILE
from tests.networks import recipes
from tests.stages.builds import made, products

LIMIT = '[parse]\nmax_weights = "1KB"\n'
STEPS = """
[quantize]
weights = { bits = 6, per = "tensor" }
[equalize]
[correct]
[precision]
strategy = "greedy"
sqnr_db = 36.0
[evaluate]
source = "calib.npz"
metric = "sqnr"
"""


def network(folder: Path) -> None:
    """Convolutions, a sum, products with and without a bias, their tensors in a file beside the model; every
    weight has a kilobyte or more."""
    rng, tensors, nodes = np.random.default_rng(3), list[onnx.TensorProto](), list[onnx.NodeProto]()

    def weight(name: str, *shape: int) -> str:
        spread = rng.uniform(0.3, 3.0, (shape[0], *(1,) * (len(shape) - 1)))
        values = rng.standard_normal(shape) * spread / np.sqrt(np.prod(shape[1:]))
        tensors.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def bias(name: str, size: int) -> str:
        tensors.append(numpy_helper.from_array(rng.normal(0, 0.5, size).astype(np.float32), name))
        return name

    def node(op: str, *inputs: str, out: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [out], out, **attributes))
        return out

    stem = node("Conv", "x", weight("w0", 16, 8, 3, 3), bias("b0", 16), out="stem", pads=[1, 1, 1, 1])
    clipped = node("Relu", stem, out="clipped")
    wide = node("Conv", clipped, weight("w1", 16, 16, 1, 1), bias("b1", 16), out="wide")
    both = node("Add", wide, clipped, out="both")
    flat = node("Flatten", node("GlobalAveragePool", both, out="mean"), out="flat")
    head = node("Gemm", flat, weight("w2", 32, 16), bias("b2", 32), out="head", transB=1)
    node("MatMul", head, weight("w3", 32, 16), out="logits")
    ports = [helper.make_tensor_value_info("x", 1, [1, 8, 6, 6])], \
        [helper.make_tensor_value_info("logits", 1, [1, 16])]
    graph = helper.make_graph(nodes, "net", *ports, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(
        model, folder / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=256,
    )
    np.savez(folder / "calib.npz", x=rng.normal(0.3, 1.0, (16, 8, 6, 6)).astype(np.float32))


def recipe(folder: Path, text: str) -> Path:
    folder.mkdir()
    network(folder)
    (folder / "net.toml").write_text(recipes.RECIPE + text)
    return folder / "net.toml"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Result]]:
    """The same network built in one piece and with its weights fed."""
    base, found = tmp_path_factory.mktemp("large"), {}
    for name, more in (("whole", ""), ("fed", LIMIT)):
        path = recipe(base / name, STEPS + more)
        found[name] = path, made(path, until="report")
    return found


def both(pair: dict[str, tuple[Path, Result]], stage: str) -> tuple[Any, Any]:
    (whole,), (fed,) = (products(*pair[name], stage) for name in ("whole", "fed"))
    return whole, fed


@pytest.mark.slow
def test_the_parts_of_the_network_hold_no_weights(pair: dict[str, tuple[Path, Result]]) -> None:
    whole, fed = both(pair, "parse")
    assert (whole.graph.fed, fed.graph.fed) == (0, 256)
    path, result = pair["fed"]
    folder = path.parent / "cache" / "objects"
    held = [f.parent for f in folder.rglob("segment.onnx")]
    assert result.outputs["parse"] and held
    for one in held:
        model = onnx.load(one / "segment.onnx")
        assert not [t.name for t in model.graph.initializer if len(t.raw_data) >= 256]
        assert len(model.graph.input) >= 4          # x, and weights


@pytest.mark.slow
def test_statistics_thresholds_and_corrections_are_the_same(pair: dict[str, tuple[Path, Result]]) -> None:
    whole, fed = both(pair, "thresholds")
    assert set(whole.ranges) == set(fed.ranges)
    for name, span in whole.ranges.items():
        np.testing.assert_allclose(fed.ranges[name], span, rtol=1e-4, atol=1e-5, err_msg=name)
    whole, fed = both(pair, "correct")
    assert [(t.correction, t.layer, t.kept) for t in fed.trials] == \
        [(t.correction, t.layer, t.kept) for t in whole.trials]
    assert {"stem", "wide", "head"} <= {t.layer for t in fed.trials if t.correction == "bias"}


@pytest.mark.slow
def test_the_search_takes_the_same_widths(pair: dict[str, tuple[Path, Result]]) -> None:
    whole, fed = both(pair, "precision")
    assert whole.overrides and fed.overrides == whole.overrides
    for a, b in zip(whole.after, fed.after, strict=True):
        assert abs(a.sqnr - b.sqnr) < 0.2


@pytest.mark.slow
def test_fidelity_evaluation_and_the_checks_are_the_same(pair: dict[str, tuple[Path, Result]]) -> None:
    whole, fed = both(pair, "fidelity")
    assert set(whole.tensors) == set(fed.tensors)
    for name, one in whole.tensors.items():
        assert abs((one.sqnr or 0.0) - (fed.tensors[name].sqnr or 0.0)) < 0.2, name
    whole, fed = both(pair, "evaluate")
    assert abs(whole.score.figures["sqnr_db"] - fed.score.figures["sqnr_db"]) < 0.1
    _, checked = both(pair, "rewrite_check")
    assert checked.samples == 2 and not checked.reason and not checked.worst.moved
    _, simulated = both(pair, "simulate")
    assert simulated.checks and not any(c.different or c.executor for c in simulated.checks)
    known, compared = both(pair, "qdq_check")
    assert compared.samples and not compared.reason
    # a last bit of a scale may make a tie of some code, and nothing worse
    assert {compared.verdict.kind, known.verdict.kind} <= {"nothing", "rounding"}
    assert abs(compared.verdict.equal - known.verdict.equal) < 0.01


@pytest.mark.slow
def test_programs_are_the_same(pair: dict[str, tuple[Path, Result]]) -> None:
    whole, fed = both(pair, "codegen")
    assert [len(words) for words in whole.program.commands] == [len(words) for words in fed.program.commands]
    a, b = (np.frombuffer(one.program.const, np.uint8) for one in (whole, fed))
    # kernels add up in another order, which moves the last bit of a scale
    assert len(a) == len(b) and np.mean(a == b) > 0.95


@pytest.mark.slow
def test_the_qdq_model_has_its_tensors_beside_it(
    pair: dict[str, tuple[Path, Result]], tmp_path: Path
) -> None:
    _, fed = both(pair, "qdq")
    assert isinstance(fed.exported.model, FedModel)
    path, _ = pair["fed"]
    out = path.parent / "out" / "net"
    data = np.load(path.parent / "calib.npz")["x"][:1]
    shown = [onnxruntime.InferenceSession(str(file)).run(None, {"x": data})[0] for file in (
        out / FILE, pair["whole"][0].parent / "out" / "net" / FILE,
    )]
    np.testing.assert_allclose(*shown, atol=0.05)
    assert (out / DATA).stat().st_size > 2048
    onnx.checker.check_model(str(out / FILE))
    again = read_model(out / FILE)
    assert isinstance(again, FedModel) and set(again.constants) == set(fed.exported.model.constants)
    alone = tmp_path / FILE
    alone.write_bytes((out / FILE).read_bytes())
    with pytest.raises(NpuflowError, match="external data of tensor"):
        read_model(alone)


def alone(folder: Path, limit: str) -> Path:
    """The recipe of one product whose weight, of 2 KB, is all that the network holds."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    weight = numpy_helper.from_array(rng.normal(0, 0.3, (32, 16)).astype(np.float32), "w")
    ports = [helper.make_tensor_value_info(n, 1, [1, s]) for n, s in (("x", 32), ("y", 16))]
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([product], "one", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    np.savez(folder / "calib.npz", x=rng.normal(0.3, 1.0, (16, 32)).astype(np.float32))
    (folder / "net.toml").write_text(recipes.RECIPE + STEPS + limit)
    return folder / "net.toml"


def test_one_weight_beyond_the_limit(tmp_path: Path) -> None:
    """With corrections and the search: the weight is no part that could be left out of a model."""
    found = {}
    for name, limit in (("whole", ""), ("fed", LIMIT)):
        path = alone(tmp_path / name, limit)
        found[name] = products(path, made(path, until="report"), "parse", "precision", "codegen", "simulate")
    (whole, widths, program, _), (fed, fed_widths, fed_program, simulated) = found.values()
    assert (whole.graph.fed, fed.graph.fed) == (0, 256)
    assert widths.overrides and fed_widths.overrides == widths.overrides
    assert simulated.checks and not any(c.different or c.executor for c in simulated.checks)
    a, b = (np.frombuffer(one.program.const, np.uint8) for one in (program, fed_program))
    assert len(a) == len(b) and np.mean(a == b) > 0.95


def test_the_limit_is_a_size(tmp_path: Path) -> None:
    path = recipe(tmp_path / "net", '[parse]\nmax_weights = "much"\n')
    with pytest.raises(NpuflowError, match="much"):
        made(path, until="parse")
