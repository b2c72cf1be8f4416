"""PyTorch modules: exported programs, TorchScript and Python functions, judged by eager's own outputs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow import build
from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.tables_files import existing_file
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.input.sources import address, gathered
from npuflow.ir.packed import unpack
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run


def read(path: Path, bindings: Bindings = Bindings()) -> Reading:  # noqa: B008
    reader = FRONTENDS["torch"]()
    return reader.read(reader.gather(path), bindings)


def test_functions_are_known_by_file_and_name(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("def a(): ...\ndef b(): ...\n")
    one, other = (existing_file(f"python:nets.py:{name}", tmp_path) for name in "ab")
    beside = existing_file("python:nets:a", tmp_path)
    assert one.digest() == beside.digest() != other.digest()
    assert address(one) == tmp_path / "nets.py:a" and FRONTENDS["torch"]().files(address(one)) == (one.path,)
    for text in ("python:nets.py", "python:other.py:a", "python:no_such_module_anywhere:a"):
        with pytest.raises(NpuflowError):
            existing_file(text, tmp_path)


def module(folder: Path, body: str, example: str = "torch.zeros(1, 3, 8, 8)") -> Path:
    """A file with a function `make` that returns (module, example inputs)."""
    text = f"""
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Net(nn.Module):
    {textwrap.indent(textwrap.dedent(body), "        ").lstrip()}

    def make():
        torch.manual_seed(0)
        return Net(), ({example},)
    """
    rows = textwrap.dedent(
        text.replace("\n    class Net(nn.Module):\n    ", "\n    class Net(nn.Module):\n        ")
    )
    (folder / "nets.py").write_text(rows)
    return folder / "nets.py:make"


IMAGE = """
def __init__(self):
    super().__init__()
    self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
    self.wide = nn.Conv2d(8, 8, 3, padding="same", groups=8)
    self.up = nn.ConvTranspose2d(8, 8, 2, 2)
    self.norm = nn.GroupNorm(2, 8)
    self.act = nn.PReLU(8)
    self.head = nn.Linear(8, 5)
def forward(self, x):
    y = self.stem(x)
    y = y + F.hardswish(self.wide(y)) * 0.5
    y = self.act(self.norm(self.up(y)))
    y = F.interpolate(F.max_pool2d(y, 2), scale_factor=2, mode="bilinear") + F.avg_pool2d(y, 3, 1, 1)
    a, b = y.chunk(2, 1)
    y = torch.cat([b, F.pad(a, (0, 0, 0, 0)).roll(1, 2)], 1)
    y = F.pixel_shuffle(y.reshape(1, 4, 2, 64), 2).flatten(1)[:, :8]
    return F.log_softmax(self.head(y), -1)
"""
SEQUENCE = """
def __init__(self):
    super().__init__()
    self.embed = nn.Embedding(11, 8)
    self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
    self.gru = nn.GRU(12, 8)
    self.norm = nn.LayerNorm(8)
    self.rms = nn.RMSNorm(8)
    self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
def forward(self, x):
    y, _ = self.lstm(self.embed(x))
    y, last = self.gru(y)
    y = self.rms(self.norm(y))
    q = y.unsqueeze(1)
    y = y + F.scaled_dot_product_attention(q, q, q, is_causal=True).squeeze(1)
    return self.layer(y), last
