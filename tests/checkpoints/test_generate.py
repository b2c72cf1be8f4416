"""The verb generate: text of a checkpoint and of programs that were built from it, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import npuflow
from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import tokenizer
from npuflow.cli import main
from npuflow.cli._tokenizers import by_program, tokenizer_of
from npuflow.program.packing.package import load_network
from npuflow.report.profile import profile
from tests.checkpoints.texts import CHARACTERS, made

pytest.importorskip("tokenizers")

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return made(tmp_path / "net")


def said(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    capfd.readouterr()
    assert main(["generate", *args]) == code
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return out, err


def by_hand(folder: Path, text: str, count: int) -> list[int]:
    """Greedy tokens, by the runner alone."""
    runner, ids = npuflow.Runner(folder), [CHARACTERS.index(c) + 7 for c in text]
    logits = [runner.run({"tokens": [[token]]})["logits"] for token in ids][-1]
    found: list[int] = []
    while len(found) < count:
        found.append(int(logits.argmax()))
        logits = runner.run({"tokens": [[found[-1]]]})["logits"]
    return found[: found.index(2)] if 2 in found else found


def test_a_checkpoint_continues_a_text(net: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = by_hand(net, "ABC", 9)
    held = json.loads(said(capfd, "net", "ABC", "--max-tokens", "9", "--json")[0])
    assert held["tokens"] == wanted and held["prompt_tokens"] == 3 and "cycles_per_run" not in held
    assert held["ended"] == "stop" and held["text"] == "".join(CHARACTERS[i - 7] for i in wanted)
    out, err = said(capfd, "net", "ABC", "--max-tokens", "9")
    assert out == held["text"] + "\n"
    (line,) = err.splitlines()
    assert line.startswith(f"{len(wanted)} tokens after 3 (end of text), first token after ")
    assert line.endswith(" tokens/s here")
    out, err = said(capfd, "net", "ABC", "--max-tokens", "1")
    assert out == held["text"][0] + "\n" and err.startswith("1 token after 3 (--max-tokens), ")
    drawn = [
        said(capfd, "net", "ABC", "--max-tokens", "9", "--temperature", "2", "--seed", seed)[0]
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_message_goes_through_the_template(net: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(said(capfd, "net", "HA>", "--max-tokens", "5", "--json")[0])
    chat = json.loads(said(capfd, "net", "HA", "--chat", "--max-tokens", "5", "--json")[0])
    assert chat["tokens"] == plain["tokens"] and chat["prompt_tokens"] == 3
    (net / "tokenizer_config.json").unlink()
    assert "NF-MODEL-465" in said(capfd, "net", "HA", "--chat", code=2)[1]


def test_what_cannot_run_is_one_error(net: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A prompt that the context of 128 does not hold, options, models without a tokenizer."""
    found = said(capfd, "net", "A" * 129, code=2)
    assert found[0] == "" and "NF-RUN-065" in found[1] and "129 tokens" in found[1]
    assert "NF-RUN-065" in said(capfd, "net", "A" * 17, "--context", "16", code=2)[1]
    for option, value in (("--top-p", "0"), ("--temperature", "-1"), ("--seed", "-1"), ("--max-tokens", "0")):
        assert said(capfd, "net", "A", option, value, code=2)[0] == ""
    assert "NF-RUN-006" in said(capfd, "net", "A", "--exact", "simulator", code=2)[1]
    assert "NF-USAGE-010" in said(capfd, "nowhere.npu", "A", code=2)[1]
    Path("model.npu").write_bytes(b"NPUFLOW")
    error = said(capfd, "model.npu", "A", code=2)[1]
    assert "NF-USAGE-370" in error and "--model CHECKPOINT" in error
    assert "NF-USAGE-010" in said(capfd, "model.npu", "A", "--model", "nowhere", code=2)[1]
    (net / "tokenizer.json").unlink()
    assert "NF-MODEL-468" in said(capfd, "net", "A", code=2)[1]


