"""--json: every verb has it, and what each prints is as the schema says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from commandline import SCHEMA, Ran, environment, line_faults

from npuflow.cli import main
from npuflow.cli._app import application
from npuflow.cli._line_kinds import KINDS
from npuflow.cli._line_schema import VERBS, schema_of
from tests.cli.test_rebuild import EXAMPLE, FASHION

MORE = f"""
[verdict]
advice = false
[evaluate]
source = "{EXAMPLE}/test.npz"
count = 8
metric = "agreement"
[[evaluate.steps]]
normalize = {{ mean = [72.94], std = [90.02] }}
[[evaluate.steps]]
layout = "nchw"
"""
LONG = ("serve", "view")                  # they run until they are stopped
ELSEWHERE = ("generate",)                 # tests/checkpoints has programs of language models
BARE = ("--no-provenance",)
WORDS: dict[str, Callable[[Path], list[list[str]]]] = {
    "build": lambda at: [["net.toml"], ["net.toml", "--profile"], ["wrong.toml"]],
    "cache gc": lambda at: [["--dry-run"], ["--max-size", "100GB", "--dry-run"]],
    "cache push": lambda at: [["--remote", str(at / "remote"), "--dry-run"]],
    "cache stats": lambda at: [[]],
    "cache verify": lambda at: [[], ["--recipe", "net.toml", "--rerun", "quantize"]],
    "compare": lambda at: [["model.npu", str(EXAMPLE / "fashion.onnx"), "-i", "image.npy"]],
    "diff": lambda at: [["net/net.lock", "other/net/net.lock"], ["net/net.lock", "net/net.lock"]],
    "disasm": lambda at: [["model.npu"]],
    "eval": lambda at: [["net.toml"]],
    "explain": lambda at: [["NF-USAGE-010"], []],
    "export c": lambda at: [["net.toml", "-o", "c"]],
    "export epcontext": lambda at: [["model.npu", "-o", "context.onnx"]],
    "export explorer": lambda at: [["net.toml", "-o", "explorer"]],
    "export formats": lambda at: [[]],
    "export qdq": lambda at: [["net.toml", "-o", "qdq.onnx"]],
    "export runtime": lambda at: [["-o", "runtime"]],
    "export tflite": lambda at: [["net.toml", "-o", "net.tflite", "--check", "0"]],
    "export thresholds": lambda at: [["net.toml", "-o", "ranges.json"]],
    "export tosa": lambda at: [["net.toml", "-o", "net.tosa"]],
    "extract": lambda at: [[str(EXAMPLE / "fashion.onnx"), "-o", "part.onnx", "--dim", "batch=1"]],
    "golden": lambda at: [["model.npu", "image.npy", "-o", "golden"]],
    "history": lambda at: [["net"]],
    "inspect": lambda at: [["net.toml"], [str(EXAMPLE / "fashion.onnx"), "--input", "image=1,1,28,28"]],
    "new": lambda at: [[str(EXAMPLE / "fashion.onnx"), "--data", str(EXAMPLE), "-o", "made.toml"]],
    "npz compare": lambda at: [["a.npz", "b.npz"]],
    "npz dump": lambda at: [["a.npz"]],
    "npz extract": lambda at: [["a.npz", "x", "-o", "x.npz"]],
    "npz list": lambda at: [["a.npz"]],
    "npz stats": lambda at: [["a.npz"]],
    "npz to-image": lambda at: [["a.npz", "x"]],
    "npz to-raw": lambda at: [["a.npz", "x"]],
    "ops": lambda at: [[]],
    "pack": lambda at: [["model.npu", "model.npu", "--name", "a", "--name", "b", "-o", "two.npu"]],
    "plan": lambda at: [["net.toml"], ["net.toml", "--set", "calibrate.method=mse"]],
    "profile": lambda at: [
        ["model.npu"], ["model.npu", "--groups"], ["model.npu", "--commands"], ["model.npu", "--memory"],
        ["model.npu", "model.npu"], ["two.npu"],
    ],
    "raw pack": lambda at: [["model.npu", "image.npy"]],
    "raw run": lambda at: [["model.npu", "inputs.bin"]],
    "raw slots": lambda at: [["model.npu"]],
    "raw unpack": lambda at: [["model.npu", "outputs.bin"]],
    "run": lambda at: [["model.npu", "image.npy"], ["absent.npu", "image.npy"]],
    "schema": lambda at: [[], ["--lines"], ["-o", "schema.json"]],
    "seal": lambda at: [["key", "--new-key"], ["model.npu", "--key", "key", "-o", "sealed.npu", *BARE]],
    "show": lambda at: [
        [what, "net.toml"] for what in
        ("recipe", "statistics", "verdict", "precision", "parse", "samples", "quantize", "tiling")
    ] + [["tiling", "net.toml", "--strategies"], ["parse", "net.toml", "--export", "parsed"]],
    "zoo": lambda at: [["net.toml", "--out", "zoo"]],
    "sweep": lambda at: [["net.toml", "--over", "tiling.level=[0, 1]", "--until", "tiling"]],
    "target fit": lambda at: [["measured.csv", "model.npu", "--only", "dma.setup_cycles"]],
    "targets": lambda at: [[], ["edge-4t"]],
    "verify": lambda at: [["model.npu", "golden", "--dump", "all.npz"]],
    "why": lambda at: [["quantize", "net.toml"], ["quantize", "net.toml", "--set", "quantize.trim=false"]],
}
"""Verb -> command lines of it."""
FIRST = ("golden", "pack", "raw pack", "raw run")           # others read what these write
FAILS = {("build", "wrong.toml"), ("run", "absent.npu"), ("compare", "model.npu"), ("npz compare", "a.npz")}


def every_verb(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        full = f"{before}{name}"
        if hasattr(command, "commands"):
            yield from every_verb(command, f"{full} ")
        else:
            yield full, command


@pytest.fixture(scope="module")
def place(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A network built whole, another build of it, and files that verbs read; the working directory."""
    folder, before = tmp_path_factory.mktemp("lines"), Path.cwd()
    shutil.copytree(compiled / "cache", folder / "cache")
    cache = os.environ.pop("NPUFLOW_CACHE", None)
    os.chdir(folder)
    os.environ["NPUFLOW_CACHE"] = "cache"
    Path("net.toml").write_text(FASHION + MORE)
    Path("wrong.toml").write_text("[model]\npath = 1\n")
    assert main(["build", "net.toml", "--out", ".", "--quiet"]) == 0
    assert main(["build", "net.toml", "--out", "other", "--set", "tiling.level=0", "--quiet"]) == 0
    Path("model.npu").write_bytes(Path("net/model.npu").read_bytes())
    np.save("image.npy", np.zeros((1, 1, 28, 28), np.float32))
    odd = np.array([np.inf, -np.inf, np.nan, 1.0], np.float32)
    np.savez("a.npz", x=np.arange(12.0, dtype=np.float32).reshape(3, 4), odd=odd)
    np.savez("b.npz", x=np.ones((3, 4), np.float32), odd=odd)
    assert main(["run", "model.npu", "image.npy", "-o", "all.npz", "--exact", "simulator", "--dump-all"]) == 0
    for verb in FIRST:
        for words in WORDS[verb](folder):
            assert main([*verb.split(), *words]) == 0
    yield folder
    os.chdir(before)
    os.environ.pop("NPUFLOW_CACHE")
    if cache is not None:
        os.environ["NPUFLOW_CACHE"] = cache


