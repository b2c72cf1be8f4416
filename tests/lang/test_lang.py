"""Networks written in Python: functions of all operators, graphs, files, and builds with a recipe's keys."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuflow
from npuflow import lang
from npuflow.base.errors import ModelError, NpuflowError, UsageError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.op import OPS
from npuflow.ir.packed import pack, unpack
from npuflow.ir.text import to_text
from npuflow.ir.types import QuantType
from npuflow.ir.verify import verify
from npuflow.lang.functions import names
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def small() -> lang.Tensor:
    x = lang.input("x", (1, 3, 8, 8))
    c = lang.conv(x, draw(4, 3, 3, 3), draw(4), strides=(2, 2), pads=(1, 1, 1, 1), name="stem")
    y = lang.relu(c) * 2.0 + c
    return lang.softmax(lang.gemm(lang.reshape(y, (1, -1)), draw(64, 5)), name="y")


def test_a_network_is_a_graph_of_registry_operators() -> None:
    graph = verify(lang.graph(small()), "writing it")
    assert [type(n.op).__name__ for n in graph.nodes] == [
        "Conv", "Relu", "Mul", "Add", "Reshape", "Gemm", "Softmax"
    ]
    assert graph.nodes[0].origin == ("stem",) and graph.outputs == ("y",)
    feeds = {"x": draw(1, 3, 8, 8)}
    (found,) = run(export_model(graph), feeds)
    assert found.shape == (1, 5) and abs(found.sum() - 1) < 1e-5


@pytest.mark.parametrize("name", names())
def test_every_operator_has_a_function_with_signature_and_docs(name: str) -> None:
    made = getattr(lang, name)
    signature = inspect.signature(made)
    assert made.__doc__ and "name" in signature.parameters and name in dir(lang)


@pytest.mark.parametrize("name", [n for n in names() if OPS[n].onnx and not OPS[n].domain])
def test_functions_give_what_the_operators_samples_give(name: str) -> None:
    """Every sample of the published suite, written through the operator's function."""
    compared = 0
    for sample in OPS[name].samples(np.random.default_rng(1)):
        arrays = [x for x in sample.inputs if x is not None]
        ids = [lang.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        from npuflow.ir.builder import Builder

        builder = Builder()
        for one in ids:
            builder.input(one.name, one.type)
        if sample.op.clip is not None or len(arrays) != len(sample.inputs):
            continue
        kinds = sample.op.infer(*(t.type for t in ids))
        outputs = [f"y{i}" for i in range(len(kinds))]
        builder.add(sample.op, [t.name for t in ids], outputs)
        graph = builder.graph([t.name for t in ids], outputs)
        call = sample.op.to_onnx(graph.site(graph.nodes[0]))
        operands: list[Any] = [
            ids[i] if isinstance(i, int) else i for i in (call.inputs or range(len(ids)))
        ]
        made = lang.onnx(call.op_type, *operands, outputs=len(kinds), **call.attributes)
        rows = made if isinstance(made, tuple) else (made,)
        mine = run(export_model(lang.graph(list(rows), inputs=ids)), dict(zip(
            [t.name for t in ids], arrays, strict=True)))
        for a, b in zip(mine, sample.op.reference(*arrays), strict=True):
            assert np.allclose(a, b, rtol=1e-4, atol=1e-4)
        compared += 1
    assert compared or not list(OPS[name].samples(np.random.default_rng(1))) or OPS[name].fuses_clip


def test_plain_values_get_the_type_that_the_operator_wants() -> None:
    x = lang.input("x", (2, 6))
    assert lang.clip(x, 0, 6).call.nodes[0].op.max == 6.0                     # type: ignore[union-attr]
    assert lang.reshape(x, [3, 4]).shape == (3, 4)
    assert lang.slice(x, [1], [4], [1]).shape == (2, 3)
    assert (1 - x).dtype == "float32" and (x / 2 @ draw(6, 3)).shape == (2, 3)
    a, b = lang.split(x, [2, 4], axis=1)
    assert lang.concat([b, a], axis=1).shape == lang.concat(b, a, axis=1).shape == (2, 6)
    assert lang.add(lang.constant(2.0), 3.0).array == 5.0                       # folded


def test_operators_without_a_file_are_kept_for_rules() -> None:
    x = lang.input("x", (1, 4, 8))
    y = lang.onnx("LayerNormalization", x, np.ones(8, np.float32), axis=-1)
    (node,) = lang.graph(y).nodes
    assert node.op.onnx_type() == ("", "LayerNormalization")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: lang.conv(x, draw(4, 5, 3, 3)), "5 channels"),
        (lambda x: lang.conv(x, draw(4, 3, 3, 3), stride=(2, 2)), "strides"),
        (lambda x: lang.conv(), "missing a required argument"),
        (lambda x: lang.relu("x"), "a tensor of lang.input"),
        (lambda x: lang.onnx("Sphere", x), "Sphere"),
        (lambda x: lang.reshape(x, (7, -1)), "cannot be applied"),
        (lambda x: lang.input("", (1,)), "has a name"),
        (lambda x: lang.constant("text"), "numbers"),
        (lambda x: lang.graph(), "outputs"),
        (lambda x: lang.graph(x + lang.input("x", (1, 3, 8, 8))), "rename"),
        (lambda x: lang.save("net.bin", x), ".npg"),
    ],
)
def test_mistakes_are_clear_errors(wrong: Any, words: str) -> None:
    with pytest.raises(NpuflowError) as caught:
        wrong(lang.input("x", (1, 3, 8, 8)))
    assert isinstance(caught.value, ModelError | UsageError) and words in str(caught.value)


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = lang.sphere


