"""Every operator of the reference page as a program of its own, built by defaults: 28 dB on new
inputs beside onnxruntime, and what jumps equal to onnxruntime on the program's own operands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.ops.program_rounding import ends_over, shown
from tests.ops.program_rows import PLACES, Row
from tests.ops.program_table import ROWS_OF_TABLE
from tests.ops.programs import OWN, Finding, Part, decibels, judged, ran
from tests.tiers import covering, tiered

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
import generate

TARGET = os.environ.get("NPUFLOW_PROGRAMS_TARGET", "edge-4t")
# of the page's names those that rules alone make, and of which operator
MADE = {
    "ArgExtreme": "ArgMax",
    "Lookup": "Gather",
    "Quotient": "Div",
    "groupqueryattention": "GroupQueryAttention",
}
NEAREST = "GridSample, nearest"
JUMPING = [row for row in ROWS_OF_TABLE if row.jumps]
ROWS = {row.name.replace(", ", "-"): row for row in ROWS_OF_TABLE}
# of the five shapes the slow suite has two of every operator, by turns, and the campaign the other three
PAIRS = ("02", "13", "24", "03", "14")
SHAPES = [(name, shapes) for name, pair in covering(list(ROWS), PAIRS)
          for shapes in (pair, "".join(sorted(set("01234") - set(pair))))]
# codes of another type; whatever the host runs; an operator that ONNX does not have
INNER = {"Identity", "", "AbsoluteDifference"}


def _listed() -> set[str]:
    rows = [line.split(" | ") for line in generate.operators_page().splitlines() if line.startswith("| ")]
    first = {row[1] for row in rows if re.match(r"\| `\w+`$", row[0]) and len(row) > 3}
    second = {row[0].strip("| ") for row in rows if len(row) == 3 and row[1].startswith("`")}
    # borders of loops have no name there
    names = {name.strip() for name in first | second if not name.startswith("| ")}
    return {MADE.get(name, name) for name in names} - INNER


def test_the_table_has_every_operator_of_the_page() -> None:
    listed, tested = _listed(), {row.name.split(",")[0] for row in ROWS_OF_TABLE}
    assert len(listed) > 120
    assert not listed - tested


def test_every_operator_has_five_shapes() -> None:
    assert {len(row.shapes) for row in ROWS_OF_TABLE} == {5}


def test_every_operator_is_in_every_place() -> None:
    """Behind a convolution, in front of one, and beside a second reader; but for indices from outside, which
    rows of computed ones accompany."""
    full = [row for row in ROWS_OF_TABLE if row.places == PLACES and Part(row, 0, "behind").operands]
    assert not {row.name.split(",")[0] for row in ROWS_OF_TABLE} - {row.name.split(",")[0] for row in full}
    for row in full:
        before, after = Part(row, 0, "behind").model.graph, Part(row, 0, "front").model.graph
        second = Part(row, 0, "second").model.graph
        assert [n.op_type for n in before.node if n.output[0] in ("c_x", "d_x")].count("Conv") == 1, row.name
        assert after.node[-1].op_type == "Conv" and after.output[0].name == "front", row.name
        readers = [n.op_type for n in second.node if "x" in n.input]
        assert len(readers) >= 2 and readers[-1] == "Tanh", row.name


def _row(name: str) -> Row:
    (found,) = (row for row in ROWS_OF_TABLE if row.name == name)
    return found


@pytest.mark.parametrize("part", [
    Part(_row("ReduceSumSquare"), 0, "front"),        # its input is the network's
    Part(_row("LayerNormalization"), 3, "second"),    # its means are no tensor as it is written
], ids=lambda part: part.name)
def test_new_inputs_are_within_every_range(part: Part) -> None:
    """Also of inputs, and of what an operator that is written out computes between."""
    rng = np.random.default_rng(3)
    seen = part.feeds(rng, 32)
    session = onnxruntime.InferenceSession(shown(part.written_out).SerializeToString())
    ends = ends_over(session, seen)
    assert {i.name for i in part.model.graph.input} < ends.keys() and len(ends) > len(part.model.graph.output)
    for name, (low, high) in ends_over(session, part.within(rng, seen, 8)).items():
        assert ends[name][0] <= low and high <= ends[name][1], name


def test_a_program_adds_no_more_noise_than_codes_of_8_bits() -> None:
    """Where these do not reach the bar; where they do, the bar is what counts."""
    part = Part(_row("Attention, fused"), 4, "behind")
    seen = part.feeds(np.random.default_rng(3), 32)
    plain, rounded = ran(part.model, seen), ran(part.in_eight_bits(seen), seen)
    assert 20 < decibels(plain["y"], rounded["y"]) < 40
    for reach, db, good in ((28.8, 26.4, True), (28.8, 28.7 - OWN, False), (40.0, 27.9, False)):
        assert Finding(part, "y", db, None, reach=reach).good == good
    assert not Finding(part, "y", 27.9, None).good


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "shapes"), tiered(SHAPES, covering(list(ROWS), PAIRS)))
def test_programs_of_one_operator(name: str, shapes: str, tmp_path: Path) -> None:
    """The shapes with these numbers, each at every position of its row. All are independent branches of one
    network, but share its clipping method; a branch that misses its bar is built again alone. With
    NPUFLOW_PROGRAMS=single each is a build of its own."""
    row = ROWS[name]
    parts = [Part(row, int(number), place) for number in shapes for place in row.places]
    single = os.environ.get("NPUFLOW_PROGRAMS") == "single"
    together = [] if single else judged(parts, TARGET, tmp_path / "together")
    short = {f.part.name for f in together if not f.good}
    alone = [part for part in parts if single or part.name in short]
    found = [f for part in alone for f in judged([part], TARGET, tmp_path / part.name)]
    assert {f.part.name for f in (*together, *found)} == {part.name for part in parts}
    assert not [str(f) for f in found if not f.good]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("third", range(3))
def test_what_jumps_with_scales_of_powers_of_two(third: int, tmp_path: Path) -> None:
    """One shape each, side by side. Nearest pixels have a test of their own: the searches give them 16 bits,
    of which a sum of 32 bits takes no more than 14."""
    rows = [row for row in JUMPING if row.name != NEAREST][third::3]
    _jump_alike(_parts(rows), "edge-pow2", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nearest_pixels_with_scales_of_powers_of_two(tmp_path: Path) -> None:
    _jump_alike(_parts([_row(NEAREST)], range(5)), "edge-pow2", tmp_path, precision={"strategy": "none"})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("third", range(3))
def test_what_jumps_with_multipliers_of_8_bits(third: int, tmp_path: Path) -> None:
    """In signed codes of 8 bits, not in the floats that the target has as well. Rounding a multiplier moves
    the largest code by half of one more. Not nearest pixels: in the steps of the places the boundaries of
    pixels are no codes of 8 bits, and to steps in which they are the ratio has no multiplier of 8 bits."""
    rows = [row for row in JUMPING if row.name != NEAREST][third::3]
    _jump_alike(_parts(rows), "cv18xx", tmp_path, more=0.5, precision={"strategy": "none"})


def _parts(rows: Sequence[Row], shapes: Sequence[int] = (0,)) -> list[Part]:
    places = ("alone", "second")
    return [Part(row, k, place) for row in rows for k in shapes for place in places if place in row.places]


def _jump_alike(parts: Sequence[Part], target: str, folder: Path, more: float = 0.0, **tables: Any) -> None:
    found = [f for f in judged(parts, target, folder, **tables) if f.codes is not None]
    assert {f.part.row.name for f in found} == {part.row.name for part in parts}
    assert not [str(f) for f in found if f.codes is not None and f.codes > f.part.row.off + 0.01 + more]