def ran(capfd: pytest.CaptureFixture[str], verb: str, words: list[str]) -> Ran:
    capfd.readouterr()
    code = main([*verb.split(), *words, "--json"])
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    failed = (verb, words[0] if words else "") in FAILS
    assert (code != 0) == failed, err
    return Ran(code, out, err)


def test_every_verb_has_json_and_its_kinds_are_listed() -> None:
    found = dict(every_verb(typer.main.get_command(application())))
    assert set(found) == set(VERBS) == {*WORDS, *LONG, *ELSEWHERE}
    without = [name for name, one in found.items() if not any("--json" in p.opts for p in one.params)]
    assert not without
    assert {kind for kinds in VERBS.values() for kind in kinds} == set(KINDS) - {"error"}


@pytest.mark.parametrize("verb", WORDS)
def test_what_a_verb_prints_is_as_the_schema_says(
    verb: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if verb == "target fit":
        lines = ran(capfd, "profile", ["model.npu"]).lines
        layers = {line["name"]: line["cycles"] for line in lines if line.get("cycles")}
        rows = [f"{name},{cycles * 1.1}" for name, cycles in layers.items()]
        Path("measured.csv").write_text("\n".join(["layer,cycles", *rows]) + "\n")
    if verb == "seal":
        pytest.importorskip("cryptography", reason="the extra sign")
    seen = set()
    for words in WORDS[verb](place):
        said = ran(capfd, verb, words)
        seen |= {line["event"] for line in said.lines}
        assert said.out or words[:2] == ["net/net.lock", "net/net.lock"], words
        if said.code == 2:
            assert "error" in {line["event"] for line in said.lines}
    assert seen <= {*VERBS[verb], "error"} and seen & {*VERBS[verb]}


@pytest.mark.parametrize("words", [["serve", "model.npu", "--port", "0"], ["view", "cache", "--port", "0"]])
def test_a_server_says_where_it_listens(words: list[str], place: Path) -> None:
    pytest.importorskip("aiohttp", reason="the extras serve and view")
    with subprocess.Popen(
        [sys.executable, "-m", "npuflow", *words, "--json"], stdout=subprocess.PIPE, text=True,
        env=environment(),
    ) as server:
        assert server.stdout is not None
        line = json.loads(server.stdout.readline())
        server.send_signal(signal.SIGINT)
    assert not line_faults(line) and line["event"] == "serving" and line["address"].startswith("http")


def test_a_wrong_line_is_found() -> None:
    good: dict[str, Any] = {"event": "sweep", "points": 2, "failed": 0, "goals": ["a"]}
    assert not line_faults(good) and not line_faults({**good, "new": None})
    for wrong in (
        {"event": "swept"}, {"points": 2}, [], {**good, "points": "2"}, {**good, "points": True},
        {**good, "goals": [1]}, {k: v for k, v in good.items() if k != "failed"},
    ):
        assert line_faults(wrong)
    assert schema_of('"a" or "b"') == {"enum": ["a", "b"]}
    assert schema_of("list of number or null")["anyOf"][1] == {"type": "null"}
    with pytest.raises(ValueError, match="no type"):
        schema_of("text")
    assert SCHEMA["$defs"]["step"]["properties"]["event"] == {"const": "step"}
