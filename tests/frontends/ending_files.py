"""Writes ending_files.npz: loops of TensorFlow's converter whose end data decides, inputs that end them at
different steps, and its interpreter's outputs.

    pip install tensorflow
    python -m tests.frontends.ending_files
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.while_files import keep

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
STORE = Path(__file__).with_name("ending_files.npz")
STEPS, SHAPE = 12, (2, 4)
SIZES = (3.0, 0.9, 0.4, 0.2, 0.05, 0.01)   # of inputs


def stored() -> Mapping[str, Any]:
    """By name the model's bytes, its inputs one behind the other, and its outputs of each."""
    with np.load(STORE) as held:
        names = dict.fromkeys(key.partition("/")[0] for key in held)
        return {
            name: (
                held[f"{name}/model"].tobytes(), held[f"{name}/x"],
                [held[f"{name}/{n}"] for n in range(sum(k.startswith(f"{name}/") for k in held) - 2)],
            )
            for name in names
        }


def functions(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Loops by name."""
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    weights = tf.constant((1.5 * turned).astype(np.float32))

    def small(h: Any) -> Any:
        return tf.reduce_max(tf.abs(h)) < 1.0

    def plain(x: Any) -> Any:
        return tf.while_loop(small, lambda h: (h @ weights,), (x,))[0]

    def rows(x: Any) -> Any:
        def body(i: Any, h: Any, made: Any) -> Any:
            h = h @ weights
            return i + 1, h, made.write(i, h)

        made = tf.TensorArray(tf.float32, STEPS, element_shape=SHAPE)
        i, h, made = tf.while_loop(
            lambda i, h, _: tf.logical_and(i < STEPS, small(h)), body, (tf.constant(0), x, made)
        )
        return h, made.stack(), i

    def numbers(x: Any) -> Any:
        def body(h: Any, total: Any, low: Any) -> Any:
            h = h @ weights
            return h, 0.5 * total + tf.reduce_sum(h), tf.logical_and(low, tf.abs(h) < 0.5)

        first = (x, tf.constant(0.1), x < 10.0)
        h, total, low = tf.while_loop(lambda h, *_: small(h), body, first)
        return h, total, tf.cast(low, tf.float32)

    def divided(x: Any) -> Any:
        """Its body has no result of the last state."""
        return tf.while_loop(
            lambda h: tf.reduce_min(h) > 0.0, lambda h: (tf.sqrt(h) - 0.3,), (tf.abs(x) + 0.5,)
        )[0]

    return {"plain": plain, "rows and the number of steps": rows, "numbers": numbers, "divided": divided}


def main() -> None:
    import tensorflow as tf

    found: dict[str, np.ndarray] = {}
    one = np.random.default_rng(0).uniform(-1, 1, SHAPE)
    x = np.stack([one / np.abs(one).max() * size for size in SIZES]).astype(np.float32)
    for name, function in functions(tf).items():
        made = tf.function(function).get_concrete_function(tf.TensorSpec(SHAPE, tf.float32, "x"))
        model = tf.lite.TFLiteConverter.from_concrete_functions([made]).convert()
        kernels = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        net = tf.lite.Interpreter(model_content=model, experimental_op_resolver_type=kernels)
        net.allocate_tensors()
        found |= {f"{name}/model": np.frombuffer(model, np.uint8), f"{name}/x": x}
        results = []
        for sample in x:
            net.set_tensor(net.get_input_details()[0]["index"], sample)
            net.invoke()
            results.append([net.get_tensor(end["index"]) for end in net.get_output_details()])
        found |= {f"{name}/{n}": np.stack(every) for n, every in enumerate(zip(*results, strict=True))}
        print(f"{name}: {len(model)} bytes")
    keep(STORE, found)


if __name__ == "__main__":
    main()
