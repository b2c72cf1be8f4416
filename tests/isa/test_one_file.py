"""An opcode costs one file: the how-to page's own, found by scanning, from its fields to the clock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import npuflow.isa as folder
from npuflow.base.errors import InternalError, ModelError
from npuflow.hw.encode import decode, disassemble, encode
from npuflow.hw.isa import OPCODES, by_code, opcodes
from npuflow.program.access import regions
from npuflow.program.codegen.commands import CommandList
from npuflow.program.order import order_of
from npuflow.schedule.accesses import Latest
from npuflow.schedule.jobs import Allocation
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, TARGET, Case
from tests.sim.programs import wrap

PAGE = Path(__file__).parents[2] / "docs/how-to/add-an-opcode.md"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in which opcodes are found beside the shipped ones."""
    folder.__path__.append(str(tmp_path))
    OPCODES.forget()
    yield tmp_path
    folder.__path__.remove(str(tmp_path))
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{folder.__name__}.{path.stem}", None)
    OPCODES.forget()


def source() -> str:
    """The page's file."""
    (found,) = re.findall(r"```python\n(.*?OPCODES.entry.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


@pytest.fixture
def distance(place: Path) -> Path:
    """The page's file in that folder."""
    (place / "distance.py").write_text(source())
    OPCODES.forget()
    return place / "distance.py"


def case() -> Case:
    """One command on random tensors."""
    made = Case(np.random.default_rng(3), "DISTANCE", usual="int8")
    dims = made.fields["dims"] = (1, 3, 4, 5)
    for name in "aby":
        made.tensor(name, dims, "int8")
    made.fields.update(lo=0, hi=100)
    return made


@pytest.mark.parametrize("exact_only", [True, False])
def test_it_runs_is_timed_and_judged(distance: Path, exact_only: bool) -> None:
    one = case()
    program = wrap(one)
    image = np.random.default_rng(1).integers(0, 256, (2, LOCAL)).astype(np.uint8)
    machine = SimulatedMachine(program, 2, exact_only=exact_only)
    machine.write("in", image)
    machine.run(0)

    def seen(block: np.ndarray, name: str) -> np.ndarray:
        strides = (block.strides[0], *one.fields[f"{name}_strides"])
        return np.ndarray((2, 1, 3, 4, 5), np.int8, block, one.fields[name], strides).astype(int)

    want = np.minimum(abs(seen(image, "a") - seen(image, "b")), 100)
    np.testing.assert_array_equal(seen(machine.read("out"), "y"), want)
    order = order_of(program)
    assert not hazards_of(program, order)
    (at,) = [i for i, (core, k) in enumerate(order.sequence) if program.decoded[core][k].opcode == "DISTANCE"]
    lanes = TARGET.compute.vector_lanes
    assert timeline_of(program, order).terms[at].vector == -(-60 // lanes)


def test_its_words_its_checks_and_its_text(distance: Path) -> None:
    words = encode("DISTANCE", case().fields, queue=3)
    command = decode(words)
    assert words[0] & 0xFF == 128 and command.number("hi") == 100
    assert [(r.name, r.write) for r in regions(command)] == [("a", False), ("b", False), ("y", True)]
    assert "DISTANCE" in disassemble(command)
    with pytest.raises(ModelError, match=r"the clamp 0\.\.200 leaves int8"):
        decode(encode("DISTANCE", {**case().fields, "hi": 200}, queue=3))
    with pytest.raises(ModelError, match="a_type is int4, not one of int8"):
        decode(encode("DISTANCE", {**case().fields, "a_type": "int4"}, queue=3))


def test_the_code_generator_waits_for_what_its_fields_name(distance: Path) -> None:
    commands = CommandList(0, 1)
    slots = {name: Allocation(64 * k, 64 * k + 64, 64, (), 1, ()) for k, name in enumerate("aby")}
    places = [(slot, None) for slot in slots.values()]
    commands.compute("FILL", {"y": slots["b"].low}, places, 0, 0)
    commands.compute("DISTANCE", {name: slot.low for name, slot in slots.items()}, places, 0, 1)
    assert commands.counts[commands.vector] == 2
    overwrites: Latest = {}
    commands.local[slots["a"]].before_write(None, overwrites)
    reads: Latest = {}
    commands.local[slots["y"]].before_read(None, reads)
    assert overwrites == reads == {commands.vector: 2}


EDITS = """
import pathlib, sys
from npuflow.base import code
file = pathlib.Path(sys.argv[1])
def digests():
    code.forget()
    return [code.definition_closure(f"npuflow.stages.{n}", n).digest for n in ("codegen", "simulate")]
found = [digests()]
for old, new in (("abs(a - b)", "abs(b - a)"), ('"dims:4")', '"dims:4 spare")')):
    file.write_text(file.read_text().replace(old, new))
    found.append(digests())
print([[a != b for a, b in zip(*pair)] for pair in zip(found, found[1:])])
"""


@pytest.mark.slow
def test_opcodes_are_in_the_keys_of_what_uses_them(tmp_path: Path) -> None:
    """An edit of what a command computes concerns the simulation alone, one of its
    fields code generation too."""
    root = Path(folder.__file__).parents[1]
    shutil.copytree(root, tmp_path / "npuflow", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "npuflow/isa/distance.py"
    file.write_text(source())
    done = subprocess.run(
        [sys.executable, "-c", EDITS, str(file)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
    )
    assert done.stdout.strip() == "[[False, True], [True, True]]", done.stdout + done.stderr


def test_a_code_is_given_once(distance: Path) -> None:
    distance.write_text(distance.read_text().replace("code = 128", "code = 7"))
    OPCODES.forget()
    sys.modules.pop(f"{folder.__name__}.distance", None)
    with pytest.raises(InternalError, match="same name or code"):
        opcodes()


def test_without_the_file_there_is_no_such_opcode() -> None:
    assert "DISTANCE" not in opcodes() and by_code(128) is None
    codes = [o.code for o in opcodes().values()]
    assert codes == list(range(1, len(codes) + 1)), "a code is left out"
    assert all(o.name.lower() in OPCODES for o in opcodes().values())
