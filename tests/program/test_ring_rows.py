"""Commands of language models whose caches are rings: a token's row is stored alone, all rows are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import DataError, ModelError
from npuflow.hw.encode import decode_all
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of
from tests.program.test_indices import Decoder, compiled, decoder
from tests.tiers import often

CONTEXT, ROWS = 48, 16
SOME = (0, 1, 8, 15, 16, 17, 31, 32, 47)     # positions at which a turn ends or begins, and others
CASES = [
    ("mistral", "edge-8t", 1), ("gemma3", "bm1684x", 1), ("mistral", "bm1684x", 4), ("gemma3", "edge-8t", 1),
    ("mistral", "bm1684x", 1), ("mistral", "edge-8t", 4), ("gemma3", "bm1684x", 4), ("gemma3", "edge-8t", 4),
]


def own(family: str, name: str, chunk: int = 1, narrow: bool = False) -> Decoder:
    """With the ranges of four tokens a run, as files of both have it: tests of the C runtime share them."""
    return decoder(name, chunk, family, context=CONTEXT, narrow=narrow, calibrated=4)


def stored(one: Decoder, position: int) -> list[int]:
    """Bytes of each store into the ring of the first layer's keys, by address."""
    part = one.program.at({"position": position}) if one.program.stored else one.program
    entry = one.program.meta["values"]["cache.0.key:next"]
    begin = entry["address"]
    end = begin + prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
    stores = (c for words in part.commands for c in decode_all(words) if c.opcode == "STORE")
    mine = [c for c in stores if begin <= c.number("external") < end]
    return [c.number("element") * prod(c.vector("dims")) for c in mine]


def test_some_runs_over_three_turns_are_the_reference_s() -> None:
    check_runs(own("mistral", "edge-8t"), SOME)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "chunk"), CASES)
@pytest.mark.parametrize("narrow", [False, True])
def test_every_run_over_three_turns_is_the_reference_s(
    family: str, name: str, chunk: int, narrow: bool
) -> None:
    check_runs(own(family, name, chunk, narrow), range(CONTEXT // chunk))


def check_runs(one: Decoder, runs: Iterable[int]) -> None:
    """Logits and caches of the program as a file has it, at the positions of these runs, each of which has
    what those before it have stored; no hazards at any position."""
    runner, chunk = ProgramRunner(Program.from_bytes(one.program.to_bytes())), one.chunk
    reference, held, rng = Interpreter(one.graph, one.target.numerics), one.start(), np.random.default_rng(1)
    for run in runs:
        held["position"] = np.full_like(held["position"], run * chunk)
        feed = {**held, "tokens": rng.integers(3, 80, (1, chunk))}
        wanted, found = reference.run(feed), runner.run(feed)
        for value, array in wanted.items():
            np.testing.assert_array_equal(found[value], array, err_msg=f"{value} of run {run}")
        held = one.after(wanted)
        if one.program.stored and not run % 5:
            part = one.program.at({"position": run * chunk})
            assert hazards_of(part, order_of(part)) == ()


@pytest.mark.parametrize("family", often(["mistral", "gemma3"], 2))
def test_a_token_stores_one_row(family: str) -> None:
    one, heads, size = own(family, "edge-8t"), 2, 16
    for position in (0, 15, 16, 31, 47):
        assert sum(stored(one, position)) == heads * size * 2


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_more_tokens_store_the_ring(family: str) -> None:
    more, heads, size = own(family, "edge-8t", 4), 2, 16
    assert sum(stored(more, 0)) == heads * ROWS * size * 2


@pytest.mark.slow
def test_what_a_run_reads_does_not_grow_with_the_position() -> None:
    """Where all layers have windows, and beside layers without them whose rows alone grow."""
    rings, mixed = own("mistral", "edge-8t"), own("gemma3", "bm1684x", 4)
    assert len({rings.loaded(position) for position in (0, 15, 16, 47)}) == 1
    assert rings.cycles(0) == rings.cycles(47)
    growth = mixed.loaded(44) - mixed.loaded(0)
    (whole,) = {tuple(e["shape"]) for e in mixed.program.meta["inputs"] if e["shape"][2:3] == [CONTEXT]}
    assert 0 < growth < 3 * 2 * prod(whole) * 2


def test_the_row_is_that_of_the_position() -> None:
    """Two turns: the row that changes, and no other one."""
    one, rng = own("mistral", "edge-8t"), np.random.default_rng(3)
    runner, feed = ProgramRunner(one.program), {**one.start(), "tokens": np.array([[7]])}
    for name in (name for name in feed if name.startswith("cache")):
        feed[name] = rng.integers(-999, 999, feed[name].shape).astype(feed[name].dtype)
    for position in (0, 9, 15, 16, 17, 40):
        made = runner.run({**feed, "position": np.array([position], np.int32)})
        for output, name in one.graph.state:
            if name != "position":
                changed = (made[output] != feed[name]).any((0, 1, 3))
                assert np.flatnonzero(changed).tolist() == [position % ROWS], (name, position)


@pytest.mark.parametrize("position", [-1, CONTEXT])
def test_a_position_behind_the_context_is_one_error(position: int) -> None:
    """Though its row is one that the ring has."""
    one = own("mistral", "edge-8t")
    feed = {**one.start(), "tokens": np.array([[7]]), "position": np.array([position], np.int32)}
    with pytest.raises(DataError, match=f'"position" is {position}; the program runs at 0 to 47') as fault:
        ProgramRunner(one.program).run(feed)
    assert fault.value.code == "NF-DATA-273"
    with pytest.raises(ModelError, match=f"the index {position}, at most 47 is possible"):
        one.program.at({"position": position})


@pytest.mark.parametrize("table", often(["kept", "here"], 2))
def test_a_table_that_is_no_ring_s_leaves_all_rows_to_the_run(table: str) -> None:
    """One row that goes elsewhere: the next cache is made and stored whole."""
    one = own("mistral", "edge-8t")
    (name,) = [v for v in one.graph.values if v == f"ring.16.{table}:flat:table:q"]
    value = one.graph.values[name]
    changed = one.graph.consts[value.const].copy()
    changed[0, 20] = np.roll(changed[0, 20], 1)
    graph = one.graph.replaced(consts=MappingProxyType({**one.graph.consts, value.const: changed}))
    assert "indices" not in compiled(graph, one.target).meta


def test_metadata_of_rings_are_checked() -> None:
    program = own("mistral", "edge-8t").program
    (ring,), (index,) = program.meta["rings"], program.meta["indices"]
    assert ring == {"index": "position", "rows": 16, "window": 7, "most": 48} and index["modulo"] == 16
    for wrong, said in (
        ({"rings": [{**ring, "rows": 3}]}, "no rows, or all of them"),
        ({"rings": [{**ring, "index": "x"}]}, "a ring is of no input"),
        ({"rings": [{**ring, "most": "48"}]}, "a ring has no sizes"),
        ({"indices": [{**index, "modulo": 0}]}, "no rows of a ring"),
        ({"indices": [{**index, "modulo": 15}]}, "the program says of no number of steps"),
    ):
        with pytest.raises(ModelError, match=said):
            Program.from_bytes(replace(program, meta={**program.meta, **wrong}).to_bytes())
