"""Which files an argument means: a folder, a numbered sequence, a pattern, or standard input."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from npuflow.base.errors import DataError, UsageError
from npuflow.base.wording import counted

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SUFFIXES = (*PICTURES, ".npy", ".npz")
NUMBER = re.compile(r"%0?\d*d")


def input_sets(
    paths: Sequence[Path], names: Sequence[str], folder: Path, note: Callable[[str], None] | None = None
) -> list[list[Path]]:
    """The files that are loaded together, set by set: each set has every input, for one sample or more.
    `names`: of the inputs; `folder` takes what comes from standard input; `note` is given what of it is left
    out."""
    groups, inputs = [files_of(path, folder, note) for path in paths], len(names)
    flat = [file for group in groups for file in group]
    if len(flat) == len(groups) <= max(1, inputs) and not _repeated(flat, names):
        return [flat]
    if inputs <= 1 or all(file.suffix == ".npz" for file in flat):
        return [[file] for file in flat]
    counts = {len(group) for group in groups}
    if len(groups) != inputs or len(counts) > 1:
        raise UsageError(
            f"{counted(len(flat), 'input file')} for {counted(inputs, 'input')}",
            because=f"several samples need an argument for every input ({inputs}), with as many files each: "
            + ", ".join(f"{path} has {len(group)}" for path, group in zip(paths, groups, strict=True)),
            hint="a folder for every input, or npz files with all of them by name",
            code="NF-USAGE-079",
        )
    return [list(files) for files in zip(*groups, strict=True)]


def _repeated(files: Sequence[Path], names: Sequence[str]) -> bool:
    """Whether several npz files hold the same input: then each is a sample, or more, of its own."""
    from npuflow.input.data.array import headers

    if len(files) < 2 or any(file.suffix != ".npz" for file in files):
        return False
    held = [name for file in files for name in headers(file) if name in names]
    return len(held) > len(set(held))


def files_of(path: Path, folder: Path, note: Callable[[str], None] | None = None) -> list[Path]:
    """The files of one argument, in the order of the numbers in their names."""
    if str(path) == "-":
        from npuflow.cli._standard_input import standard_input

        return standard_input(folder, note)
    if path.is_dir():
        found = [file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file()]
        return _found(path, found, f"a file that ends in {', '.join(SUFFIXES)}")
    if path.exists():
        return [path]
    if NUMBER.search(path.name):
        before, after = (re.escape(part) for part in NUMBER.split(path.name, maxsplit=1))
        frame = re.compile(f"{before}[0-9]+{after}")
        inside = path.parent.iterdir() if path.parent.is_dir() else ()
        return _found(path, [file for file in inside if frame.fullmatch(file.name)], "a numbered file")
    if any(sign in path.name for sign in "*?["):
        return _found(path, list(path.parent.glob(path.name)), "a file of that pattern")
    raise DataError(f'no file "{path}"', code="NF-DATA-218")


def _found(path: Path, files: Sequence[Path], wanted: str) -> list[Path]:
    if not files:
        raise DataError(f'"{path}" has no input', because=f"looked for {wanted}", code="NF-DATA-068")
    return sorted(files, key=lambda file: natural(file.name))


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts 2 before 10."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]
