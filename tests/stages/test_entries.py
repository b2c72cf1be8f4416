"""Language models of several chunk lengths: decode and prefill over one cache, in one file, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from npuflow import Runner
from npuflow.base.errors import DataError, ModelError, UsageError
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.program.packing.package import load_package
from npuflow.runner.sessions import TokenSession
from npuflow.runner.text import TextGenerator
from npuflow.stages.package import PackedShapes
from npuflow.stages.shape_programs import ShapedProgram, runnable
from npuflow.stages.shapes import ShapedNetwork, one_candidate
from npuflow.testing.stage import built
from npuflow.tune.correct.shared_weights import SharedWeights
from tests.checkpoints.running import FAMILIES
from tests.runner.programs import split
from tests.tiers import often

CONTEXT = 16
RECIPE = """target = "{target}"
[model]
path = "{path}"
dims = {{ context = 16 }}
shapes = [{shapes}]
[data]
source = "calib.npz"
[quantize]
{quantize}
[sequences]
samples = 24
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
SPLITS = ((4, 4, 4, 4), (1, 4, 4, 4, 1, 1, 1), (1, 1, 1, 4, 1, 4, 4), (4, 4, 4, 1, 1, 1, 1))
CASES = [("llama", "edge-8t", 1)]            # the lower level of tiling takes half of the time
LONG = [
    pytest.param((family, target, 3), marks=pytest.mark.slow)
    for family in ("llama", "gpt2", "mistral", "qwen3", "gemma2", "phi3") for target in NUMBERS
]


@dataclass(frozen=True)
class Entries:
    """A built file; what decode gives token by token: the logits and the cache behind each."""

    file: Path
    tokens: list[int]
    simulations: list[dict[str, object]]
    apart: int
    network: Graph                        # the quantised one of chunk=4

    def decoded(self, exact: str) -> list[tuple[Array, dict[str, Array]]]:
        session, found = self.session(exact), []
        for token in self.tokens:
            found.append((session.append([token]), session.state))
        return found

    def session(self, exact: str = "executor") -> TokenSession:
        return Runner(self.file, exact=exact).session()  # type: ignore[arg-type]


def recipe(
    folder: Path, family: str, target: str, level: int = 3, shapes: str = "{ chunk = 1 }, { chunk = 4 }"
) -> Path:
    np.savez(folder / "calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (4, 12, 1, 1)))
    path = folder / "net.toml"
    quantize = NUMBERS[target]
    more = {"shapes": shapes, "quantize": quantize, "level": level}
    path.write_text(RECIPE.format(target=target, path=FAMILIES / family, **more))
    return path


@pytest.fixture(scope="module", params=[*CASES, *LONG], ids=lambda case: "-".join(map(str, case)))
def entries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Entries:
    folder = tmp_path_factory.mktemp("entries")
    done = built(recipe(folder, *request.param), folder / "cache", "package")
    (package,), programs = done.products("package").values(), done.products("shape_programs").values()
    assert isinstance(package, PackedShapes)
    package.package.save(folder / "net.npu")
    checks = [one.simulation.summary() for one in programs if isinstance(one, ShapedProgram)]
    tokens = np.random.default_rng(5).integers(3, 80, CONTEXT).tolist()
    (network,) = done.products("shapes").values()
    assert isinstance(network, ShapedNetwork)
    return Entries(folder / "net.npu", tokens, checks, package.apart, network.graph)


@pytest.mark.parametrize("exact", often(["executor", "simulator"], 2))
def test_chunks_in_any_order_are_decode_bit_for_bit(entries: Entries, exact: str) -> None:
    """Logits, keys and values behind every run, also where the cache is full."""
    decoded = entries.decoded(exact)
    runner = Runner(entries.file, exact=exact)  # type: ignore[arg-type]
    for chunks in SPLITS if exact == "executor" else SPLITS[1:2]:
        session, at = runner.session(), 0
        for k, chunk in enumerate(chunks):
            logits, at = session.append(entries.tokens[at : at + chunk]), at + chunk
            assert session.position == at and session.runs.total() == k + 1
            same(logits, session.state, decoded[at - 1])


def test_what_the_cache_holds_stays_as_it_was_written(entries: Entries) -> None:
    """Keys and values keep their codes, however many runs follow."""
    states = [state for _, state in entries.decoded("executor")]
    for name in (name for name in states[0] if name.startswith("cache.")):
        for t, state in enumerate(states):
            np.testing.assert_array_equal(state[name][:, :, : t + 1], states[-1][name][:, :, : t + 1], name)


def same(logits: Array, state: dict[str, Array], wanted: tuple[Array, dict[str, Array]]) -> None:
    np.testing.assert_array_equal(logits, wanted[0])
    assert state.keys() == wanted[1].keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, wanted[1][name], err_msg=name)


