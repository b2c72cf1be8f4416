"""What users read of loops in loops: disasm, profile, verify and compare name iterations and their steps."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from commandline import Ran

from npuflow.cli import main
from npuflow.program.container import Program, load_program
from npuflow.program.loop_steps import LoopSteps, said
from npuflow.report.profile import loops
from npuflow.report.profile import profile as measure
from tests.frontends.test_nested_loops import loop_in_scan, scan_in_scan
from tests.networks.looped import program_of, quantised
from tests.program.test_repeats import TARGET

OUTER, INNER = 12, 11
WALK, REFINE = "walk", "walk/refine"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of a Loop in a Scan, an input, and golden tensors."""
    at = tmp_path_factory.mktemp("loops")
    graph, feeds = quantised(loop_in_scan(OUTER, INNER), TARGET)
    program_of(graph, TARGET, nested=True, level=1).save(at / "net.npu")
    np.savez(at / "in.npz", **feeds)
    assert main(["golden", str(at / "net.npu"), str(at / "in.npz"), "-o", str(at / "golden")]) == 0
    return at


@pytest.fixture(scope="module")
def program(folder: Path) -> Program:
    return load_program(folder / "net.npu")


def call(capfd: pytest.CaptureFixture[str], *args: str | Path) -> Ran:
    capfd.readouterr()
    code = main(list(map(str, args)))
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    return Ran(code, out, err)


