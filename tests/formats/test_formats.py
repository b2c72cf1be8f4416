"""Files of every release, as docs/explanation/stability.md says that they are read; a folder for each."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.cli._engine import settings, stages
from npuflow.cli._line_kinds import KINDS, VERSION
from npuflow.exchange import EXCHANGE
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import plan_recipe
from npuflow.program import container
from npuflow.program.container import load_program
from npuflow.runner.simulated import ProgramRunner
from tests.runtime.conftest import runtime as runtime  # the C runtime, compiled
from tests.runtime.harness import CProgram

FOLDER = Path(__file__).parent
RELEASES = tuple(path.name for path in sorted(FOLDER.glob("[0-9]*")))


def samples(release: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and what the release's own program made of them."""
    with np.load(FOLDER / release / "data.npz") as given, np.load(FOLDER / release / "outputs.npz") as made:
        return given["x"], made["y"]


def test_there_are_files_of_every_release() -> None:
    cut = re.findall(r"^## (\d+\.\d+\.\d+)", (FOLDER.parents[1] / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cut and set(cut) <= set(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_a_program_of_a_release_gives_what_it_gave(release: str) -> None:
    x, wanted = samples(release)
    runner = ProgramRunner(FOLDER / release / "net.npu")
    found = np.concatenate([runner.run({"x": one[None]})["y"] for one in x])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("release", RELEASES)
def test_so_it_does_in_the_c_runtime(runtime: ctypes.CDLL, release: str) -> None:
    x, wanted = samples(release)
    with CProgram(runtime, (FOLDER / release / "net.npu").read_bytes()) as one:
        for sample, row in zip(x, wanted, strict=True):
            made = one.run({"x": one.quantize("x", sample[None])})["y"]
            np.testing.assert_array_equal(one.dequantize("y", made)[0], row)


@pytest.mark.parametrize("release", RELEASES)
def test_a_recipe_of_a_release_is_one(release: str) -> None:
    recipe = load(FOLDER / release / "net.toml")
    assert "codegen" in plan_recipe(recipe, stages(), settings(cache=None, until="codegen"))


@pytest.mark.parametrize("release", RELEASES)
def test_a_table_of_a_release_is_read(release: str) -> None:
    text = (FOLDER / release / "ranges.toml").read_text()
    rows = EXCHANGE["toml"]().read(text)
    assert EXCHANGE["toml"]().recognises(text) and set(rows) == set(re.findall(r'^\["(.*)"\]', text, re.M))


@pytest.mark.parametrize("release", RELEASES)
def test_lines_of_a_version_keep_their_fields(release: str) -> None:
    lines = [json.loads(line) for line in (FOLDER / release / "build.jsonl").read_text().splitlines()]
    (version,) = {line["version"] for line in lines if line["event"] == "summary"}
    assert version <= VERSION
    for line in lines if version == VERSION else ():
        assert set(line) <= {"event", *(name.rstrip("?") for name in KINDS[line["event"]])}


def test_a_program_of_another_format_is_refused_with_what_to_do() -> None:
    file = bytearray((FOLDER / RELEASES[-1] / "net.npu").read_bytes())
    for version in (1, container.VERSION + 1):
        file[8:12] = version.to_bytes(4, "little")
        with pytest.raises(ModelError, match=f"program format {version}; this npuflow reads") as fault:
            container.Program.from_bytes(bytes(file))
        assert "build the program again" in str(fault.value)


def test_a_key_that_came_later_says_nothing_of_an_older_machine() -> None:
    """`numerics.group_zero_points` came after 0.1.0; a program of then is one for the target of now."""
    from npuflow.program.container import require_target

    program = load_program(FOLDER / "0.1.0" / "net.npu")
    assert "group_zero_points" not in program.meta["target"]["numerics"]
    require_target(program, program.target, "the same machine")
