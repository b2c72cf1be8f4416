"""Reads folders as Hugging Face writes them: config.json, and safetensors files whole or in shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.checkpoints import safetensors
from npuflow.checkpoints.tensors import FloatTensor

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST = 200_000_000                        # bytes of a JSON file


def json_file(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object."""
    try:
        if path.stat().st_size > MOST:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        found = json.loads(path.read_bytes())
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read", because=fault.strerror or str(fault), code="NF-MODEL-001",
        ).at(file=str(path)) from fault
    except (ValueError, RecursionError) as fault:
        raise ModelError(
            f"{path.name} is damaged", because=f"it is not JSON: {fault}", hint="download it again",
            code="NF-MODEL-440",
        ).at(file=str(path)) from fault
    if not isinstance(found, dict):
        raise ModelError(
            f"{path.name} is damaged", because="it holds no table", hint="download it again",
            code="NF-MODEL-440",
        ).at(file=str(path))
    return found


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that hold tensors; an error where there are none, or only pickled ones."""
    if (folder / INDEX).is_file():
        return tuple(dict.fromkeys(folder / file for file in _shards(folder).values()))
    if (folder / ONE).is_file():
        return (folder / ONE,)
    other = sorted(folder.glob("*.safetensors"))
    if len(other) == 1:
        return (other[0],)
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLED)
    if pickled:
        raise ModelError(
            f"the weights of the checkpoint are pickled: {pickled[0]}",
            because="reading such a file may run any program that it holds; npuflow does not",
            hint="model.save_pretrained(FOLDER, safe_serialization=True) of transformers writes safetensors",
            code="NF-MODEL-445",
        ).at(file=str(folder))
    raise ModelError(
        "the checkpoint's folder holds no weights",
        because=f"looked for {ONE} and {INDEX}"
        + (f"; there are {len(other)} other .safetensors files and no index" if other else ""),
        hint="download the whole folder", code="NF-MODEL-446",
    ).at(file=str(folder))


def _shards(folder: Path) -> Mapping[str, str]:
    """The file of every tensor by the index, whose files lie in the folder itself."""
    path = folder / INDEX
    found = json_file(path).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelError(
            f"{path.name} is damaged", because="it has no weight_map", hint="download it again",
            code="NF-MODEL-440",
        ).at(file=str(path))
    for name, file in found.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise ModelError(
                f'{INDEX} says that "{name}" lies in {str(file)[:80]!r}',
                because="shards are .safetensors files of the same folder", hint="download it again",
                code="NF-MODEL-447",
            ).at(file=str(path))
    return found


def tensors(folder: Path) -> dict[str, FloatTensor]:
    """All tensors by name, from all files."""
    files = weight_files(folder)
    found: dict[str, FloatTensor] = {}
    for file in files:
        own = safetensors.read(file)
        twice = next((name for name in own if name in found), None)
        if twice is not None:
            raise ModelError(
                f'the tensor "{twice}" is in two shards', because=f"{file.name} is the second",
                hint="download the folder again", code="NF-MODEL-448",
            ).at(file=str(file))
        found.update(own)
    if (folder / INDEX).is_file():
        lost = next((name for name in _shards(folder) if name not in found), None)
        if lost is not None:
            raise ModelError(
                f'the tensor "{lost}" is in no shard', because=f"{INDEX} says that it is in "
                f"{_shards(folder)[lost]}", hint="download the folder again", code="NF-MODEL-458",
            ).at(file=str(folder / INDEX))
    return found
