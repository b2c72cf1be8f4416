"""Small networks that end in a ranking, as detectors and classifiers do: a CenterNet head, a DETR head and a
classifier with its five best classes. Weights are random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.utils import Extractor

from tests.networks.onnx_text import model, normal

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Head:
    """`read`: outputs that the ranking and what follows it read; `ranked`: the outputs that these make."""

    network: bytes
    shape: tuple[int, ...]
    read: tuple[str, ...]
    ranked: tuple[str, ...]

    def samples(self, seed: int, count: int) -> Array:
        """Pictures of coarse squares with noise."""
        rng = np.random.default_rng(seed)
        _, channels, rows, columns = self.shape
        coarse = rng.normal(size=(count, 1, channels, rows // 4, columns // 4))
        noise = rng.normal(size=(count, 1, channels, rows, columns))
        return np.asarray(coarse.repeat(4, 3).repeat(4, 4) + 0.3 * noise, np.float32)

    def ranking(self) -> bytes:
        """The nodes from `read` to `ranked` as a network of their own."""
        known = onnx.shape_inference.infer_shapes(onnx.load_from_string(self.network))
        return bytes(Extractor(known).extract_model([*self.read], [*self.ranked]).SerializeToString())


def filters(seed: int, out: int, channels: int, size: int) -> Array:
    return normal(seed, out, channels, size, size, scale=float(np.sqrt(2 / (channels * size**2))))


def matrix(seed: int, rows: int, columns: int, gain: float = 1.0) -> Array:
    return normal(seed, rows, columns, scale=gain / float(np.sqrt(rows)))


def vector(*values: int) -> Array:
    return np.array(values, np.int64)


def layers(first: int, widths: Sequence[int], result: str) -> tuple[str, dict[str, Array]]:
    """A backbone of 3x3 convolutions, of which the first two halve the picture: nodes and weights."""
    body, weights, last, channels = [], {}, "x", 3
    for k, width in enumerate(widths):
        step = 2 if k < 2 else 1
        weights[f"w{k}"] = filters(first + k, width, channels, 3)
        weights[f"b{k}"] = normal(first + k, width, scale=0.1)
        name = result if k == len(widths) - 1 else f"a{k}"
        body.append(
            f"c{k} = Conv<pads=[1,1,1,1], strides=[{step},{step}]>({last}, w{k}, b{k}) {name} = Relu(c{k})"
        )
        last, channels = name, width
    return " ".join(body), weights


def centers() -> Head:
    """Peaks of four maps: the 20 best of those that are the largest of their 3x3 neighbours, and boxes around
    them."""
    body, weights = layers(10, (16, 32, 32), "m")
    for k, (name, width) in enumerate((("heat", 4), ("off", 2), ("size", 2))):
        weights[f"w_{name}"] = filters(20 + k, 32, 32, 3)
        weights[f"v_{name}"] = filters(30 + k, width, 32, 1)
        weights[f"b_{name}"] = normal(30 + k, width, scale=0.1)
        body += f""" h_{name} = Conv<pads=[1,1,1,1]>(m, w_{name}) r_{name} = Relu(h_{name})
            {name} = Conv(r_{name}, v_{name}, b_{name})"""
    body += """ scores = Sigmoid(heat) peaks = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(scores)
        same = Equal(scores, peaks) mask = Cast<to=1>(same) kept = Mul(scores, mask)
        flat = Reshape(kept, one_row) values, at = TopK(flat, twenty)
        classes = Div(at, cells) cell = Mod(at, cells) row = Div(cell, columns) column = Mod(cell, columns)
        where = Squeeze(cell, first)
        offs = Reshape(off, pairs) sizes = Reshape(size, pairs)
        o = Gather<axis=2>(offs, where) z = Gather<axis=2>(sizes, where)
        real_row = Cast<to=1>(row) real_column = Cast<to=1>(column)
        u = Unsqueeze(real_column, second) v = Unsqueeze(real_row, second) uv = Concat<axis=1>(u, v)
        middle = Add(uv, o) half = Mul(z, fraction) low = Sub(middle, half) high = Add(middle, half)
        boxes = Concat<axis=1>(low, high)"""
    weights |= {
        "one_row": vector(1, -1), "twenty": vector(20), "cells": np.array(256), "columns": np.array(16),
        "first": vector(0), "second": vector(1), "pairs": vector(1, 2, 256),
        "fraction": np.array(0.5, np.float32),
    }
    ranked = "float[1,20] values, int64[1,20] at, int64[1,20] classes, float[1,4,20] boxes"
    read = "float[1,4,16,16] scores, float[1,2,16,16] off, float[1,2,16,16] size"
    shape = (1, 3, 64, 64)
    return Head(
        model(f"float{list(shape)} x => {ranked}, {read}", body, weights),
        shape, ("scores", "off", "size"), ("values", "at", "classes", "boxes"),
    )


def queries() -> Head:
    """A decoder of 20 queries over a picture's cells, an encoder before it: the ten best of class and query
    by softmax without its last class, and their boxes."""
    body, weights = layers(40, (16, 32), "m")
    body += " rows = Reshape(m, as_rows) memory = Transpose<perm=[0,2,1]>(rows) "
    body += _attention("self", "memory", "memory") + _attention("cross", "queries", "n_self")
    body += """ f = MatMul(n_cross, w_up) g = Relu(f) h = MatMul(g, w_down) i = Add(n_cross, h)
        d = LayerNormalization(i, gain, shift)
        logits = MatMul(d, w_class) likely = Softmax<axis=-1>(logits)
        probable = Slice(likely, zero, five, two)
        p = MatMul(d, w_box) q = Relu(p) r = MatMul(q, w_edge) places = Sigmoid(r)
        flat = Reshape(probable, one_row) values, at = TopK(flat, ten)
        classes = Mod(at, classes_of_one) query = Div(at, classes_of_one) which = Squeeze(query, zero)
        found = Gather<axis=1>(places, which)
        middle, extent = Split<axis=-1>(found, halves) half = Mul(extent, fraction)
        low = Sub(middle, half) high = Add(middle, half) boxes = Concat<axis=-1>(low, high)"""
    weights |= {
        f"w_{part}_{name}": matrix(50 + k, 32, 32)
        for k, (part, name) in enumerate((p, n) for p in ("self", "cross") for n in "qkvo")
    }
    weights |= {
        "queries": normal(60, 1, 20, 32), "w_up": matrix(61, 32, 64, 1.4), "w_down": matrix(62, 64, 32),
        "gain": np.ones(32, np.float32), "shift": normal(63, 32, scale=0.1),
        "w_class": matrix(64, 32, 6, 1.5), "w_box": matrix(65, 32, 32, 1.4), "w_edge": matrix(66, 32, 4),
        "as_rows": vector(1, 32, 64), "as_heads": vector(1, -1, 2, 16), "as_one": vector(1, -1, 32),
        "root": np.array(0.25, np.float32), "fraction": np.array(0.5, np.float32),
        "zero": vector(0), "five": vector(5), "two": vector(2), "ten": vector(10), "one_row": vector(1, -1),
        "classes_of_one": np.array(5), "halves": vector(2, 2),
    }
    ranked = "float[1,10] values, int64[1,10] at, int64[1,10] classes, float[1,10,4] boxes"
    read = "float[1,20,5] probable, float[1,20,4] places"
    shape = (1, 3, 32, 32)
    return Head(
        model(f"float{list(shape)} x => {ranked}, {read}", body, weights),
        shape, ("probable", "places"), ("values", "at", "classes", "boxes"),
    )


def _attention(name: str, asking: str, asked: str) -> str:
    """Two heads, a sum with what asks, and a normalisation: the nodes of n_NAME."""
    turned = (("q", asking, "0,2,1,3"), ("k", asked, "0,2,3,1"), ("v", asked, "0,2,1,3"))
    parts = " ".join(
        f"{k}0_{name} = MatMul({source}, w_{name}_{k}) {k}1_{name} = Reshape({k}0_{name}, as_heads) "
        f"{k}_{name} = Transpose<perm=[{order}]>({k}1_{name})"
        for k, source, order in turned
    )
    return f"""{parts} t_{name} = MatMul(q_{name}, k_{name}) s_{name} = Mul(t_{name}, root)
        a_{name} = Softmax<axis=-1>(s_{name}) y0_{name} = MatMul(a_{name}, v_{name})
        y1_{name} = Transpose<perm=[0,2,1,3]>(y0_{name}) y_{name} = Reshape(y1_{name}, as_one)
        o_{name} = MatMul(y_{name}, w_{name}_o) e_{name} = Add({asking}, o_{name})
        n_{name} = LayerNormalization(e_{name}, gain, shift) """


def classifier() -> Head:
    """The five best of 50 classes."""
    body, weights = layers(70, (16, 32, 64), "m")
    body += """ pooled = GlobalAveragePool(m) row = Flatten(pooled) logits = Gemm(row, w_class, b_class)
        likely = Softmax<axis=-1>(logits) values, at = TopK(likely, five)"""
    weights |= {"w_class": matrix(80, 64, 50, 6.0), "b_class": normal(81, 50, scale=0.1), "five": vector(5)}
    shape = (1, 3, 32, 32)
    return Head(
        model(
            f"float{list(shape)} x => float[1,5] values, int64[1,5] at, float[1,50] likely", body, weights
        ),
        shape, ("likely",), ("values", "at"),
    )


HEADS = {"centers": centers, "queries": queries, "classifier": classifier}