def test_notebooks_show_the_network() -> None:
    y = small()
    assert repr(y) == "<softmax y: float32[1, 5]>" and "Conv" in y._repr_html_()


def test_a_file_holds_graph_and_codes(tmp_path: Path) -> None:
    quant = QuantType(8, True, (0.05,), (3,))
    x = lang.stated(lang.input("x", (1, 4)), quant)
    path = lang.save(tmp_path / "net.npg", lang.relu(x, name="y"))
    reader = FRONTENDS["graph"]()
    found = reader.read(reader.gather(path), Bindings())
    assert to_text(found.graph) == to_text(lang.graph(lang.relu(x, name="y")))
    assert found.stated == {"x": quant}
    assert pack(*unpack(path.read_bytes())) == path.read_bytes()
    with pytest.raises(NpuflowError):
        reader.read(reader.gather(path), Bindings(outputs=("z",)))


def test_codes_may_be_stated_where_a_tensor_is_used() -> None:
    x = lang.input("x", (1, 4))
    found = lang.reading(lang.stated(x, QuantType(8, True, (0.05,))) + x, inputs=[x])
    assert found.graph.inputs == ("x",) and list(found.stated) == ["x"]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    data = bytearray(lang.save(tmp_path / "net.npg", small()).read_bytes())
    reader, refused = FRONTENDS["graph"](), 0
    for i in range(60):
        broken = bytearray(data)
        at = int(RNG.integers(len(broken)))
        broken[at] ^= 1 << (i % 8)
        try:
            reader.read(bytes(broken[: at if i % 3 == 0 else None]), Bindings())
        except NpuflowError as fault:
            assert fault.message
            refused += 1
    assert refused > 20


def test_compile_is_a_recipe_without_a_file(tmp_path: Path) -> None:
    y, samples = small(), draw(4, 3, 8, 8)
    cache, rows = tmp_path / "cache", tmp_path / "x.npy"
    np.save(rows, samples)
    made = npuflow.compile(y, "edge-4t", data=rows, cache=cache, out=tmp_path / "a", until="simulate")
    assert made.result.ran > 0 and made.program is not None
    lang.save(tmp_path / "net.npg", y)
    (tmp_path / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "net.npg"\n[data]\nsource = "x.npy"\n'
    )
    again = npuflow.build(tmp_path / "net.toml", cache=cache, out=tmp_path / "b", until="simulate")
    assert again.ran == 0 and again.outputs == made.result.outputs
    other = npuflow.compile(
        tmp_path / "net.npg", "edge-4t", data={"x": samples}, cache=cache, out=tmp_path / "c",
        until="thresholds", calibrate={"method": "mse"},
    )
    assert other.result.status["model"] == {None: "hit"} and other.result.ran > 0


def test_compile_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    for model, data in ((3, "random"), (small(), 3)):
        with pytest.raises(NpuflowError):
            npuflow.compile(model, "edge-4t", data=data, cache=tmp_path)  # type: ignore[arg-type]


def test_compile_takes_the_table_of_the_model(tmp_path: Path) -> None:
    y, samples = small(), draw(4, 3, 8, 8)
    table = {"inputs": {"x": [1, 3, 8, 8]}}
    part = npuflow.compile(y, "edge-4t", data=samples, cache=tmp_path / "cache", until="parse", model=table)
    assert part.recipe.tables["model"]["inputs"] == {"x": [1, 3, 8, 8]}
    with pytest.raises(NpuflowError, match="without its path"):
        npuflow.compile(y, "edge-4t", cache=tmp_path / "cache", model={"path": "other.onnx"})
