"""Commands of language models that follow the position: what they read of caches, write, and cost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from npuflow.base.errors import DataError, ModelError, UsageError
from npuflow.checks.agreement import compare
from npuflow.hw.encode import decode_all
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.inner import reading_caches
from npuflow.ir.types import Array
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.program.packing.package import load_network
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.finalists import Finalist
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.whole_rows import whole_rows
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.stages.parse import rewritten
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.quantised import quantize_graph
from npuflow.tune.correct.caches import HeadScales, growing_caches, narrowed
from tests.checkpoints.running import FAMILIES, read
from tests.networks.harness import machine
from tests.networks.looped import ranges_of
from tests.tiers import often

CONTEXT = 32
SOME = (0, 1, 2, 14, 29, 30, 31)          # positions in the cache, with its first and its last ones
Feeds = dict[str, Array]
NARROW = 0.03                             # scale of caches of 8 bits
CASES = [
    ("edge-8t", 1, False), ("bm1684x", 1, True), ("edge-8t", 4, True), ("bm1684x", 4, False),
    ("bm1684x", 1, False), ("edge-8t", 1, True), ("edge-8t", 4, False), ("bm1684x", 4, True),
]


@dataclass(frozen=True)
class Decoder:
    """A tiny decoder as integers or floats of a target, and its program."""

    graph: Graph
    target: Target
    plan: TilingPlan
    program: Program
    chunk: int

    def start(self) -> Feeds:
        """The state in front of a sequence."""
        found = {}
        for _, name in self.graph.state:
            value = self.graph.values[name]
            zero = value.quant.zero_point[0] if value.quant is not None else 0
            found[name] = np.full(value.type.shape, zero, value.dtype)
        return found

    def after(self, made: Mapping[str, Array]) -> Feeds:
        return {given: made[output] for output, given in self.graph.state}

    def whole(self) -> Program:
        """Of the same plan the program whose every run reads and writes all rows of the caches."""
        return generate(reading_caches(self.graph), self.plan, self.target, indexed=False)

    def loaded(self, position: int) -> int:
        """Bytes of all loads of a run."""
        part = self.program.at({"position": position})
        loads = (c for words in part.commands for c in decode_all(words) if c.opcode == "LOAD")
        return sum(c.number("element") * prod(c.vector("dims")) for c in loads)

    def cycles(self, position: int) -> float:
        part = self.program.at({"position": position})
        return timeline_of(part, order_of(part)).cycles


@cache
def decoder(
    name: str, chunk: int, family: str | Path = "llama", *, narrow: bool = False, context: int = CONTEXT,
    local: int = 0, calibrated: int = 0,
) -> Decoder:
    """`narrow`: with caches of 8 bits; `local`: bytes of local memory, where it is less than the target's;
    `calibrated`: the chunk whose ranges it has; 0: its own."""
    target, (graph, feeds) = shipped_targets()[name], network(family, chunk, context)
    if local:
        target = replace(target, memory=replace(target.memory, local_bytes=local, local_align=64))
    wanted = Quantize(mode="bf16") if name == "bm1684x" else Quantize()
    if name != "bm1684x":
        wanted = replace(wanted, activations=replace(wanted.activations, bits=16))
    ranges = ranges_of(*network(family, calibrated, context)) if calibrated else {}
    own = HeadScales((NARROW, 1.5 * NARROW), queries=2.0)
    held = narrowed(graph, {one.given: own for one in growing_caches(graph) if narrow}, wanted)
    graph, types = held.graph, {"stated": held.types, "caches": frozenset(held.types)}
    ranges = ranges_of(graph, feeds) | ranges
    placed = place(graph, target).on_npu
    made = quantize_graph(graph, placed, ranges, wanted, target.numerics, **types).graph
    plan = planned(made, target)
    return Decoder(made, target, plan, generate(reading_caches(made), plan, target), chunk)


@cache
def network(family: str | Path, chunk: int, context: int) -> tuple[Graph, Feeds]:
    """A tiny decoder of a family's checkpoint, or of a folder, and inputs in the middle of a sequence."""
    found = read(FAMILIES / family, chunk, context)
    graph = rewritten(found).graph.replaced(state=found.graph.state)
    rng, feeds = np.random.default_rng(0), Feeds()
    for i in graph.inputs:
        feeds[i] = np.zeros(graph.type(i).shape, graph.type(i).dtype)
        if i.startswith("cache"):
            feeds[i][:, :, : context // 2] = rng.normal(size=feeds[i][:, :, : context // 2].shape) / 2
    feeds |= {"tokens": rng.integers(3, 80, (1, chunk)), "position": np.array([context // 2], np.int32)}
    return graph, feeds


def planned(graph: Graph, target: Target) -> TilingPlan:
    return plan_network(reading_caches(graph), machine(target), target.numerics, 3)


def compiled(graph: Graph, target: Target) -> Program:
    return generate(reading_caches(graph), planned(graph, target), target)


def test_some_runs_of_a_sequence_are_the_reference_s() -> None:
    check_runs(decoder("edge-8t", 1), SOME)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chunk", "narrow"), CASES)
def test_every_run_of_a_sequence_is_the_reference_s(name: str, chunk: int, narrow: bool) -> None:
    check_runs(decoder(name, chunk, narrow=narrow), range(CONTEXT // chunk))


def check_runs(own: Decoder, runs: Iterable[int]) -> None:
    """Logits and caches, until the cache is full, of the program as a file has it, at the positions of these
    runs, each of which has what those before it have stored."""
    runner, chunk = ProgramRunner(Program.from_bytes(own.program.to_bytes())), own.chunk
    reference, held, rng = Interpreter(own.graph, own.target.numerics), own.start(), np.random.default_rng(1)
    for run in runs:
        held["position"] = np.full_like(held["position"], run * chunk)
        feed = {**held, "tokens": rng.integers(3, 80, (1, chunk))}
        wanted, found = reference.run(feed), runner.run(feed)
        for value, array in wanted.items():
            np.testing.assert_array_equal(found[value], array, err_msg=f"{value} of run {run}")
        held = own.after(wanted)


@pytest.mark.parametrize(
    ("name", "chunk", "narrow", "every"), often([(*CASES[0], 10), *((*case, 3) for case in CASES)], 9)
)
def test_no_index_has_hazards_and_more_rows_cost_more(
    name: str, chunk: int, narrow: bool, every: int
) -> None:
    own = decoder(name, chunk, narrow=narrow)
    for index in range(0, CONTEXT - chunk + 1, every):
        part = own.program.at({"position": index})
        assert hazards_of(part, order_of(part)) == ()
    assert own.loaded(0) < own.loaded(CONTEXT // 2)
    if not narrow:                        # so few bytes may hide behind other work
        assert own.cycles(0) < own.cycles(CONTEXT // 2)


@pytest.mark.slow
def test_rows_of_a_cache_of_8_bits_cost_half_as_much() -> None:
    wide, narrow = (decoder("edge-8t", 1, narrow=bits) for bits in (False, True))
    costs = [own.cycles(3 * CONTEXT // 4) - own.cycles(CONTEXT // 4) for own in (wide, narrow)]
    assert 0 < costs[1] < 0.6 * costs[0]


@pytest.mark.slow
def test_a_program_without_an_index_takes_as_long_as_it_does_for_a_full_cache() -> None:
    own = decoder("edge-8t", 1)
    whole = own.whole()
    assert "indices" not in whole.meta and not whole.stored
    assert own.cycles(0) < own.cycles(CONTEXT - 1) < timeline_of(whole, order_of(whole)).cycles


@pytest.mark.slow
def test_rows_in_pieces_that_save_no_room_are_made_in_one() -> None:
    """Pieces of a value that is whole in local memory, as plans of long caches have them: more of them at
    some indices than at others."""
    own = decoder("bm1684x", 4)
    graph, plan = reading_caches(own.graph), own.plan
    topology = Topology(graph, machine(own.target), own.target.numerics)
    rows = whole_rows(topology, 3)
    assert rows is not None
    groups = tuple(in_pieces(group, rows.part.axes, 11) for group in plan.groups)
    pieces = Finalist(groups, plan.kept)
    assert rows.cut(pieces) and not rows.cut(Finalist(plan.groups, plan.kept))
    first, *_, last = rows.ways(pieces)
    assert first.groups == plan.groups and last is pieces
    made = generate(graph, replace(plan, groups=groups), own.target)
    assert "indices" not in made.meta


def in_pieces(group: FusionGroup, axes: Mapping[int, str], rows: int) -> FusionGroup:
    """The group with so many rows in a tile of what streams nothing."""
    found = []
    for part in group.parts:
        axis, choice = axes.get(part.nodes[0]), part.choice
        if axis is not None and choice is not None and not any(choice.slots):
            sizes = tuple((name, rows if name == axis else size) for name, size in choice.sizes)
            part = replace(part, choice=replace(choice, sizes=sizes))
        found.append(part)
    return replace(group, parts=tuple(found))


@pytest.mark.slow
def test_tiles_that_stream_do_not_cut_the_rows_of_a_cache(tmp_path: Path) -> None:
    """Products of a long cache in little local memory, whose tiles would cut it: with all rows in each tile
    the program reads as many as there are tokens."""
    folder, context, chunk = tmp_path / "llama", 256, 16
    shutil.copytree(FAMILIES / "llama", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": context}))
    own = decoder("bm1684x", chunk, folder, context=context, local=24 << 10)
    assert own.program.meta["indices"]
    for index in (0, 100, context - chunk):
        part = own.program.at({"position": index})
        assert hazards_of(part, order_of(part)) == ()
    runner, reference = ProgramRunner(own.program), Interpreter(own.graph, own.target.numerics)
    held, rng = own.start(), np.random.default_rng(1)
    for run in range(3):
        feed = {**held, "tokens": rng.integers(3, 80, (1, chunk))}
        wanted, found = reference.run(feed), runner.run(feed)
        for value, array in wanted.items():
            np.testing.assert_array_equal(found[value], array, err_msg=f"{value} of run {run}")
        held = own.after(wanted)


@pytest.mark.slow
def test_what_stands_behind_the_tokens_is_not_read() -> None:
    own, rng = decoder("edge-8t", 1), np.random.default_rng(2)
    runner, feed = ProgramRunner(own.program), {**own.start(), "tokens": np.array([[7]])}
    for _ in range(5):
        feed |= own.after(runner.run(feed))
    wanted = runner.run(feed)["logits"]
    for name in (name for name in feed if name.startswith("cache")):
        feed[name] = feed[name].copy()
        feed[name][:, :, 5:] = rng.integers(0, 1 << 16, feed[name][:, :, 5:].shape)
    np.testing.assert_array_equal(runner.run(feed)["logits"], wanted)


@pytest.mark.parametrize("position", [-1, CONTEXT])
def test_a_position_outside_of_the_cache_is_one_error(position: int) -> None:
    own = decoder("edge-8t", 1)
    feed = {**own.start(), "tokens": np.array([[7]]), "position": np.array([position], np.int32)}
    with pytest.raises(DataError, match=f'"position" is {position}; the program runs at 0 to 31') as fault:
        ProgramRunner(own.program).run(feed)
    assert fault.value.code == "NF-DATA-273"


def test_a_file_at_a_position(tmp_path: Path) -> None:
    own = decoder("edge-8t", 1)
    file = tmp_path / "net.npu"
    own.program.save(file)
    found, wanted = load_network(f"{file}#position=9"), own.program.at({"position": 9})
    np.testing.assert_array_equal(found.commands[0], wanted.commands[0])
    with pytest.raises(UsageError, match='no "position=32"') as fault:
        load_network(f"{file}#position=32")
    assert "position=0 to position=31" in str(fault.value.hint)


def test_an_index_is_read_only_where_the_program_says_that_it_lies() -> None:
    program = decoder("edge-8t", 1).program
    (adds, reads) = program.meta["indices"]
    meta = {**program.meta, "indices": [{**adds, "address": reads["address"]}, reads]}
    with pytest.raises(ModelError, match="the program says of no number of steps"):
        Program.from_bytes(replace(program, meta=meta).to_bytes())
    with pytest.raises(ModelError, match="the index 32, at most 31 is possible"):
        program.at({"position": 32})


@pytest.mark.slow
def test_a_mask_that_hides_nothing_leaves_the_cache_whole() -> None:
    """Scores of rows behind the tokens would count."""
    own = decoder("edge-8t", 1)
    (name,) = [v for v in own.graph.values if v.endswith("seen rows:q")]
    value = own.graph.values[name]
    consts = {**own.graph.consts, value.const: np.ones_like(own.graph.consts[value.const])}
    graph = own.graph.replaced(consts=MappingProxyType(consts))
    assert "indices" not in compiled(graph, own.target).meta


@pytest.mark.parametrize("position", [7, 1000])
def test_random_caches_are_compared_as_sequences_have_them(position: int) -> None:
    """A program leaves what it finds behind the index, where random samples have numbers; 1,000 is none."""
    own, rng = decoder("edge-8t", 1), np.random.default_rng(3)
    kinds = {i: own.graph.type(i) for i in own.graph.inputs}
    feed = {i: rng.normal(size=kind.shape).astype(kind.dtype) for i, kind in kinds.items()}
    feed |= {"tokens": rng.integers(3, 80, (1, 1)), "position": np.array([position], np.int32)}
    found = compare(own.graph, own.program, own.target.numerics, [feed])
    assert not [c.value for c in found if c.different or c.executor]


@pytest.mark.slow
def test_a_zero_of_a_cache_has_no_sign_where_it_is_compared() -> None:
    """Calibration takes caches from the float network, whose keys may be -0.0; no run makes them."""
    own, (_, feeds) = decoder("bm1684x", 4), network("llama", 4, CONTEXT)
    feed = {i: array.copy() for i, array in feeds.items()}
    for i in (i for i in feed if i.startswith("cache")):
        feed[i][:, :, 3:5], feed[i][:, :, 5] = -0.0, -1e-30
    found = compare(own.graph, own.program, own.target.numerics, [feed])
    assert not [c.value for c in found if c.different or c.executor]


@pytest.mark.slow
def test_zeros_that_a_run_makes_have_the_reference_s_sign(tmp_path: Path) -> None:
    """Keys whose norm has weights of 0 are 0.0 and -0.0 before they are stored."""
    folder = tmp_path / "qwen3"
    shutil.copytree(FAMILIES / "qwen3", folder)
    for file in folder.glob("*.safetensors"):
        weights = load_file(file)
        save_file({k: 0 * array if "k_norm" in k else array for k, array in weights.items()}, file)
    own, rng = decoder("bm1684x", 1, folder), np.random.default_rng(4)
    reference, runner = Interpreter(own.graph, own.target.numerics), ProgramRunner(own.program)
    held, keys = own.start(), set[int]()
    for _ in range(4):
        feed = {**held, "tokens": rng.integers(3, 80, (1, 1))}
        kept = reference.run(feed, keep=lambda _: True)
        keys |= set(kept["layers.0.heads:concat.1"].reshape(-1).tolist())
        found = runner.run(feed)
        for value in own.graph.outputs:
            np.testing.assert_array_equal(found[value], kept[value], err_msg=value)
        held = own.after(kept)
    assert keys == {0, 1 << 15}
