"""Model files: which front end reads one, by its suffix, and what it gathers of it."""

from __future__ import annotations

from pathlib import Path

from npuflow.base.errors import ModelError
from npuflow.base.tables import FilePath
from npuflow.base.tables_files import existing_file
from npuflow.frontends import FRONTENDS, Frontend, Gatherer, Source, StatesItself, main_files

WEIGHTS = (".pth", ".ckpt", ".safetensors")  # suffixes of files that hold no network


def model_file(text: str, base: Path) -> FilePath:
    """The model that a text names: a file, a folder of a format whose models are folders, or a function."""
    return existing_file(text, base, main_files)


def address(path: FilePath, file: Path | None = None) -> Path:
    """How front ends are called: the file, with `:function` behind its name where the recipe names one."""
    place = file or path.path
    return place.with_name(f"{place.name}:{path.function}") if path.function else place


def frontend(path: Path) -> tuple[str, Gatherer]:
    """The source format of a file, by its suffix."""
    known: list[str] = []
    suffix = path.suffix.lower().partition(":")[0]
    for name in FRONTENDS.names():
        reader: Gatherer = FRONTENDS[name]()
        known += reader.suffixes
        if suffix in reader.suffixes:
            return name, reader
    hint = f"known are {', '.join(sorted(known))}; others are exported to ONNX first"
    if suffix in WEIGHTS:
        hint = (
            "such files hold weights and no network: load them in a function that returns (module, "
            'example_inputs), path = "python:FILE.py:FUNCTION"'
        )
    if suffix == ".safetensors":
        hint = f"such files hold weights alone: name their folder, if it has a config.json; or {hint}"
    if suffix == ".caffemodel":
        hint = f'name the network, "{path.with_suffix(".prototxt").name}": its weights are found beside it'
    raise ModelError(
        f'"{path.name}" has an unknown model format', hint=hint, code="NF-MODEL-035",
    ).at(file=str(path))


def file_has_states(path: Path) -> bool:
    """Whether a model's file itself says which of its tensors are states. A file that cannot be read has
    none: whoever reads it says so."""
    try:
        _, reader = frontend(path)
    except ModelError:
        return False
    return isinstance(reader, StatesItself) and reader.has_states(path)


def gathered(path: Path) -> tuple[str, Frontend, Source]:
    """A model, the format that it is kept in, and who reads that. A path may be `python:module:function`, or
    a folder."""
    if str(path).startswith("python:") or path.is_dir():
        path = address(model_file(str(path), Path.cwd()))
    name, gatherer = frontend(path)
    source = gatherer.gather(path)
    reader: Frontend = FRONTENDS[source.format or name]()
    return source.format or name, reader, source
