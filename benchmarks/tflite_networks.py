"""Five Keras networks as int8 TFLite files: npuflow's integers, LiteRT's reference and default kernels.

python benchmarks/tflite_networks.py [--count N] [NAME...]      # prints its study
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from npuflow.frontends.tflite.schema import parsed
from npuflow.ir.codes import decode
from npuflow.whole.execute.executor import Executor
from tests.frontends.tflite_judged import integers, wide_multipliers
from tests.frontends.tflite_models import reference

CLASSES = 10
CLEAR = 6.0  # errors of two scores from two sets of integers: three times their standard deviation
HEAD = """# Keras networks as int8 TFLite files

Random weights, {count} random images (sequences), integers on a target with 31-bit multipliers. SQNR of
all outputs against TensorFlow's float model, and (') against LiteRT's default kernels; *reference*: those of
BUILTIN_REF. *Below*: npuflow's SQNR below the reference's, against float. Top-1: share of equal largest
outputs (in the detector: of every box's class) against the default kernels. *Clear*: share of those whose two
largest scores are, in the float model, {clear:g} times as far apart as the default kernels' error is large
(root mean square); chance in two sets of integers moves the two scores up to that far. *Top-1 of these*: as
before, among them alone. `benchmarks/tflite_networks.py` prints this page.

| network | input | npuflow | reference | default | below | npuflow' | reference' | top-1 | reference \
| clear | top-1 of these | reference | s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def application(name: str) -> Any:
    """An application with a wide last layer, so that its classes differ from image to image."""
    trunk = getattr(tf.keras.applications, name)(input_shape=(64, 64, 3), weights=None, include_top=False)
    pooled = tf.keras.layers.GlobalAveragePooling2D()(trunk.output)
    return tf.keras.Model(trunk.input, tf.keras.layers.Dense(CLASSES)(pooled))


def detector() -> Any:
    """Boxes and class scores of two feature maps, as SSD has them."""
    layers = tf.keras.layers
    image = tf.keras.Input((64, 64, 3))
    y, boxes, scores = image, [], []
    for i, width in enumerate((16, 32, 48, 64)):
        y = layers.Conv2D(width, 3, 2, "same", use_bias=False)(y)
        y = layers.ReLU(6)(layers.BatchNormalization()(y))
        if i >= 2:
            for found, depth in ((boxes, 4), (scores, CLASSES)):
                head = layers.Conv2D(3 * depth, 1)(layers.DepthwiseConv2D(3, padding="same")(y))
                found.append(layers.Reshape((-1, depth))(head))
    classes = layers.Activation("sigmoid")(layers.Concatenate(1)(scores))
    return tf.keras.Model(image, [layers.Concatenate(1)(boxes), classes])


def lstm() -> Any:
    """Unrolled: TensorFlow's converter leaves loops in float."""
    steps = tf.keras.Input((16, 12))
    y = tf.keras.layers.LSTM(32, unroll=True)(steps)
    return tf.keras.Model(steps, tf.keras.layers.Dense(CLASSES)(y))


NETWORKS: dict[str, Callable[[], Any]] = {
    "MobileNetV2": lambda: application("MobileNetV2"),
    "EfficientNetB0": lambda: application("EfficientNetB0"),
    "ResNet50": lambda: application("ResNet50"),
    "detector head": detector,
    "LSTM": lstm,
}


def spread(model: Any) -> None:
    """Weights at random, with norms that are not the identity."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "moving_mean" in weight.path or "beta" in weight.path or "bias" in weight.path:
            weight.assign(rng.normal(0, 0.1, weight.shape))
        elif "moving_variance" in weight.path or weight.path.endswith("gamma"):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))


def samples(shape: Sequence[int], count: int, seed: int) -> list[np.ndarray]:
    """Images (sequences) that differ in mean and contrast."""
    rng = np.random.default_rng(seed)
    every = rng.standard_normal((count, 1, *shape)) * rng.uniform(0.2, 1.5, (count, 1, *[1] * len(shape)))
    lift = rng.normal(0, 1, (count, 1, *[1] * (len(shape) - 1), shape[-1]))
    return list((every + lift).astype(np.float32))


def converted(model: Any) -> bytes:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    shape = model.input_shape[1:]
    function = tf.function(lambda x: model(x, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec((1, *shape), tf.float32))
    frozen = convert_variables_to_constants_v2(concrete)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([x] for x in samples(shape, 32, 1))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def row(name: str, count: int) -> str:
    started = time.monotonic()
    tf.keras.utils.set_random_seed(0)
    model = NETWORKS[name]()
    spread(model)
    shape, data = model.input_shape[1:], converted(model)
    tables, target = parsed(data), wide_multipliers()
    codes = tables.tensors[tables.inputs[0]].codes
    ends = [tables.tensors[i].codes for i in tables.outputs]
    assert codes is not None and all(ends)
    graph = integers(data, target, [samples(shape, 1, 2)[0]])
    runner = Executor(graph, target.numerics, 1)
    found: dict[str, list[list[np.ndarray]]] = {"float": [], "default": [], "npuflow": [], "reference": []}
    for x in samples(shape, count, 2):
        code = np.clip(np.rint(x / codes.scale[0]) + codes.zero[0], -128, 127).astype(np.int8)
        real = ((code.astype(np.int64) - codes.zero[0]) * codes.scale[0]).astype(np.float32)
        wanted = model(real, training=False)
        found["float"].append([np.asarray(v) for v in (wanted if isinstance(wanted, list) else [wanted])])
        for kind, plain in (("default", False), ("reference", True)):
            given = reference(data, [code], plain)
            rows = [(g.astype(np.int64) - e.zero[0]) * e.scale[0] for g, e in zip(given, ends, strict=True)]
            found[kind].append(rows)
        made = runner.run({graph.inputs[0]: real})
        types = [graph.values[one].quant for one in graph.outputs]
        rows = [
            made[n] if t is None else decode(made[n], t) for n, t in zip(graph.outputs, types, strict=True)
        ]
        found["npuflow"].append([np.asarray(one, np.float64) for one in rows])
    mine, theirs, plain = (
        judged(found["float"], found[kind])[0] for kind in ("npuflow", "reference", "default")
    )
    near = [judged(found["default"], found[kind]) for kind in ("npuflow", "reference")]
    marked = clear(found["float"], found["default"])
    sure = [judged(found["default"], found[kind], marked)[1] for kind in ("npuflow", "reference")]
    cells = [name, "x".join(str(s) for s in shape)]
    cells += [f"{v:.2f} dB" for v in (mine, theirs, plain, max(theirs - mine, 0.0))]
    cells += [*(f"{v:.1f} dB" for v, _ in near), *(f"{v:.2%}" for _, v in near)]
    cells += [f"{np.concatenate(marked).mean():.0%}", *(f"{v:.2%}" for v in sure)]
    cells.append(f"{time.monotonic() - started:.0f}")
    return f"| {' | '.join(cells)} |\n"


def scores_of(outputs: list[np.ndarray]) -> np.ndarray:
    """Rows of scores: the output with most classes."""
    widest = max(outputs, key=lambda one: one.shape[-1])
    return widest.reshape(-1, widest.shape[-1])


def clear(wanted: list[list[np.ndarray]], default: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Which rows of scores of each sample have a largest one that integers should not change."""
    theirs, mine = ([scores_of(one) for one in side] for side in (wanted, default))
    error = np.sqrt(np.mean((np.concatenate(theirs) - np.concatenate(mine)) ** 2))
    return [np.diff(np.sort(one)[:, -2:])[:, 0] > CLEAR * error for one in theirs]


def judged(
    wanted: list[list[np.ndarray]], given: list[list[np.ndarray]], marked: list[np.ndarray] | None = None
) -> tuple[float, float]:
    """SQNR of all outputs together, and how often the largest score is the same, of the marked rows or of
    all. Codes tie: the class that is wanted has to have the largest one."""
    signal = noise = equal = total = 0.0
    for k, (theirs, mine) in enumerate(zip(wanted, given, strict=True)):
        for a, b in zip(theirs, mine, strict=True):
            signal, noise = signal + float((a**2).sum()), noise + float(((a - b) ** 2).sum())
        a, b = scores_of(theirs), scores_of(mine)
        if marked is not None:
            a, b = a[marked[k]], b[marked[k]]
        picked = np.take_along_axis(b, a.argmax(-1)[:, None], -1)[:, 0]
        equal, total = equal + float((picked >= b.max(-1) - 1e-9).sum()), total + len(a)
    return (10 * np.log10(signal / noise) if noise else np.inf), equal / max(total, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    sys.stdout.write(HEAD.format(count=args.count, clear=CLEAR))
    for name in args.names:
        sys.stdout.write(row(name, args.count))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
