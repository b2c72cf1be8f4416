"""GGUF files written by the library `gguf`: the same logits as from folders, and the library's own floats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from npuflow.checkpoints import opened
from npuflow.checkpoints.gguf import TYPES, BlockTensor
from npuflow.frontends.checkpoint.reading import weights_of
from tests.checkpoints.gguf_files import gguf, rounded, stored, write
from tests.checkpoints.running import FAMILIES, Running
from tests.checkpoints.test_families import NEAR, expected
from tests.tiers import often

ROUNDED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
UNLIKE = {"qwen2-window", "gemma3"}       # llama.cpp knows no such window, nor a pattern of three layers
BLOCKS = [kind for kind in TYPES.values() if kind.unpack is not None]


@pytest.mark.parametrize("name", often(sorted({p.name for p in FAMILIES.iterdir()} - UNLIKE), 4))
def test_logits_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    path = write(FAMILIES / name, tmp_path / f"{name}.gguf")
    tokens, logits = expected(FAMILIES / name)
    found = Running(path).logits(tokens, (7, 1, 7))
    wanted = logits[[6, 7, 14]]
    assert np.abs(found - wanted).max() <= NEAR * np.abs(wanted).max()


@pytest.mark.parametrize("kind", BLOCKS, ids=[kind.name for kind in BLOCKS])
def test_floats_of_codes_are_the_librarys_bit_for_bit(kind: object) -> None:
    """Random bytes, but for the float16 scales, which are kept finite."""
    rng = np.random.default_rng(kind.size)
    data = rng.integers(0, 256, (6, 2 * kind.size), np.uint8)
    for at in {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(kind.name, (0, 2)):
        for start in (at, at + kind.size):
            data[:, start : start + 2] = rng.normal(size=(6, 1)).astype("<f2").view(np.uint8)
    number = getattr(gguf.GGMLQuantizationType, kind.name)
    tensor = BlockTensor("w", kind, (6, 2 * kind.elements), data.reshape(-1))
    grouped = tensor.grouped()
    assert tensor.floats().tobytes() == gguf.dequantize(data, number).astype(np.float32).tobytes()
    assert grouped.codes.max() < 1 << grouped.bits
    assert grouped.scales.shape == (6, 2 * kind.elements // grouped.group)


@pytest.mark.parametrize("kind", [*ROUNDED, "F16", "BF16"])
def test_every_matrix_of_a_file_has_the_librarys_floats(kind: str, tmp_path: Path) -> None:
    path = write(FAMILIES / "llama", tmp_path / "net.gguf", kind)
    theirs = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    found = opened(path)
    assert found.tensors.keys() == theirs.keys()
    for name, tensor in found.tensors.items():
        assert tensor.floats().tobytes() == theirs[name].astype(np.float32).tobytes(), name
    assert found.kinds[kind] == 15


@pytest.mark.parametrize("kind", ROUNDED)
def test_rows_of_queries_are_put_back_with_their_codes(kind: str, tmp_path: Path) -> None:
    """Codes are the library's of the folder's matrix: rounding goes along rows, which alone are moved."""
    path = write(FAMILIES / "llama", tmp_path / "net.gguf", kind)
    weights = weights_of(opened(path), 32)
    for role, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        plain = stored(FAMILIES / "llama")[f"model.layers.1.self_attn.{name}.weight"]
        found = weights.of(role, 1)
        assert found.floats().tobytes() == rounded(plain, kind).tobytes()
        assert found.grouped().floats().tobytes() == found.floats().tobytes()


def test_a_rounded_file_computes_with_its_own_floats(tmp_path: Path) -> None:
    """The same logits as from a folder that holds the rounded floats."""
    import safetensors.numpy

    shutil.copytree(FAMILIES / "llama", tmp_path / "folder")
    held = {
        name: rounded(array, "Q4_1") if array.ndim > 1 else array
        for name, array in stored(FAMILIES / "llama").items()
    }
    safetensors.numpy.save_file(held, tmp_path / "folder" / "model.safetensors")
    path = write(FAMILIES / "llama", tmp_path / "net.gguf", "Q4_1")
    tokens, _ = expected(FAMILIES / "llama")
    one, other = (Running(p).logits(tokens, (7, 7)) for p in (path, tmp_path / "folder"))
    assert np.abs(one - other).max() <= NEAR * np.abs(other).max()


def test_a_file_in_parts_is_one_checkpoint(tmp_path: Path) -> None:
    """As gguf-split writes it: tensors in all parts, metadata in the first."""
    config = json.loads((FAMILIES / "gpt2" / "config.json").read_text())
    assert config["n_layer"] == 2
    whole = write(FAMILIES / "gpt2", tmp_path / "whole.gguf")
    reader = gguf.GGUFReader(whole)
    parts = [reader.tensors[:5], reader.tensors[5:]]
    for number, rows in enumerate(parts, 1):
        writer = gguf.GGUFWriter(tmp_path / f"net-{number:05}-of-00002.gguf", "gpt2")
        if number == 1:
            writer.add_block_count(2)
            writer.add_context_length(128)
            writer.add_embedding_length(32)
            writer.add_head_count(2)
            writer.add_feed_forward_length(128)
            writer.add_layer_norm_eps(1e-5)
        for row in rows:
            writer.add_tensor(row.name, np.array(row.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    tokens, logits = expected(FAMILIES / "gpt2")
    found = Running(tmp_path / "net-00001-of-00002.gguf").logits(tokens, (7,))
    assert np.abs(found - logits[6]).max() <= NEAR * np.abs(logits).max()
