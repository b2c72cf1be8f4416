"""GPTQ, AWQ and compressed-tensors: codes, zero points and scales as they were packed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.checkpoints import Grouped, opened
from npuflow.frontends.checkpoint.outline import outline
from tests.checkpoints.packing import METHODS, compressed, folders, gptq, safetensors
from tests.checkpoints.running import FAMILIES, Running
from tests.checkpoints.test_families import NEAR, expected

LIBRARY = Path(__file__).parent / "compressed.npz"
LAYER = "model.layers.0.self_attn.q_proj.weight"


def stored(parts: dict[str, np.ndarray], folder: Path) -> None:
    """One matrix, called net."""
    held = {f"net.{end}": array for end, array in parts.items()}
    safetensors.save_file(held, folder / "model.safetensors")


@pytest.mark.parametrize("method", METHODS)
def test_every_matrix_has_the_floats_that_were_packed(method: str, tmp_path: Path) -> None:
    packed, plain = (opened(folder) for folder in folders(FAMILIES / "llama", tmp_path, method))
    assert packed.tensors.keys() == plain.tensors.keys()
    for name, tensor in packed.tensors.items():
        assert tensor.shape == plain.tensors[name].shape
        assert tensor.floats().tobytes() == plain.tensors[name].floats().tobytes(), name
    grouped = packed.tensors[LAYER].grouped()
    assert isinstance(grouped, Grouped) and grouped.codes.dtype == np.uint8
    assert (grouped.order is not None) == method.endswith("ordered")
    assert grouped.scales.dtype == np.float16 and grouped.group == 16


@pytest.mark.parametrize("method", ["gptq-ordered", "awq", "compressed"])
def test_the_network_computes_with_them(method: str, tmp_path: Path) -> None:
    packed, plain = folders(FAMILIES / "llama", tmp_path, method)
    tokens, _ = expected(FAMILIES / "llama")
    one, other = (Running(folder).logits(tokens, (7,)) for folder in (packed, plain))
    assert np.abs(one - other).max() <= NEAR * np.abs(other).max()
    assert any(kind.endswith(" bits") for kind in opened(packed).kinds)


@pytest.mark.parametrize("case", ["4", "4-zeros", "8", "8-zeros"])
def test_the_librarys_own_packing_is_read(case: str, tmp_path: Path) -> None:
    """Matrices that compressed-tensors has packed: `make_compressed.py`."""
    with np.load(LIBRARY) as held:
        parts = {key.partition("/")[2]: held[key] for key in held.files if key.startswith(f"{case}/")}
    wanted = parts.pop("expected")
    stored(parts, tmp_path)
    weights = {"num_bits": int(case[0]), "type": "int", "symmetric": "zeros" not in case}
    table = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": weights}},
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", "quantization_config": table}))
    found = opened(tmp_path).tensors["net.weight"].floats()
    assert found.tobytes() == wanted.astype(np.float32).tobytes()


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("gptq", {"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ("gptq", {"bits": 3}, "bits"),
        ("awq", {"version": "gemv"}, "gemv"),
        ("compressed", {"format": "float-quantized"}, "float-quantized"),
        ("compressed", {"config_groups": {}}, "config_groups"),
    ],
)
def test_other_ways_of_storing_are_one_error(
    method: str, changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    packed, _ = folders(FAMILIES / "llama", tmp_path, method)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= changes
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as caught:
        outline(opened(packed), {})
    assert said in f"{caught.value.message} {caught.value.because}"


PARTS = ("qweight", "qzeros", "scales", "g_idx")
DAMAGE = [
    (end, damage)
    for end in PARTS
    for damage in ("gone", "short", "type")
    if (end, damage) != ("qweight", "gone")       # then nothing says that the rest are parts
]


@pytest.mark.parametrize(("end", "damage"), DAMAGE)
def test_parts_that_do_not_fit_are_one_error(end: str, damage: str, tmp_path: Path) -> None:
    parts, _ = gptq(np.random.default_rng(0), (16, 32))
    if damage == "gone":
        del parts[end]
    else:
        other = np.float32 if end != "scales" else np.int8
        parts[end] = parts[end][1:].copy() if damage == "short" else parts[end].astype(other)
    stored(parts, tmp_path)
    table = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", "quantization_config": table}))
    if (end, damage) == ("g_idx", "gone"):            # then groups are neighbours
        assert opened(tmp_path).tensors["net.weight"].grouped().order is None
        return
    with pytest.raises(ModelError) as caught:
        opened(tmp_path)
    assert caught.value.code == "NF-MODEL-463"


def test_a_group_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    parts, _ = compressed(np.random.default_rng(0), (16, 32), ordered=True)
    parts["weight_g_idx"][3] = 7
    stored(parts, tmp_path)
    table = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", "quantization_config": table}))
    with pytest.raises(ModelError, match=r"net\.weight"):
        opened(tmp_path).tensors["net.weight"].grouped()
