"""The verbs that write recipes and show what is there: show, schema, new, and the help."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path

import onnx
import pytest
from commandline import Npuflow
from onnx import TensorProto, helper

import npuflow.cli
from npuflow.cli._app import verbs


def test_show_recipe_writes_every_default_and_builds_the_same(npuflow: Npuflow, project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub/base.toml").write_text('[texts]\nsource = "../texts/*.txt"\n[count]\nleast = 1\n')
    (project / "words.toml").write_text('extends = "sub/base.toml"\n[count]\ncase = "keep"\n')
    ran = npuflow("show", "recipe", "words.toml", "--set", "page.title=Hi")
    assert ran.code == 0
    assert tomllib.loads(ran.out) == {
        "texts": {"source": "texts/*.txt"},
        "count": {"case": "keep", "least": 1},
        "page": {"title": "Hi", "fail": ""},
        "build": {
            "remote_mode": "read-write",
            "remote_push": "made",
            "scheduler": "threads",
        },
    }
    assert "least = 1  # sub/base.toml:4" in ran.out
    assert 'title = "Hi"  # --set page.title=Hi' in ran.out
    assert 'fail = ""  # default' in ran.out
    (project / "whole.toml").write_text(ran.out)
    npuflow("build", "words.toml", "--set", "page.title=Hi")
    assert npuflow("build", "whole.toml", "--json").lines[-1]["ran"] == 0


def test_show_recipe_tells_all_faults(npuflow: Npuflow, project: Path) -> None:
    (project / "words.toml").write_text('[count]\nleast = "x"\ncase = "kep"\n')
    ran = npuflow("show", "recipe", "words.toml")
    assert ran.code == 2
    assert ran.err.count("error:") == 3  # and the missing source


def test_show_a_step_and_its_log_also_after_a_hit(npuflow: Npuflow) -> None:
    assert npuflow("show", "total", "words.toml").code == 2  # nothing built yet
    npuflow("build", "words.toml")
    npuflow("build", "words.toml")
    shown = npuflow("show", "total", "words.toml").out
    assert (
        "step      total" in shown and 'count = {"case": "fold", "least": 1}' in shown and "counts" in shown
    )
    assert npuflow("show", "total", "words.toml", "--log").out == "4 different words\n"
    assert npuflow("show", "words", "words.toml", "--log").out.startswith(
        "== one.txt\none.txt: 8 characters\n"
    )
    assert npuflow("show", "words/two.txt", "words.toml", "--log").out == "two.txt: 4 characters\n"
    digest = shown.split("artifact  Total ")[1].split("\n")[0]
    assert "counts" in npuflow("show", digest[:12]).out
    assert "no item" in npuflow("show", "words/three.txt", "words.toml").err
    assert "no artifact" in npuflow("show", "x3:zz").err


def test_schema_is_a_schema(npuflow: Npuflow, project: Path) -> None:
    schema = json.loads(npuflow("schema").out)
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {
        "components", "extends", "texts", "count", "page", "build", "sweep",
    }
    assert schema["properties"]["count"]["properties"]["least"]["maximum"] == 99
    assert schema["properties"]["texts"]["required"] == ["source"]
    assert npuflow("schema", "-o", "s.json").code == 0
    assert json.loads((project / "s.json").read_text()) == schema


def model(path: Path, shape: list[int | str]) -> None:
    value = helper.make_tensor_value_info
    inputs = [value("image", TensorProto.FLOAT, shape), value("w", TensorProto.FLOAT, [1])]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    node = helper.make_node("Mul", ["image", "w"], ["out"])
    graph = helper.make_graph([node], "g", inputs, [value("out", TensorProto.FLOAT, shape)], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))


@pytest.mark.parametrize("shape", [[1, 3, 8, 8], ["N", 3, 8, 8]])
def test_new_writes_a_recipe_with_the_models_ports(
    npuflow: Npuflow, project: Path, shape: list[int | str]
) -> None:
    (project / "models").mkdir()
    model(project / "models/net.onnx", shape)
    ran = npuflow("new", "models/net.onnx")
    assert ran.code == 0 and ran.out == "wrote net.toml; next: npuflow plan net.toml\n"
    text = (project / "net.toml").read_text()
    assert "#   input   image  image: " not in text
    assert f"float[{', '.join(map(str, shape))}]" in text
    assert "#   input   w" not in text  # a weight, although listed as an input
    assert tomllib.loads(text)["texts"] == {"source": ""}
    assert '# case = "fold"' in text and "one of keep, fold" in text
    ran = npuflow("new", "models/net.onnx")
    assert ran.code == 2 and "there already" in ran.err
    assert npuflow("new", "models/net.onnx", "--force").code == 0
    assert npuflow("new", "models/net.onnx", "-o", "-").out.startswith("# Recipe for net.onnx")


def test_new_refuses_what_is_no_model(npuflow: Npuflow, project: Path) -> None:
    for name in ("words.toml", "gone.onnx"):
        ran = npuflow("new", name, "-o", "x.toml")
        assert ran.code == 2
        assert not (project / "x.toml").exists()


def test_every_verb_has_help_and_is_a_file(npuflow: Npuflow) -> None:
    ran = npuflow("--help")
    assert ran.code == 0
    for verb in verbs():
        assert f"  {verb} " in ran.out
        shown = npuflow(verb, "--help")
        assert shown.code == 0 and "Usage: npuflow " + verb in shown.out
    assert npuflow("--version").out == f"npuflow {npuflow_version()}\n"
    assert npuflow().code in (0, 2)


def npuflow_version() -> str:
    import npuflow

    return npuflow.__version__


def test_verb_files_import_lightly() -> None:
    """Help imports every verb; their tops must cost nothing."""
    slow = {
        "asyncio",
        "multiprocessing",
        "concurrent",
        "unittest",
        "xml",
        "http",
        "urllib",
        "email",
        "ssl",
        "tkinter",
    }
    allowed = {"typer", "npuflow", *sys.stdlib_module_names} - slow
    for path in sorted(Path(npuflow.cli.__file__).parent.glob("[!_]*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name}: {name}"
                light = ("npuflow.base", "npuflow.cli", "npuflow.flow.recipe")
                assert not name.startswith("npuflow.") or name.startswith(light), f"{path.name}: {name}"