def test_a_build_stores_the_tokenizer_beside_its_program(
    net: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With it a program needs no --model; a tokenizer.json of another kind is not taken for it."""
    assert main(["new", "net", "--target", "edge-8t", "--dim", "context=16", "-o", "net.toml"]) == 0
    assert main(["build", "net.toml", "--until", "tokenizer"]) == 0
    own, program = tokenizer(opened(net)), Path("out/net/model.npu")
    program.write_bytes(b"NPUFLOW")
    for name in ("out/net/model.npu", "out/net/model.npu#chunk=1"):
        found = tokenizer_of(Path(name), None)
        assert found.parts == own.parts and found.encode("ABC") == own.encode("ABC")
    assert by_program({"a": program, "b": Path("other/model.npu")}, []) == {"a": None}
    shutil.copy(net / "tokenizer.json", "out/net/tokenizer.json")
    assert "NF-USAGE-370" in said(capfd, "out/net/model.npu", "A", code=2)[1]


def test_a_checkpoint_without_a_tokenizer_is_built(net: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (net / "tokenizer.json").unlink()
    assert main(["new", "net", "--target", "edge-8t", "--dim", "context=16", "-o", "net.toml"]) == 0
    assert main(["build", "net.toml", "--until", "tokenizer"]) == 0
    assert not Path("out/net/tokenizer.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edge-8t", "bm1684x"])
def test_a_program_gives_the_same_text_by_executor_and_simulator(
    target: str, net: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "net", "--target", target, "--dim", "context=16", "-o", "net.toml"]) == 0
    sets = ["data.count=8", "evaluate.count=1", "sequences.samples=24", "precision.strategy=none"]
    assert main(["build", "net.toml", *(part for one in sets for part in ("--set", one))]) == 0
    program, how = "out/net/model.npu", ("--max-tokens", "6")        # the build's tokenizer is beside it
    named = said(capfd, program, "ABC", *how, "--model", "net", "--json")[0]
    found = [
        json.loads(said(capfd, program, "ABC", *how, "--exact", exact, "--json")[0])
        for exact in ("executor", "simulator")
    ]
    assert found[0]["tokens"] == found[1]["tokens"] != [] and found[0]["text"] == found[1]["text"]
    assert json.loads(named)["text"] == found[0]["text"]
    assert found[0]["cycles_per_run"] == found[1]["cycles_per_run"] > 0
    assert found[0]["prompt_runs"] == {"1": 3}
    chosen = len(found[0]["tokens"]) + (found[0]["ended"] == "stop")
    assert found[0]["position"] == 3 + chosen - 2            # the last one is not run
    held = json.loads(said(capfd, program, "ABCABABCA", *how, "--json")[0])
    assert held["prompt_runs"] == {"1": 1, "8": 1}
    assert held["prompt_cycles"] < 9 * held["cycles_per_run"]
    for figures, at in ((found[0], 1), (held, 8)):           # the middle run of one token
        one = profile(load_network(f"{program}#chunk=1#position={at}")).whole_cycles
        chunk = profile(load_network(f"{program}#chunk=8")).whole_cycles
        runs = figures["prompt_runs"]
        wanted = runs["1"] * one + runs.get("8", 0) * chunk
        assert figures["prompt_cycles"] == pytest.approx(wanted, abs=1)
    runner, ids = npuflow.Runner(program), [CHARACTERS.index(c) + 7 for c in "ABC"]
    for token in [*ids, *found[0]["tokens"]]:
        logits = runner.run({"tokens": [[token]]})["logits"]
        ids.append(int(logits.argmax()))
    assert ids[5 : 5 + len(found[0]["tokens"])] == found[0]["tokens"]
    out, err = said(capfd, program, "ABC", *how)
    assert out == found[0]["text"] + "\n"
    assert f", {found[0]['cycles_per_run']:,} cycles a run, " in err and "by the program's clock" in err
    assert "the cache is full" in said(capfd, program, "A" * 16, "--model", "net")[1]
    assert "NF-RUN-065" in said(capfd, program, "A" * 17, "--model", "net", code=2)[1]
