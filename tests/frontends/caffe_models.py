"""Caffe files written for the tests, read by npuflow and by the dnn of an OpenCV below 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

RNG = np.random.default_rng(0)
Blobs = Mapping[str, Sequence[np.ndarray]]


def varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])


def chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def caffemodel(held: Blobs, old: bool = False) -> bytes:
    """A NetParameter with nothing but names and blobs."""
    made = b""
    for name, arrays in held.items():
        layer = chunk(4 if old else 1, name.encode())
        for array in arrays:
            if old:
                shape = (1,) * (4 - array.ndim) + array.shape
                blob = b"".join(varint(i << 3) + varint(d) for i, d in enumerate(shape, 1))
            else:
                blob = chunk(7, chunk(1, b"".join(varint(d) for d in array.shape)))
            blob += chunk(5, array.astype("<f4").tobytes())
            layer += chunk(6 if old else 7, blob)
        made += chunk(2 if old else 100, layer)
    return made


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.3)


def layer(kind: str, bottoms: str, tops: str, options: str = "", name: str = "") -> str:
    rows = [f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()]
    return f'layer {{ name: "{name or tops.split()[0]}" type: "{kind}" {" ".join(rows)} {options} }}\n'


def read(text: str, held: Blobs, old: bool = False, folder: Path | None = None) -> Reading:
    reader = FRONTENDS["caffe"]()
    if folder is None:
        from npuflow.frontends.caffe.convert import reading
        from npuflow.frontends.caffe.parse import parsed

        return reading(parsed(text.encode(), caffemodel(held, old)), Bindings())
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(caffemodel(held, old))
    return reader.read(reader.gather(folder / "net.prototxt"), Bindings())


def outputs(reading: Reading, x: np.ndarray, name: str = "data") -> list[np.ndarray]:
    return run(export_model(verify(reading.graph, "reading")), {name: x})


def judged(folder: Path, x: np.ndarray, names: Sequence[str] = ()) -> list[np.ndarray]:
    """OpenCV's outputs of the files that `read` wrote: those of several named layers, or the last one's."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    if not hasattr(cv2.dnn, "readNetFromCaffe") or int(cv2.__version__.split(".")[0]) > 4:
        pytest.skip("OpenCV from 5 on reads no Caffe networks")
    judge = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    judge.setInput(x)
    return list(judge.forward(list(names))) if len(names) > 1 else [judge.forward()]