def test_every_command_is_shown_with_its_steps(
    folder: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    text = call(capfd, "disasm", folder / "net.npu").out
    for k in range(OUTER):
        inner = f'step 10 (of 0 to 10) of inner loop "{REFINE}"'
        assert f'iteration {k} (of 0 to 11) of loop "walk", {inner}' in text
    lines = call(capfd, "disasm", folder / "net.npu", "--json").lines
    assert len(lines) == len(program.commands[0])
    both = {tuple(one["step"] for one in line["loops"]) for line in lines if len(line.get("loops", ())) == 2}
    assert both == {(outer, inner) for outer in range(OUTER) for inner in range(INNER)}


def test_stored_commands_are_shown_once_with_all_steps_that_they_run_for(
    folder: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    text = call(capfd, "disasm", folder / "net.npu", "--stored").out
    (words,) = program.stored
    numbers = [int(line.split()[0]) for line in text.splitlines() if not line.startswith(";")]
    assert numbers == list(range(len(words)))
    assert text.count('4 rounds of loop "walk": a block of ') == 1
    assert text.count("; the end of the block of ") == text.count(" a block of ") > 4
    assert 'iterations 3, 5 .. 9 (of 0 to 11) of loop "walk", steps 4, 6, 8 (of 0 to 10) of inner' in text
    lines = call(capfd, "disasm", folder / "net.npu", "--stored", "--json").lines
    assert [line["index"] for line in lines] == numbers
    assert sum(line["opcode"] == "REPEAT" for line in lines) == text.count(" a block of ")
    assert call(capfd, "disasm", folder / "net.npu", "--stored", "--order").code == 2
    one = call(capfd, "disasm", folder / "net.npu", "--stored", "--node", lines[30]["layer"]).out
    assert "REPEAT" not in one and lines[30]["layer"] in one


def test_a_profile_has_loops_by_level_and_layers_over_all_steps(
    folder: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    found = measure(program)
    outer, inner = loops.loops(found)
    assert (outer["loop"], outer["in"], outer["iterations"]) == (WALK, "", OUTER)
    assert (inner["loop"], inner["in"], inner["times"], inner["iterations"]) == (
        REFINE, WALK, OUTER, OUTER * INNER
    )
    assert inner["cycles"] < outer["cycles"] <= found.cycles
    for row in (outer, inner):
        assert row["least"] <= row["each"] <= row["most"]
        assert row["each"] * row["iterations"] == pytest.approx(row["cycles"])
    rows, every = loops.layers(found), found.operators()
    for name in ("cycles", "macs", "load_bytes", "vector"):
        assert sum(row[name] for row in rows) == pytest.approx(sum(row[name] for row in every))
    assert len(rows) < len(every) / 10
    assert {row["loop"] for row in rows} >= {WALK, f"{WALK} > {REFINE}"}
    text = call(capfd, "profile", folder / "net.npu").out
    assert f'loop "walk": {OUTER} iterations, ' in text
    assert f'inner loop "{REFINE}": {OUTER} times {INNER} iterations, ' in text
    (apart,) = (line for line in text.splitlines() if line.startswith("farthest apart: "))
    assert re.search(r"\([+-]0\.\d%\)$", apart)
    lines = call(capfd, "profile", folder / "net.npu", "--loops", "--json").lines
    assert [line["loop"] for line in lines if line["event"] == "loop"] == [WALK, REFINE]
    steps = call(capfd, "profile", folder / "net.npu", "--steps", "--json").lines
    assert len(steps) - 1 == len(every)
    commands = call(capfd, "profile", folder / "net.npu", "--commands", "--json").lines
    assert any(line.get("iteration") == f"{WALK} 7, {REFINE} 4" for line in commands)


def test_golden_tensors_have_their_layer_their_iteration_and_their_step(
    folder: Path, program: Program
) -> None:
    """As the commands say that leave them in local memory; also values that only the last round leaves."""
    rows = json.loads((folder / "golden" / "golden.json").read_text())["tensors"]
    by_name, known = {row["name"]: row for row in rows}, LoopSteps(program)
    assert not [row["name"] for row in rows if row["layer"] == "input"]
    for core, taps in enumerate(program.taps.cores):
        for tap in taps:
            steps = known.of(core, tap.command)
            assert by_name[tap.value]["loops"] == [asdict(one) for one in steps]
            assert by_name[tap.value]["loop"] == said(steps)
    later = by_name["v2@9@10"]
    assert "v2@9@10" not in program.taps.values and later["layer"] == by_name["v2@1@0"]["layer"]
    assert later["loop"] == (
        f'iteration 10 (of 0 to 11) of loop "walk", step 9 (of 0 to 10) of inner loop "{REFINE}"'
    )
    whole = next(row for row in rows if row["name"].startswith("y") and row["shape"][0] == OUTER)
    assert (whole["loops"], whole["loop"]) == ([], "")
    both = [tuple(one["step"] for one in row["loops"]) for row in rows if len(row["loops"]) == 2]
    assert len(both) > 100 and both == sorted(both)


def test_verify_names_the_layer_of_what_the_last_round_leaves(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", folder / "net.npu", folder / "golden", "--dump"]
    ran = call(capfd, *words, changed(folder, "v2@9@10", 1))
    assert 'first difference: "v2@9@10", made by walk/refine/v2 (Tanh): 1 of' in ran.out


def changed(folder: Path, name: str, at: int) -> Path:
    """The golden tensors with another element of one of them."""
    with np.load(folder / "golden" / "golden.npz") as held:
        arrays = dict(held)
    flat = arrays[name].reshape(-1)
    flat[at] ^= 1
    np.savez(folder / "dump.npz", **{name: arrays[name]})
    return folder / "dump.npz"


def test_verify_names_the_iteration_and_the_step(
    folder: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", folder / "net.npu", folder / "golden", "--dump"]
    rows = next(name for name in program.meta["values"] if name.startswith("y") and ":f" not in name)
    ran = call(capfd, *words, changed(folder, rows, 7 * 4 + 1))
    assert ran.code == 1 and 'loop     iteration 7 (of 0 to 11) of loop "walk"\n' in ran.out
    inner = next(name for name in program.taps.values if name.endswith("@5@4"))
    ran = call(capfd, *words, changed(folder, inner, 2))
    assert f'iteration 4 (of 0 to 11) of loop "walk", step 5 (of 0 to 10) of inner loop "{REFINE}"' in ran.out
    (line,) = call(capfd, *words, folder / "dump.npz", "--json").lines
    assert [(one["loop"], one["step"]) for one in line["first"]["loops"]] == [(WALK, 4), (REFINE, 5)]


def test_compare_names_the_iteration_and_the_step(
    folder: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    inner = next(name for name in program.taps.values if name.endswith("@6@2"))
    with np.load(changed(folder, inner, 1)) as held:
        np.savez(folder / "one.npz", **{name: array[0] for name, array in held.items()})
    words = ["compare", folder / "net.npu", folder / "one.npz", "-i", folder / "in.npz", "--all"]
    ran = call(capfd, *words)
    assert ran.code == 1
    step = f'step 6 (of 0 to 10) of inner loop "{REFINE}"'
    assert f'loop     iteration 2 (of 0 to 11) of loop "walk", {step}' in ran.out
    with np.load(changed(folder, "v2@9@10", 1)) as held:
        np.savez(folder / "two.npz", **{name: array[0] for name, array in held.items()})
    later = call(capfd, *words[:2], folder / "two.npz", *words[3:])
    assert "walk/refine/v2 (Tanh)" in later.out and "iteration 10 (of 0 to 11)" in later.out
    (line,) = call(capfd, *words, "--json").lines
    assert [(one["loop"], one["step"]) for one in line["loops"]] == [(WALK, 2), (REFINE, 6)]


def test_a_program_without_loops_is_shown_as_before(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph, _ = quantised(scan_in_scan(4, 2), TARGET)
    whole = program_of(graph, TARGET, level=1)
    assert "loops" not in whole.meta and not loops.loops(measure(whole))
    whole.save(tmp_path / "net.npu")
    text = call(capfd, "disasm", tmp_path / "net.npu", "--stored").out
    assert "loop" not in text and len([line for line in text.splitlines() if line[:1] != ";"]) == len(
        (whole.stored or whole.commands)[0]
    )
