"""A C compiler where there is one: bytes of code and stack of an exported program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("-std=c99", "-O2", "-ffreestanding")


@dataclass(frozen=True)
class Measured:
    """`code`: bytes of instructions; `stack`: of the deepest chain of calls, no less than it can be."""

    compiler: str
    code: int
    stack: int


def compilers() -> tuple[str, ...]:
    """Compilers on the path, CC first."""
    wanted = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return tuple(dict.fromkeys(name for name in wanted if name and shutil.which(name)))


def measured(folder: Path, name: str) -> Measured | None:
    """Compiled for this machine without SIMD; None without a compiler, or where it rejects the source."""
    found = compilers()
    if not found:
        return None
    with tempfile.TemporaryDirectory() as place:
        words = [found[0], *FLAGS, "-DNN_SCALAR", "-fstack-usage", "-c", "-o", f"{place}/{name}.o"]
        source = folder.resolve() / f"{name}.c"
        run = subprocess.run([*words, str(source)], capture_output=True, check=False, cwd=place)
        if run.returncode:
            return None
        usage = next(iter(Path(place).glob("*.su")), None)
        size = _text(Path(place) / f"{name}.o")
        return Measured(f"{found[0]} {' '.join(FLAGS)}", size, _stack(usage, f"{name}_run") if usage else 0)


def _stack(usage: Path, top: str) -> int:
    """The frame of the entry, the largest of a kernel, and the largest two of what a kernel calls."""
    frames: dict[str, int] = {}
    for line in usage.read_text(encoding="utf-8").splitlines():
        place, size, *_ = line.split("\t")
        frames[place.rsplit(":", 1)[-1]] = int(size)
    others = sorted((size for name, size in frames.items() if name != top), reverse=True)
    return frames.get(top, 0) + sum(others[:3])


def _text(path: Path) -> int:
    """Bytes of the section of instructions, by `size`; 0 where there is no such tool."""
    if shutil.which("size") is None:
        return 0
    run = subprocess.run(["size", "-A", str(path)], capture_output=True, text=True, check=False)
    return sum(int(n) for n in re.findall(r"^\.text\S*\s+(\d+)", run.stdout, re.MULTILINE))
