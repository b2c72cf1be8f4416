"""Damaged files of checkpoints: one error that says something, and no read behind the end."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.checkpoints import opened
from npuflow.frontends.checkpoint.outline import outline
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES, read

COUNT = 200
ABSURD = (0, 1, 2**16, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(data: bytes, header: int, rng: np.random.Generator) -> bytes:
    """Cut off, or with numbers of the header changed: any bytes, or eight of them to an absurd number."""
    held = bytearray(data)
    way = rng.integers(4)
    if way == 0:
        return bytes(held[: rng.integers(len(held))])
    if way == 1:
        for _ in range(int(rng.integers(1, 6))):
            held[rng.integers(header)] = rng.integers(256)
    elif way == 2:
        at = int(rng.integers(header - 8))
        held[at : at + 8] = struct.pack("<Q", int(rng.choice(np.array(ABSURD, object))))
    else:
        at = int(rng.integers(header - 4))
        held[at : at + 4] = struct.pack("<I", int(rng.integers(64)))
    return bytes(held)


def looked_at(path: Path) -> str:
    """All that a file says, and every number of it: "" where it is sound, else the error's code."""
    try:
        found = opened(path)
        outline(found, {})
        for tensor in found.tensors.values():
            with np.errstate(all="ignore"):
                assert tensor.floats().shape == tensor.shape
    except ModelError as fault:
        assert fault.code and fault.message and (fault.because or fault.hint)
        assert fault.where.file is not None and fault.where.file.startswith(str(path.parent))
        return fault.code
    return ""


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write(FAMILIES / "llama3", tmp_path / "net.gguf", "Q4_1")


def test_a_damaged_gguf_file_is_one_error(gguf_file: Path) -> None:
    data, rng = gguf_file.read_bytes(), np.random.default_rng(3)
    header = len(data) - opened(gguf_file).nbytes
    found: Counter[str] = Counter()
    for _ in range(COUNT):
        gguf_file.write_bytes(damaged(data, header, rng))
        found[looked_at(gguf_file)] += 1
    assert found["NF-MODEL-440"] > COUNT // 4 and len(found) > 3


@pytest.mark.parametrize("name", ["llama3", "qwen3"])
def test_a_damaged_safetensors_file_is_one_error(name: str, tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / name, tmp_path / "net")
    path = sorted((tmp_path / "net").glob("*.safetensors"))[0]
    data, rng = path.read_bytes(), np.random.default_rng(4)
    header = 8 + struct.unpack_from("<Q", data)[0]
    found: Counter[str] = Counter()
    for _ in range(COUNT):
        path.write_bytes(damaged(data, header, rng))
        found[looked_at(tmp_path / "net")] += 1
    assert found["NF-MODEL-440"] > COUNT // 4


def test_damaged_numbers_of_a_configuration_are_one_error(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "llama3", tmp_path / "net")
    path = tmp_path / "net" / "config.json"
    config = json.loads(path.read_text())
    wrong = (0, -1, 2**70, 1.5, "x", None, [], {}, True, float("nan"), [1, 2])
    found: Counter[str] = Counter()
    for key in config:
        for value in wrong:
            path.write_text(json.dumps({**config, key: value}))
            found[looked_at(tmp_path / "net")] += 1
    assert found["NF-MODEL-444"] > 50


def changed(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


def test_shards_lie_in_the_folder_itself(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "qwen3", tmp_path / "net")
    index = tmp_path / "net" / "model.safetensors.index.json"
    changed(index, lambda held: held["weight_map"].update(x="../../secret.safetensors"))
    assert looked_at(tmp_path / "net") == "NF-MODEL-447"


def test_a_missing_shard_and_a_tensor_in_none_are_errors(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "qwen3", tmp_path / "net")
    index = tmp_path / "net" / "model.safetensors.index.json"
    first = sorted((tmp_path / "net").glob("model-*.safetensors"))[0].name
    changed(index, lambda held: held["weight_map"].update(x=first))
    assert looked_at(tmp_path / "net") == "NF-MODEL-458"
    (tmp_path / "net" / first).unlink()
    assert looked_at(tmp_path / "net") == "NF-MODEL-001"


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    shutil.copy(FAMILIES / "llama" / "config.json", tmp_path / "net")
    (tmp_path / "net" / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ModelError, match="pickled") as caught:
        read(tmp_path / "net")
    assert "safe_serialization" in caught.value.hint


@pytest.mark.parametrize(
    ("family", "named", "hinted"), [("qwen3", "olmo7", ""), ("gemma2", "gemma9", '"gemma')],
)
def test_an_unknown_family_is_told_the_nearest_and_what_differs(
    tmp_path: Path, family: str, named: str, hinted: str
) -> None:
    shutil.copytree(FAMILIES / family, tmp_path / "net")
    changed(tmp_path / "net" / "config.json", lambda held: held.update(model_type=named))
    with pytest.raises(ModelError, match=f'"{named}"') as caught:
        read(tmp_path / "net")
    assert f'nearest is "{family}"' in caught.value.because and hinted in caught.value.hint


def test_wrong_shapes_are_named_with_what_is_stated(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "qwen3", tmp_path / "net")
    changed(tmp_path / "net" / "config.json", lambda held: held.update(intermediate_size=60))
    with pytest.raises(ModelError, match="another shape") as caught:
        read(tmp_path / "net")
    assert "model.layers.0.mlp.up_proj.weight is [64, 32], and [60, 32] is stated" in caught.value.because


def test_tensors_that_the_family_has_no_place_for_are_an_error(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "qwen3", tmp_path / "net")
    changed(tmp_path / "net" / "config.json", lambda held: held.update(model_type="llama"))
    with pytest.raises(ModelError, match="no place") as caught:
        read(tmp_path / "net")
    assert "self_attn.k_norm.weight" in caught.value.because


@pytest.mark.parametrize(
    ("chunk", "context", "code"), [(9, 8, "NF-MODEL-456"), (1, 4096, "NF-MODEL-457")]
)
def test_sizes_that_do_not_fit_are_errors(chunk: int, context: int, code: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(FAMILIES / "llama", chunk, context)
    assert caught.value.code == code and "dims" in caught.value.hint