"""


def eager(path: Path, feeds: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
    """The module of the function, and what it gives."""
    import torch

    scope: dict[str, Any] = {}
    exec(compile(path.with_name("nets.py").read_text(), "nets", "exec"), scope)
    net, example = scope["make"]()
    net.eval()
    with torch.no_grad():
        made = net(*(torch.from_numpy(f) for f in feeds))
    return (net, example), [v.numpy() for v in (made if isinstance(made, tuple) else (made,))]


def close(reading: Reading, feeds: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    graph = verify(reading.graph, "reading")
    found = run(export_model(graph), dict(zip(graph.inputs, feeds, strict=True)))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() <= 1e-4 * np.abs(theirs).max()


def kinds(reading: Reading) -> set[str]:
    return {node.op.onnx_type()[1] for node in reading.graph.nodes}


def test_a_function_gives_eager_s_outputs(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    path = module(tmp_path, IMAGE)
    feeds = [np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)]
    reading = read(path)
    close(reading, feeds, eager(path, feeds)[1])
    origins = {name for node in reading.graph.nodes for name in node.origin}
    assert {"stem.0", "wide", "norm", "head"} <= origins and reading.graph.inputs == ("x",)


def test_norms_attention_and_recurrent_layers_stay_whole(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    path = module(tmp_path, SEQUENCE, "torch.zeros(1, 5, dtype=torch.int64)")
    feeds = [np.array([[1, 4, 0, 9, 10]], np.int64)]
    reading = read(path)
    close(reading, feeds, eager(path, feeds)[1])
    assert {"LSTM", "GRU", "LayerNormalization", "RMSNormalization", "Attention"} <= kinds(reading)


def test_exported_programs_and_torchscript(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    path = module(tmp_path, IMAGE)
    feeds = [np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)]
    (net, example), wanted = eager(path, feeds)
    torch.export.save(torch.export.export(net, example), tmp_path / "net.pt2")
    close(read(tmp_path / "net.pt2"), feeds, wanted)
    torch.jit.save(torch.jit.trace(net, example), tmp_path / "net.pt")
    close(read(tmp_path / "net.pt", Bindings(inputs={"x": (1, 3, 8, 8)})), feeds, wanted)
    with pytest.raises(ModelError, match="states no shapes"):
        read(tmp_path / "net.pt")


def test_free_dimensions_take_the_example_s_sizes_or_the_recipe_s(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.flatten(1).relu().sum(1)

    free = {"x": {2: torch.export.Dim("h")}}
    made = torch.export.export(Net(), (torch.zeros(1, 2, 6, 4),), dynamic_shapes=free)
    torch.export.save(made, tmp_path / "net.pt2")
    assert read(tmp_path / "net.pt2").graph.type("x").shape == (1, 2, 6, 4)
    assert read(tmp_path / "net.pt2", Bindings(inputs={"x": (1, 2, 9, 4)})).graph.type("x").shape == (
        1,
        2,
        9,
        4,
    )


def test_mistakes_are_one_error_each(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    (tmp_path / "net.pt2").write_bytes(b"not a program")
    (tmp_path / "net.pt").write_bytes(b"not a program")
    (tmp_path / "bad.py").write_text(
        "import torch\ndef fails(): raise ValueError('no weights here')\ndef other(): return 3\n"
        "class N(torch.nn.Module):\n    def forward(self, x):\n        return x if x.sum() > 0 else -x\n"
        "def branches(): return N(), (torch.zeros(2),)\n"
        "class C(torch.nn.Module):\n    def forward(self, x): return torch.linalg.svd(x).S\n"
        "def unknown(): return C(), (torch.zeros(2, 2),)\n"
    )
    import torch

    for name, more in (("weights.pt", True), ("old.pt", False)):
        torch.save({"w": torch.zeros(2)}, tmp_path / name, _use_new_zipfile_serialization=more)
    for name, words in (
        ("net.pt2", "cannot be loaded"),
        ("net.pt", "cannot be loaded"),
        ("bad.py:fails", "no weights here"),
        ("bad.py:other", "must return"),
        ("bad.py:branches", "does not export"),
        ("bad.py:absent", "no function"),
        ("bad.py:unknown", "cannot be converted"),
        ("bad.py", "has to be named"),
        ("weights.pt", "holds weights or a pickled module"),
        ("old.pt", "holds weights or a pickled module"),
    ):
        with pytest.raises(NpuflowError) as caught:
            read(tmp_path / name)
        assert words in str(caught.value), str(caught.value)


def test_a_build_follows_weights_and_code(tmp_path: Path) -> None:
    """Another seed is another state; the file's other functions do not matter to the steps behind."""
    pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    module(tmp_path, IMAGE)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32))
    (tmp_path / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "python:nets.py:make"\n[data]\nsource = "x.npy"\n'
    )

    def again() -> Any:
        return build(tmp_path / "net.toml", cache=tmp_path / "cache", until="rewrite_check")

    first = again()
    assert again().ran == 0
    nets = (tmp_path / "nets.py").read_text()
    (tmp_path / "nets.py").write_text(nets + "\ndef unused():\n    return 1\n")
    assert again().status["parse"] == {None: "hit"}
    (tmp_path / "nets.py").write_text(nets.replace("manual_seed(0)", "manual_seed(1)"))
    assert again().outputs["parse"] != first.outputs["parse"]


