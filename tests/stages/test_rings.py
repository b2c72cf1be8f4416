"""Language models with sliding windows, whose caches are rings: decode and prefill over several turns of
them, bit for bit, and sessions that go back as far as the rings do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from npuflow import Runner
from npuflow.base.errors import DataError
from npuflow.ir.types import Array
from npuflow.program.container import Program
from npuflow.program.packing.package import load_package
from npuflow.runner.context_model import context_model
from npuflow.runner.sessions import TokenSession
from npuflow.stages.package import PackedShapes
from npuflow.stages.shape_programs import ShapedProgram
from npuflow.testing.stage import built
from tests.checkpoints.running import FAMILIES, Running
from tests.tiers import often

CONTEXT, ROWS, CHUNKS = 64, 16, (1, 5)
RECIPE = """target = "{target}"
[model]
path = "{path}"
dims = {{ context = 64 }}
shapes = [{{ chunk = 1 }}, {{ chunk = 5 }}]
[data]
source = "calib.npz"
[quantize]
{quantize}
[sequences]
samples = 96
[unify]
scales = "off"
[correct]
bias = "off"
[precision]
strategy = "none"
[tiling]
level = {level}
"""
NUMBERS = {"edge-8t": "activations.bits = 16", "bm1684x": 'mode = "bf16"'}
CASES = [("gemma3", "bm1684x", 16, 1)]       # the lower level of tiling takes half of the time
LONG = [
    pytest.param((family, target, bits, 3), marks=pytest.mark.slow)
    for family in ("mistral", "gemma3", "gemma2", "phi3", "qwen2-window") for target in NUMBERS
    for bits in (16, 8)
]
WINDOWS = {"mistral": 7, "gemma3": 6, "gemma2": 6, "phi3": 9, "qwen2-window": 6}


@dataclass(frozen=True)
class Rings:
    """A built file, and 64 tokens: four turns of its rings."""

    file: Path
    family: str
    checks: list[dict[str, object]]

    @cached_property
    def tokens(self) -> list[int]:
        return [int(token) for token in np.random.default_rng(5).integers(3, 80, CONTEXT)]

    @cached_property
    def decoded(self) -> list[tuple[Array, dict[str, Array]]]:
        """Token by token: the logits and the cache behind each."""
        session, found = self.session(), []
        for token in self.tokens:
            found.append((session.append([token]), session.state))
        return found

    @property
    def slack(self) -> int:
        """Tokens that a session behind a turn can go back by."""
        return ROWS - WINDOWS[self.family] + 1

    def session(self, exact: str = "executor") -> TokenSession:
        return Runner(self.file, exact=exact).session()  # type: ignore[arg-type]

    def programs(self) -> Iterator[Program]:
        yield from load_package(self.file).networks.values()


@pytest.fixture(scope="module", params=[*CASES, *LONG], ids=lambda case: "-".join(map(str, case)))
def rings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rings:
    folder = tmp_path_factory.mktemp("rings")
    family, target, bits, level = request.param
    np.savez(folder / "calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (4, 40, 1, 1)))
    numbers = NUMBERS[target] + ("\ncache = 8" if bits == 8 else "")
    text = RECIPE.format(target=target, path=FAMILIES / family, quantize=numbers, level=level)
    (folder / "net.toml").write_text(text)
    done = built(folder / "net.toml", folder / "cache", "package")
    (package,), programs = done.products("package").values(), done.products("shape_programs").values()
    assert isinstance(package, PackedShapes)
    package.package.save(folder / "net.npu")
    checks = [one.simulation.summary() for one in programs if isinstance(one, ShapedProgram)]
    return Rings(folder / "net.npu", family, checks)


def same(logits: Array, session: TokenSession, wanted: tuple[Array, dict[str, Array]]) -> None:
    np.testing.assert_array_equal(logits, wanted[0])
    for name, array in session.state.items():
        np.testing.assert_array_equal(array, wanted[1][name], err_msg=name)


def test_caches_of_layers_with_windows_hold_a_ring(rings: Rings) -> None:
    """The longest of all chunks says how many rows: the same at both shapes. Others are whole."""
    session = rings.session()
    assert session.model.context == CONTEXT and session.model.chunks == CHUNKS
    whole = {"mistral": 0, "gemma3": 1, "gemma2": 1, "phi3": 0, "qwen2-window": 1}[rings.family]
    rows = [array.shape[2] for name, array in session.state.items() if name.endswith(".key")]
    assert rows.count(ROWS) == len(rows) - whole and rows.count(CONTEXT) == whole
    assert [one["different"] for one in rings.checks] == [one["hazards"] for one in rings.checks] == [0]


SPLITS = [
    (5,) * 12 + (1,) * 4, (1,) * 7 + (5,) * 11 + (1, 1), (5, 5, 1, 5, 5, 1, 1) * 2 + (5, 5, 5) + (1,) * 3
]


@pytest.mark.parametrize("exact", ["executor", "simulator"])
def test_chunks_in_any_order_are_decode_bit_for_bit(rings: Rings, exact: str) -> None:
    """Over four turns, chunks that go round the end of a ring among them, in ever other rows."""
    for chunks in SPLITS if exact == "executor" else SPLITS[1:2]:
        assert sum(chunks) == CONTEXT
        session = rings.session(exact)
        for chunk, at in zip(chunks, accumulate(chunks), strict=True):
            same(session.append(rings.tokens[at - chunk : at]), session, rings.decoded[at - 1])
        assert session.runs == {n: chunks.count(n) for n in CHUNKS}


@pytest.mark.parametrize("exact", often(["executor", "simulator"], 2))
def test_commands_of_one_token_are_those_of_the_graph(rings: Rings, exact: str) -> None:
    session, turns = rings.session(exact), 2 if exact == "executor" else 1
    for token, wanted in zip(rings.tokens[: turns * ROWS + 3], rings.decoded, strict=False):
        same(session.append([token]), session, wanted)


def test_the_program_is_near_the_float_network(rings: Rings) -> None:
    """In every turn, not in the first one alone: another row in place of one would leave nothing alike."""
    found = np.stack([logits for logits, _ in rings.decoded])
    tokens = np.array([rings.tokens])
    wanted = Running(FAMILIES / rings.family, context=CONTEXT, longest=5).logits(tokens, (1,) * CONTEXT)
    apart = np.sqrt(((found - wanted) ** 2).mean(1) / (wanted**2).mean(1))
    for turn in range(CONTEXT // ROWS):
        assert np.median(apart[turn * ROWS : (turn + 1) * ROWS]) < 0.25


def test_a_rest_that_begins_earlier_writes_the_same_rows(rings: Rings) -> None:
    """Three of five tokens are one run over two that the ring holds."""
    for held in (19, 30, 33, 60):
        session = rings.session()
        session.append(rings.tokens[:held])
        runs = session.runs.total()
        logits = session.append(rings.tokens[held : held + 3])
        assert session.runs.total() == runs + 1
        same(logits, session, rings.decoded[held + 2])


def test_a_filling_behind_the_last_token_takes_nothing_away(rings: Rings) -> None:
    """A caller that fills a chunk up, and begins the next one behind the tokens: rows of the filling are
    hidden until they are written again."""
    runner = Runner(rings.file)
    step = runner.steps()
    for at in range(0, 60, 3):
        fed = [*rings.tokens[at : at + 3], 7, 9]
        found = step.run({"tokens": [fed], "position": [at]})
        step.held = {**step.held, "position": np.array([at + 3], np.int32)}
        logits = runner.steps()
        logits.reset(**{k: v for k, v in step.held.items() if k != "position"})
        assert found["logits"].shape == (1, 80)
        made = logits.run({"tokens": [[rings.tokens[at + 3]]], "position": np.array([at + 3], np.int32)})
        np.testing.assert_array_equal(made["logits"][0], rings.decoded[at + 3][0])


def test_sessions_go_back_as_far_as_the_rings_hold(rings: Rings, tmp_path: Path) -> None:
    session, tokens = rings.session(), rings.tokens
    session.append([*tokens[:40], *[9] * rings.slack])
    session.trim(40)
    other = session.fork()
    other.save(tmp_path / "session.npz")
    again = Runner(rings.file).session(tmp_path / "session.npz")
    for one in (session, other, again):
        with pytest.raises(DataError, match="cannot be trimmed to 39 any more") as fault:
            one.trim(39)
        assert fault.value.code == "NF-RUN-146" and f"window of {WINDOWS[rings.family]}" in str(fault.value)
        assert "40 to 40; or 0" in str(fault.value.hint)
    for at in range(40, 48):
        np.testing.assert_array_equal(session.append([tokens[at]]), rings.decoded[at][0])
    np.testing.assert_array_equal(other.append(tokens[40:43]), rings.decoded[42][0])   # 5 would begin at 38
    np.testing.assert_array_equal(again.append(tokens[40:62]), rings.decoded[61][0])
    same(again.append(tokens[62:]), again, rings.decoded[63])
    assert other.runs == {1: 3}
    session.trim(0)
    same(session.append(tokens[:1]), session, rings.decoded[0])


def test_a_session_within_the_first_turn_goes_back_to_anywhere(rings: Rings) -> None:
    session, tokens = rings.session(), rings.tokens
    session.append([*tokens[:3], *[9] * (ROWS - 3)])
    session.trim(3)
    same(session.append(tokens[3:9]), session, rings.decoded[8])


def test_the_context_ends_a_session_and_not_the_ring(rings: Rings) -> None:
    session = rings.session()
    session.append(rings.tokens[:62])
    with pytest.raises(DataError, match=r"3 tokens behind 62 .* too many.*holds 64") as fault:
        session.append([5, 6, 7])
    assert fault.value.code == "NF-RUN-090"
    same(session.append(rings.tokens[62:]), session, rings.decoded[63])


def test_a_file_of_a_session_that_says_too_much_is_refused(rings: Rings, tmp_path: Path) -> None:
    session = rings.session()
    session.append(rings.tokens[:40])
    session.save(tmp_path / "one.npz")
    held = dict(np.load(tmp_path / "one.npz"))
    about = bytes(held["about"]).decode()
    assert '"earliest": ' in about
    for wrong in ('"earliest": 0, "more": ', '"earliest": 99, "more": ', '"earliest": "x", "more": '):
        text = about.replace('"earliest": ', wrong)
        np.savez(tmp_path / "two.npz", **{**held, "about": np.frombuffer(text.encode(), np.uint8)})
        with pytest.raises(DataError) as fault:
            rings.session().load(tmp_path / "two.npz")
        assert fault.value.code == "NF-RUN-095"


@pytest.mark.parametrize("exact", often(["executor", "simulator"], 2))
def test_a_model_with_an_epcontext_node_keeps_rings(rings: Rings, exact: str) -> None:
    """Of one token a run; its metadata say what the rings are."""
    program = next(iter(rings.programs()))
    model = context_model(program).model
    session = Runner(model, exact=exact).session()  # type: ignore[arg-type]
    assert session.model.context == CONTEXT and session.model.rings
    for token, wanted in zip(rings.tokens[: ROWS + 4], rings.decoded, strict=False):
        np.testing.assert_array_equal(session.append([token]), wanted[0])
