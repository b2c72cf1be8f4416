"""eval, profile and export on a real program; what a user gets wrong is said in words."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from commandline import Ran

from npuflow.cli import _slow, main
from tests.cli.test_rebuild import EXAMPLE, FASHION

EVALUATE = f"""
[evaluate]
source = "{EXAMPLE}/test.npz"
count = 12
metric = "top1"
"""


@pytest.fixture(scope="module")
def built(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fashion example, compiled and judged on twelve labelled images."""
    folder = tmp_path_factory.mktemp("judged")
    shutil.copytree(compiled / "cache", folder / "cache")
    (folder / "net.toml").write_text(FASHION + EVALUATE)
    for stage in ("evaluate", "qdq"):
        where = ["--cache", str(folder / "cache"), "--out", str(folder)]
        assert main(["build", str(folder / "net.toml"), *where, "--until", stage]) == 0
    return folder


def product(built: Path, suffix: str) -> str:
    return str(next(p for p in built.rglob(f"*{suffix}") if "cache" not in p.parts))


def call(
    capfd: pytest.CaptureFixture[str], built: Path, verb: str, *args: str, recipe: str = "net.toml"
) -> Ran:
    capfd.readouterr()
    code = main([verb, str(built / recipe), *args, "--cache", str(built / "cache")])
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    return Ran(code, out, err)


def test_eval_states_the_program_beside_its_float_model(
    built: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = call(capfd, built, "eval")
    assert (
        reported.code == 0
        and "top1" in reported.out
        and "12 samples" in reported.out
        and "SQNR" in reported.out
    )
    (score,) = call(capfd, built, "eval", "--json").lines
    assert score["samples"] == 12 and 0.5 < score["figures"]["top1"] <= 1 and score["npu_macs"] > 0.99
    assert score["delta"]["top1"] == pytest.approx(score["figures"]["top1"] - score["baseline"]["top1"])


def test_eval_takes_programs_and_models_that_the_recipe_did_not_build(
    built: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (own,) = call(capfd, built, "eval", "--json").lines
    (given,) = call(capfd, built, "eval", "--program", product(built, ".npu"), "--json").lines
    assert (
        given["figures"] == own["figures"]
        and given["sqnr_db"] == own["sqnr_db"]
        and given["npu_macs"] == own["npu_macs"]
    )
    (floats,) = call(capfd, built, "eval", "--program", str(EXAMPLE / "fashion.onnx"), "--json").lines
    assert floats["figures"] == own["baseline"] and floats["agreement"] == 1.0
    (qdq,) = call(capfd, built, "eval", "--program", product(built, ".qdq.onnx"), "--json").lines
    assert qdq["samples"] == 12 and qdq["npu_macs"] == 0.0


def test_what_takes_long_says_so_in_a_log(
    built: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Standard error is no terminal here; two seconds are none."""
    monkeypatch.setattr(_slow, "AFTER", 0.0)
    program = product(built, ".npu")
    assert 'net.toml" to measure it, 0 s\n' in call(capfd, built, "eval").err
    given = call(capfd, built, "eval", "--program", program)
    assert f'evaluating "{program}", ' in given.err and "evaluating" not in given.out
    recipe, where = str(built / "net.toml"), ["--cache", str(built / "cache"), "-o", str(tmp_path / "c")]
    assert main(["export", "c", recipe, *where]) == 0
    assert f'building "{recipe}", ' in capfd.readouterr().err
    model, images = product(built, ".qdq.onnx"), str(EXAMPLE / "test.npz")
    main(["compare", program, model, "--inputs", images])
    assert f'comparing "{program}" and "{model}", ' in capfd.readouterr().err


def test_eval_says_what_is_wrong(built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (built / "plain.toml").write_text(FASHION)
    without = call(capfd, built, "eval", recipe="plain.toml")
    assert without.code == 2 and "no [evaluate] table" in without.err
    absent = call(capfd, built, "eval", "--program", str(built / "absent.npu"))
    assert absent.code == 2 and 'absent.npu"' in absent.err
    (tmp_path / "broken.npu").write_bytes(Path(product(built, ".npu")).read_bytes()[:-100])
    broken = call(capfd, built, "eval", "--program", str(tmp_path / "broken.npu"))
    assert broken.code == 2 and "broken.npu" in broken.err
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    unread = call(capfd, built, "eval", "--program", str(tmp_path / "broken.onnx"))
    assert unread.code == 2 and "broken.onnx" in unread.err
    other = onnx.load(EXAMPLE / "fashion.onnx")
    other.graph.input[0].name = other.graph.node[0].input[0] = "picture"
    onnx.save(other, tmp_path / "other.onnx")
    named = call(capfd, built, "eval", "--program", str(tmp_path / "other.onnx"))
    assert named.code == 2 and "picture" in named.err and "image" in named.err
    metric = call(capfd, built, "eval", "--set", "evaluate.metric=top2")
    assert metric.code == 2 and "top2" in metric.err and "top1" in metric.err


def test_other_verbs_say_what_is_wrong(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program, model = product(built, ".npu"), str(EXAMPLE / "fashion.onnx")
    wrong = {
        ("run", program): "INPUT", ("run", program, str(built / "none.npy")): "none.npy",
        ("run", str(built / "none.npu"), model): "none.npu", ("run", program, model): "fashion.onnx",
        ("compare", program, model): "input", ("disasm", model): "program", ("profile", model): "program",
        ("export", "qdq", str(built / "none.toml"), "-o", str(built / "q.onnx")): "none.toml",
        ("export", "qdq", program, "-o", str(built / "q.onnx")): "is a program, not a recipe",
        ("export", "c", model, "-o", str(built / "c")): "try      npuflow new ",
        ("build", model): "is a model, not a recipe",
        ("run", program, str(built / "none.png")): 'no file "',
        ("show", "tiling", str(built / "none.toml")): "none.toml",
        ("show", "tilling", str(built / "net.toml")): "tiling",
    }
    for args, said in wrong.items():
        capfd.readouterr()
        code = main(list(args))
        out, err = capfd.readouterr()
        assert code == 2 and said in err and "Traceback" not in err, (args, code, out, err)


def test_eval_writes_no_products(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the recipe's folder takes none, and with settings that the products beside it were not built
    with.
    """
    before = {p: p.stat().st_mtime_ns for p in built.rglob("*") if "cache" not in p.parts}
    assert call(capfd, built, "eval", "--set", "evaluate.count=6").code == 0
    assert {p: p.stat().st_mtime_ns for p in built.rglob("*") if "cache" not in p.parts} == before
    assert not (built / "out").exists()


def test_exports_write_the_named_file_alone(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With other settings too: the products beside the recipe stay those of its own build."""
    before = {p: p.stat().st_mtime_ns for p in built.rglob("*") if "cache" not in p.parts}
    roots = {p: p.read_bytes() for p in (built / "cache" / "roots").iterdir()}
    recipe, where = str(built / "net.toml"), ["--cache", str(built / "cache")]
    where += ["--set", "calibrate.method=mse"]
    for kind, name in (("qdq", "q.onnx"), ("thresholds", "t.json"), ("c", "c")):
        assert main(["export", kind, recipe, *where, "-o", str(tmp_path / name)]) == 0, capfd.readouterr().err
    assert {p: p.stat().st_mtime_ns for p in built.rglob("*") if "cache" not in p.parts} == before
    assert {p: p.read_bytes() for p in (built / "cache" / "roots").iterdir()} == roots
    assert not (built / "out").exists()
