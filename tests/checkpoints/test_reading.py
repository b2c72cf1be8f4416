"""The graph of a checkpoint: its inputs, outputs and states, cut points, and forms of folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import InputError, ModelError
from npuflow.base.tables import FilePath
from npuflow.checkpoints import opened
from npuflow.frontends import Bindings, Reading
from npuflow.input.sources import gathered
from npuflow.run.floats import FloatRun
from npuflow.run.state import zeros
from npuflow.stages.model import ModelTable, listing
from tests.checkpoints.gguf_files import stored
from tests.checkpoints.packing import safetensors
from tests.checkpoints.running import FAMILIES, Running, read
from tests.checkpoints.test_families import NEAR, expected

STATES = ("cache.0.key", "cache.0.value", "cache.1.key", "cache.1.value", "position")


def bound(name: str, **bindings: object) -> Reading:
    _, reader, source = gathered(FAMILIES / name)
    return reader.read(source, Bindings(**bindings))


def test_inputs_outputs_and_states_are_the_same_for_all_chunks() -> None:
    for chunk in (1, 5):
        graph = read(FAMILIES / "llama", chunk, 32).graph
        assert graph.inputs == ("tokens", "position", *STATES[:-1])
        assert graph.state == tuple((f"{name}:next", name) for name in STATES)
        assert graph.outputs[0] == "logits" and set(graph.outputs[1:]) == {f"{s}:next" for s in STATES}
        assert graph.type("tokens").shape == (1, chunk) and graph.type("logits").shape == (1, 80)
        assert graph.type("cache.1.key").shape == (1, 2, 32, 16)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_a_cache_filled_in_chunks_is_the_one_filled_token_by_token(name: str) -> None:
    tokens, _ = expected(FAMILIES / name)
    held = []
    for chunks in ((6, 6), (1,) * 12):
        running, state = Running(FAMILIES / name), {}
        at = 0
        for chunk in chunks:
            graph, run = running.graph(chunk)
            made = run.run({**(state or zeros(graph)), "tokens": tokens[:, at : at + chunk]})
            state, at = {given: made[output] for output, given in graph.state}, at + chunk
        held.append(state)
    assert held[0]["position"] == held[1]["position"] == 12
    for key, one in held[0].items():
        np.testing.assert_allclose(one, held[1][key], rtol=0, atol=NEAR * max(np.abs(one).max(), 1))
        if key.startswith("cache"):
            assert not one[:, :, 12:].any() and one[:, :, :12].any((0, 1, 3)).all()


def test_logits_of_every_token_are_an_output_of_longer_chunks() -> None:
    tokens, logits = expected(FAMILIES / "qwen3")
    graph = bound("qwen3", dims={"chunk": 8, "context": 16}, outputs=("logits:all",)).graph
    assert graph.outputs[0] == "logits:all" and "logits" not in graph.outputs and len(graph.state) == 5
    made = FloatRun.of(graph, graph.outputs).run({**zeros(graph), "tokens": tokens[:, :8]})
    assert np.abs(made["logits:all"] - logits[:8]).max() <= NEAR * np.abs(logits).max()


def test_a_cut_point_keeps_the_states_of_the_layers_before_it() -> None:
    graph = bound("llama", dims={"context": 16}, outputs=("layers.0.fed",)).graph
    assert [given for _, given in graph.state] == ["cache.0.key", "cache.0.value", "position"]
    assert graph.inputs == ("tokens", "position", "cache.0.key", "cache.0.value")


def test_a_shape_of_tokens_states_the_chunk() -> None:
    found = bound("llama", inputs={"tokens": (1, 4)}, dims={"context": 16})
    assert found.graph.type("tokens").shape == (1, 4) and not found.notes
    assert any("context is taken as 128" in note for note in bound("llama").notes)


def test_wrong_bindings_are_errors() -> None:
    with pytest.raises(ModelError, match='"length"'):
        bound("llama", dims={"length": 3})
    with pytest.raises(InputError, match='"logit"'):
        bound("llama", outputs=("logit",))


@pytest.mark.parametrize(("name", "prefix"), [("gpt2", "transformer."), ("mistral", "model.")])
def test_folders_of_the_inner_model_are_read(name: str, prefix: str, tmp_path: Path) -> None:
    """Names without their first part, as the published GPT-2 has them."""
    shutil.copytree(FAMILIES / name, tmp_path / "net")
    held = {key.removeprefix(prefix): array for key, array in stored(FAMILIES / name).items()}
    safetensors.save_file(held, tmp_path / "net" / "model.safetensors")
    tokens, logits = expected(FAMILIES / name)
    found = Running(tmp_path / "net").logits(tokens, (7,))
    assert np.abs(found - logits[6]).max() <= NEAR * np.abs(logits).max()


def test_configurations_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """`rope_theta`, `rope_scaling` and `sliding_window_pattern`, in place of `rope_parameters` and
    `layer_types`."""
    for name in ("llama3", "gemma3", "gemma2", "phi3-long"):
        shutil.copytree(FAMILIES / name, tmp_path / name)
        path = tmp_path / name / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config.pop("layer_types", None)
        if name == "gemma3":
            config |= {"rope_theta": rope["full_attention"]["rope_theta"], "rope_local_base_freq": 10000.0}
        else:
            config |= {"rope_theta": rope.pop("rope_theta")}
            config |= {"partial_rotary_factor": rope.pop("partial_rotary_factor", 1.0)}
            rope["type"] = rope.pop("rope_type")
            config["rope_scaling"] = rope if rope["type"] != "default" else None
        path.write_text(json.dumps(config))
        tokens, logits = expected(FAMILIES / name)
        found = Running(tmp_path / name).logits(tokens, (12, 1))
        assert np.abs(found - logits[[11, 12]]).max() <= NEAR * np.abs(logits).max(), name


def test_tensors_are_mapped_until_their_numbers_are_asked_for(tmp_path: Path) -> None:
    checkpoint = opened(FAMILIES / "llama")
    tensor = checkpoint.tensors["model.embed_tokens.weight"]
    assert tensor.shape == (80, 32) and tensor.kind == "BF16" and tensor.nbytes == 80 * 32 * 2
    assert not tensor.data.flags.writeable and tensor.floats().flags.writeable


def detail(name: str, *shapes: dict[str, int | tuple[int, ...]]) -> dict[str, object]:
    """What a recipe's model is known by beside its files."""
    path = FilePath("config.json", FAMILIES / name / "config.json")
    return listing(ModelTable(path=path, dims={"context": 96}, shapes=shapes))["model"].detail


def test_the_longest_chunk_of_a_recipe_makes_the_rings_of_all_its_shapes() -> None:
    """And it is part of what the first shape's graph is known by, where it changes that."""
    one, twenty, thirty = ({"chunk": chunk} for chunk in (1, 20, 30))
    table = ModelTable(path=FilePath("m", FAMILIES / "mistral"), dims={"context": 96}, shapes=(one, thirty))
    for shape in table.shapes:
        _, reader, source = gathered(FAMILIES / "mistral")
        graph = reader.read(source, table.bound(shape)).graph
        assert graph.type("cache.1.value").shape == (1, 2, 48, 16) and graph.rings[0].rows == 48
    tokens = ({"tokens": (1, 1)}, {"tokens": (1, 30)})
    for shapes in ((one, thirty), tokens):
        assert detail("mistral", *shapes)["shared"] == {"window 7": 48}
    assert detail("mistral", one, twenty)["shared"] == {"window 7": 32}
    assert detail("gemma3", one, twenty)["shared"] == {"window 6": 32}
    for name, shapes in (("llama", (one, thirty)), ("mistral", ()), ("mistral", (one, {"chunk": 90}))):
        assert "shared" not in detail(name, *shapes)