def test_one_file_of_shared_constants_that_the_simulator_agrees_with(entries: Entries) -> None:
    package = load_package(entries.file)
    assert list(package.networks) == ["chunk=1", "chunk=4"]
    assert entries.file.stat().st_size < entries.apart
    (one,) = entries.simulations
    assert one["different"] == 0 and one["hazards"] == 0 and one["tensors"]
    kept = [
        {e["name"]: e for e in one.meta["inputs"] if e["name"] != "tokens"}
        for one in package.networks.values()
    ]
    assert kept[0] == kept[1] and len(kept[0]) == 5


def test_a_session_takes_the_longest_chunks_first(entries: Entries) -> None:
    """Half a chunk is one run too, which begins earlier, where the cache holds enough."""
    session, decoded = entries.session(), entries.decoded("executor")
    logits = session.append(entries.tokens[:9])
    assert session.runs == {4: 2, 1: 1} and session.tokens == tuple(entries.tokens[:9])
    same(logits, session.state, decoded[8])
    count, logits = session.advance(entries.tokens[9:11])
    assert count == 2 and session.runs == {4: 3, 1: 1}
    same(logits, session.state, decoded[10])
    count, logits = session.advance(entries.tokens[11:])
    assert count == 4
    np.testing.assert_array_equal(logits, decoded[14][0])
    short = entries.session()
    same(short.append(entries.tokens[:3]), short.state, decoded[2])
    assert short.runs == {1: 3}


def test_sessions_are_trimmed_forked_and_saved(entries: Entries, tmp_path: Path) -> None:
    decoded, tokens, runner = entries.decoded("executor"), entries.tokens, Runner(entries.file)
    session = runner.session()
    session.append([*tokens[:6], 7, 8, 9, 10])
    session.trim(6)
    other = session.fork()
    assert session.position == other.position == 6
    same(session.append(tokens[6:11]), session.state, decoded[10])
    assert other.position == 6
    same(other.append(tokens[6:7]), other.state, decoded[6])
    other.save(tmp_path / "session.npz")
    for again in (runner.session(tmp_path / "session.npz"), Runner(entries.file).session()):
        if not again.position:
            again.load(tmp_path / "session.npz")
        assert again.tokens == tuple(tokens[:7])
        same(again.append(tokens[7:12]), again.state, decoded[11])
    session.trim(0)
    same(session.append(tokens[:1]), session.state, decoded[0])
    with pytest.raises(DataError, match="cannot be trimmed to 2") as fault:
        session.trim(2)
    assert fault.value.code == "NF-RUN-093"


def test_too_many_tokens_are_one_error_that_changes_nothing(entries: Entries) -> None:
    session, decoded = entries.session(), entries.decoded("executor")
    session.append(entries.tokens[:10])
    with pytest.raises(DataError, match=r"7 tokens behind 10 .* too many.*holds 16") as fault:
        session.append([5] * 7)
    assert fault.value.code == "NF-RUN-090"
    for wrong, code in (([80], "NF-RUN-096"), ([-1], "NF-RUN-096"), ([], "NF-RUN-091")):
        with pytest.raises(DataError) as fault:
            session.append(wrong)
        assert fault.value.code == code
    same(session.append(entries.tokens[10:]), session.state, decoded[15])
    with pytest.raises(DataError, match="1 token behind 16"):
        session.append([5])


