"""A checkpoint, whatever form its files have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from npuflow.base.errors import ModelError
from npuflow.checkpoints import folder, gguf, packed
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.checkpoints.tensors import StoredTensor

Form = Literal["gguf", "folder"]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """`path`: the GGUF file, or the folder. `metadata`: of a GGUF file all that it states. Tensors are
    mapped: their bytes are read when their numbers are asked for."""

    path: Path
    form: Form
    config: CheckpointConfig
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, Any]

    @property
    def family(self) -> str:
        """What the checkpoint calls its family."""
        return self.config.text("model_type")

    @property
    def kinds(self) -> dict[str, int]:
        """How many tensors are stored in which way."""
        return dict(Counter(tensor.kind for tensor in self.tensors.values()).most_common())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def is_checkpoint(path: Path) -> bool:
    """Whether a path names one: a GGUF file, a folder with a config.json, or that file."""
    return path.suffix.lower() == ".gguf" or path.name == folder.CONFIG or (path / folder.CONFIG).is_file()


def opened(path: Path) -> Checkpoint:
    """The checkpoint at the path of a GGUF file, of a folder, or of the config.json in it."""
    if path.name == folder.CONFIG:
        path = path.parent
    if path.is_dir():
        values = folder.json_file(path / folder.CONFIG)
        config = CheckpointConfig(values, str(path / folder.CONFIG))
        return Checkpoint(path, "folder", config, packed.tensors(folder.tensors(path), config), {})
    if path.suffix.lower() != ".gguf":
        raise ModelError(
            f'"{path.name}" is no checkpoint', because=f"a folder is known by its {folder.CONFIG}",
            hint=f'"{path.parent.name}", the folder itself, if it holds one', code="NF-MODEL-462",
        ).at(file=str(path))
    first, *more = parts = gguf_parts(path)
    read = [gguf.read(part) for part in parts]
    metadata = read[0].metadata
    config = gguf.config(metadata, str(first))
    found: dict[str, StoredTensor] = {}
    for file in read:
        found |= file.tensors
    stated = metadata.get("split.tensors.count", len(found))
    if more and stated != len(found):
        raise ModelError(
            f"the parts of {first.name} hold {len(found)} tensors",
            because=f"the first states {stated}", hint="download all parts again", code="NF-MODEL-459",
        ).at(file=str(first))
    return Checkpoint(first, "gguf", config, found, metadata)


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """The files of a GGUF checkpoint that is split (NAME-00001-of-00003.gguf); else the file."""
    stem, of, count = path.stem.rpartition("-of-")
    base, _, number = stem.rpartition("-")
    if not (of and number.isdecimal() and count.isdecimal() and 1 < int(count) <= 10_000):
        return (path,)
    parts = [
        path.with_name(f"{base}-{i:0{len(number)}}-of-{count}{path.suffix}")
        for i in range(1, int(count) + 1)
    ]
    lost = next((part for part in parts if not part.is_file()), None)
    if lost is not None:
        raise ModelError(
            f"a part of the checkpoint is missing: {lost.name}", because=f"there are {count} parts",
            hint="put all parts into one folder", code="NF-MODEL-460",
        ).at(file=str(lost))
    return tuple(parts)


def files(path: Path) -> tuple[Path, ...]:
    """Every file that the network comes from, or its tokenizer."""
    if path.suffix.lower() == ".gguf":
        return gguf_parts(path)
    base = path if path.is_dir() else path.parent
    more = [base / name for name in (folder.INDEX, *folder.TOKENIZER)]
    return (base / folder.CONFIG, *folder.weight_files(base), *(file for file in more if file.is_file()))