def test_the_command_line_takes_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    module(tmp_path, IMAGE)
    monkeypatch.chdir(tmp_path)
    name, reader, source = gathered(Path("python:nets.py:make"))
    assert name == "torch" and reader.read(source, Bindings()).graph.inputs == ("x",)


def test_torchscript_that_computes_with_its_sizes_has_fixed_shapes(tmp_path: Path) -> None:
    """Sizes that a traced module reads from its input are those that the recipe gives."""
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")

    class Shuffled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            n, c, h, w = x.size()
            return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)

    x, module = torch.randn(1, 4, 6, 7), Shuffled().eval()
    torch.jit.save(torch.jit.trace(module, x), tmp_path / "net.pt")
    graph = read(tmp_path / "net.pt", Bindings(inputs={"x": (1, 4, 6, 7)})).graph
    (made,) = run(export_model(graph), {graph.inputs[0]: x.numpy()})
    assert (np.asarray(made) == module(x).numpy()).all()


def test_torchscript_that_pads_by_arithmetic_on_sizes(tmp_path: Path) -> None:
    """The tracer records this arithmetic on tensors; the numbers are constants of the fixed shapes."""
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")

    class Windows(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            n, c, h, w = x.shape
            more_h, more_w = (4 - h % 4) % 4, max((-(-w // 3) - 1) * 3 + 4 - w, 0)
            y = torch.nn.functional.pad(x, (more_w // 2, more_w - more_w // 2, 0, more_h))
            n, c, h, w = y.shape
            y = y.view(n, c, h // 4, 4, w).permute(0, 2, 1, 3, 4).reshape(n * (h // 4), c, 4, w)
            return y * (c // 2) ** -0.5 + x.mean()

    x, module = torch.randn(1, 4, 6, 7), Windows().eval()
    torch.jit.save(torch.jit.trace(module, x), tmp_path / "net.pt")
    reading = read(tmp_path / "net.pt", Bindings(inputs={"x": (1, 4, 6, 7)}))
    close(reading, [x.numpy()], [module(x).numpy()])


@pytest.mark.parametrize("kind", ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d"])
def test_adaptive_pooling_of_any_size(kind: str) -> None:
    """Windows that are uneven, overlap, repeat, or are one value wide."""
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    from npuflow.frontends.torch.convert import packed

    module = getattr(torch.nn, kind)((6, 3))
    for size in ((2, 2), (6, 5), (13, 7), (3, 8)):
        x = torch.randn(1, 3, *size)
        graph, _ = unpack(packed(torch.export.export(module, (x,)))[0])
        close(Reading(graph), [x.numpy()], [module(x).numpy()])


def test_files_of_weights_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        gathered(tmp_path / "weights.pth")
    assert "hold weights and no network" in caught.value.hint


def test_inputs_of_half_precision_keep_their_type(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU()).eval()
    x = torch.randn(1, 2, 6, 6)
    torch.export.save(torch.export.export(net.half(), (x.half(),)), tmp_path / "net.pt2")
    graph = verify(read(tmp_path / "net.pt2").graph, "reading")
    assert graph.type(graph.inputs[0]).dtype == "float16"
    (found,) = run(export_model(graph), {graph.inputs[0]: x.half().numpy()})
    wanted = net.float()(x).detach().numpy()
    assert np.abs(found.astype(np.float32) - wanted).max() < 1e-2 * np.abs(wanted).max()


SCORES = """
def __init__(self):
    super().__init__()
    self.conv = nn.Conv2d(3, 4, 3)
    self.fc = nn.Linear(4, 2)
def forward(self, x):
    y = self.conv(x).relu()
    return {"map": y, "score": self.fc(y.mean((2, 3))), "rest": {"sums": [y.sum(1), x]}}
"""


def test_outputs_of_dictionaries_have_their_keys_as_names(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = module(tmp_path, SCORES)
    scope: dict[str, Any] = {}
    exec((tmp_path / "nets.py").read_text(), scope)
    net, _ = scope["make"]()
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.export.save(torch.export.export(net.eval(), (x,)), str(tmp_path / "net.pt2"))
    for path in (source, tmp_path / "net.pt2"):
        graph = read(path).graph
        assert set(graph.outputs) == {"map", "score", "rest.sums.0", "rest.sums.1"}
        made = dict(zip(graph.outputs, run(export_model(graph), {"x": x.numpy()}), strict=True))
        with torch.no_grad():
            wanted = net(x)
        for name, one in (("map", wanted["map"]), ("score", wanted["score"]), ("rest.sums.1", x)):
            assert np.allclose(made[name], one.numpy(), atol=1e-5)


def test_a_free_batch_is_one_or_what_the_recipe_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module(tmp_path, SCORES)
    scope: dict[str, Any] = {}
    exec((tmp_path / "nets.py").read_text(), scope)
    net, _ = scope["make"]()
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for name, least in (("net.pt2", None), ("two.pt2", 2)):
        batch = torch.export.Dim("batch", **({} if least is None else {"min": least}))
        program = torch.export.export(net.eval(), (x,), dynamic_shapes={"x": {0: batch}})
        torch.export.save(program, str(tmp_path / name))
    found = read(tmp_path / "net.pt2")
    assert found.graph.type("x").shape == (1, 3, 8, 8) and any("batch" in note for note in found.notes)
    made = dict(zip(found.graph.outputs, run(export_model(found.graph), {"x": x[:1].numpy()}), strict=True))
    with torch.no_grad():
        assert np.allclose(made["score"], net(x[:1])["score"].numpy(), atol=1e-5)
    three = read(tmp_path / "net.pt2", Bindings(inputs={"x": (3, 3, 8, 8)}))
    assert three.graph.type("x").shape == (3, 3, 8, 8)
    assert read(tmp_path / "two.pt2").graph.type("x").shape in ((1, 3, 8, 8), (4, 3, 8, 8))


BLOCKS = """
def __init__(self):
    super().__init__()
    self.stem = nn.Conv2d(3, 4, 3)
    self.rest = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 1))
def forward(self, x):
    x = self.stem(x)
    return self.rest(x) * 2.0
"""


def test_operators_lead_back_to_module_and_line_and_the_graph_does_not_hold_it(tmp_path: Path) -> None:
    """Of exported programs and of functions; names are those of the graph, moved or not."""
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    reader, found = FRONTENDS["torch"](), {}
    for name, blank in (("near", ""), ("far", "\n\n\n")):
        folder = tmp_path / name
        folder.mkdir()
        path = module(folder, BLOCKS)
        file = path.with_name("nets.py")
        file.write_text(file.read_text().replace("class Net", f"{blank}class Net"))
        (net, example), _ = eager(path, [np.zeros((1, 3, 8, 8), np.float32)])
        torch.export.save(torch.export.export(net, example), folder / "net.pt2")
        for one in (folder / "net.pt2", path):
            found[name, one.suffix[:4]] = reader.places(reader.gather(one), Bindings()), read(one).graph
    for kind in (".pt2", ".py:"):
        (places, graph), (others, moved) = found["near", kind], found["far", kind]
        assert set(places) == {node.name for node in graph.nodes} == set(others) and graph == moved
        stem, last = places["stem"], places["rest.1"]
        assert (stem.module, stem.kind) == ("stem", "Conv2d") and "nets" in stem.file
        assert last.module == "rest.1" and last.line == stem.line + 1
        assert {name: one.line + 3 for name, one in places.items()} == {n: o.line for n, o in others.items()}