def test_a_run_that_fails_leaves_the_session_as_it_was(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two runs fails; whoever appends again gets what decode gives."""
    runner, decoded = Runner(entries.file), entries.decoded("executor")
    session, whole, calls = runner.session(), runner.backend.run, []

    def failing(samples: list[dict[str, Array]], dump: bool) -> list[dict[str, Array]]:
        calls.append(samples)
        if len(calls) == 2:
            raise MemoryError("no room")
        return whole(samples, dump)

    monkeypatch.setattr(runner.backend, "run", failing)
    with pytest.raises(MemoryError):
        session.append(entries.tokens[:8])
    assert session.position == 0 and session.tokens == ()
    same(session.append(entries.tokens[:8]), session.state, decoded[7])


def test_a_prompt_runs_in_chunks_and_gives_the_text_of_decode(entries: Entries) -> None:
    """Prompts shorter than the longest chunk too."""
    alone = Runner(load_package(entries.file).networks["chunk=1"])
    for count, runs in ((3, {1: 3}), (4, {4: 1}), (9, {4: 2, 1: 1}), (11, {4: 3})):
        found = []
        for runner in (Runner(entries.file), alone):
            stream = TextGenerator(runner, Numbers()).stream(entries.tokens[:count], 4)
            assert "".join(stream) == "".join(f"{token} " for token in stream.tokens)
            found.append((stream.tokens, stream.prompt_runs))
        assert found[0] == (found[1][0], runs) and found[1][1] == {1: count}


class Numbers:
    """A tokenizer whose text is the tokens' numbers."""

    stops = ()

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(f"{token} " for token in ids)


def test_sessions_of_threads_share_a_runner(entries: Entries) -> None:
    """Eight at the same time, each with another text: what each gives alone."""
    runner = Runner(entries.file)
    texts = np.random.default_rng(2).integers(3, 80, (8, CONTEXT)).tolist()

    def generated(tokens: list[int]) -> list[bytes]:
        session = runner.session()
        cuts = (0, 5, 6, 13, 16)
        return [session.append(tokens[a:b]).tobytes() for a, b in pairwise(cuts)]

    alone = [generated(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(generated, texts)) == alone


def test_files_of_sessions_that_do_not_fit(entries: Entries, tmp_path: Path) -> None:
    """Of another model, damaged in any place, or no file at all."""
    runner, path = Runner(entries.file), tmp_path / "one.npz"
    session = runner.session()
    session.append(entries.tokens[:5])
    session.save(path)
    other = Runner(load_package(entries.file).networks["chunk=1"]).session(path)
    assert other.tokens == session.tokens
    held = dict(np.load(path))
    for name, array, code in (
        ("about", np.frombuffer(b'{"format": 1, "model": {}}', np.uint8), "NF-RUN-094"),
        ("about", np.zeros(3, np.uint8), "NF-RUN-095"),
        ("tokens", np.array([1, 2, 3, 4, 900]), "NF-RUN-095"),
        ("tokens", np.array([1, 2]), "NF-RUN-095"),
        ("state:cache.0.key", held["state:cache.0.key"].astype(np.int8), "NF-RUN-095"),
    ):
        np.savez(tmp_path / "other.npz", **{**held, name: array})
        with pytest.raises(DataError) as fault:
            runner.session(tmp_path / "other.npz")
        assert fault.value.code == code, (name, fault.value)
    whole = path.read_bytes()
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        (tmp_path / "other.npz").write_bytes(whole[:end])
        with pytest.raises(DataError) as fault:
            runner.session(tmp_path / "other.npz")
        assert fault.value.code == "NF-RUN-095"
    with pytest.raises(UsageError, match=r"nowhere\.npz"):
        runner.session(tmp_path / "nowhere.npz")


def test_samples_of_the_first_shape_are_moved_where_the_cache_ends(entries: Entries) -> None:
    """A chunk of 4 fits behind 12 tokens of 16, and not behind 13: it begins at 0 then."""
    graph, program = entries.network, load_package(entries.file).networks["chunk=4"]
    held = {name: np.zeros(graph.type(name).shape, graph.type(name).dtype) for name in graph.inputs}
    for position, wanted in ((0, 0), (12, 12), (13, 0), (15, 0)):
        feed = {**held, "position": np.array([position], np.int32)}
        found = runnable(graph, program.target.numerics, feed)
        assert found["position"].tolist() == [wanted] and found.keys() == feed.keys()


def test_another_type_or_weight_at_a_shape_is_an_error(entries: Entries) -> None:
    graph = entries.network
    one_candidate("chunk=4", SharedWeights(graph, 9, ()), graph)
    name = next(v for v, value in graph.values.items() if value.quant is not None and value.const is None)
    values = {**graph.values, name: replace(graph.values[name], quant=None)}
    other = graph.replaced(values=MappingProxyType(values))
    for done, what in ((SharedWeights(other, 9, ()), "types"), (SharedWeights(graph, 9, ("x",)), "weights")):
        with pytest.raises(ModelError, match=f"chunk=4 has other {what} than the first shape") as fault:
            one_candidate("chunk=4", done, graph)
        assert fault.value.code == "NF-MODEL-480"


def test_a_model_without_tokens_has_no_session() -> None:
    with pytest.raises(UsageError, match="is no language model") as fault:
        Runner(split()).session()
    assert fault.value.code == "NF-RUN-067"


def test_states_of_other_sizes_share_no_file(tmp_path: Path) -> None:
    path = recipe(tmp_path, "llama", "edge-8t", shapes="{ context = 16 }, { context = 24 }")
    with pytest.raises(ModelError, match="the state at context=24 is not that of the first shape") as fault:
        built(path, tmp_path / "cache", "shapes")
    assert fault.value.code == "NF-MODEL-351" and '"cache.0.key"' in str(fault.value.because)
