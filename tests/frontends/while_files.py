"""Writes while_files.npz: loops as TensorFlow's converter writes them, inputs, and its interpreter's outputs.

    pip install tensorflow
    python -m tests.frontends.while_files
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
STORE = Path(__file__).with_name("while_files.npz")
STEPS = 12


def stored() -> Mapping[str, Any]:
    """By name the model's bytes, its input and its outputs."""
    with np.load(STORE) as held:
        names = dict.fromkeys(key.partition("/")[0] for key in held)
        return {
            name: (
                held[f"{name}/model"].tobytes(),
                held[f"{name}/x"],
                [held[f"{name}/{n}"] for n in range(sum(k.startswith(f"{name}/") for k in held) - 2)],
            )
            for name in names
        }


def functions(tf: Any) -> dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]]:
    """Loops by name, with the shape of what they read."""
    weights = tf.constant(np.random.default_rng(1).normal(0, 0.4, (4, 4)).astype(np.float32))
    zeros = tf.zeros((2, 4))

    def counted(body: Callable[[Any, Any], Any], steps: int = 9) -> Callable[[Any], Any]:
        return lambda x: tf.while_loop(
            lambda i, h: i < steps, lambda i, h: (i + 1, body(i, h)), (tf.constant(0), x)
        )[1]

    def scanned(x: Any) -> Any:
        def body(i: Any, h: Any, made: Any) -> Any:
            h = tf.nn.relu(h @ weights * 0.5) + tf.sigmoid(tf.gather(x, i))
            return i + 1, h, made.write(i, h)

        rows = tf.TensorArray(tf.float32, STEPS, element_shape=(2, 4))
        _, h, made = tf.while_loop(lambda i, *_: i < STEPS, body, (tf.constant(0), zeros, rows))
        return h, made.stack()

    def backwards(x: Any) -> Any:
        def body(i: Any, h: Any, made: Any) -> Any:
            h = tf.tanh(h @ weights + tf.gather(x, i))
            return i - 1, h, made.write(i, h)

        rows = tf.TensorArray(tf.float32, STEPS, element_shape=(2, 4))
        first = (tf.constant(STEPS - 1), zeros, rows)
        return tf.while_loop(lambda i, *_: i >= 0, body, first)[2].stack()

    def every_second(x: Any) -> Any:
        first = (tf.constant(1), zeros)
        return tf.while_loop(
            lambda i, h: i < STEPS, lambda i, h: (i + 2, tf.tanh(h + tf.gather(x, i))), first
        )[1]

    def sliced(x: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            return i + 1, tf.tanh(h @ weights + tf.slice(x, [i, 0, 0], [1, 2, 4])[0])

        return tf.while_loop(lambda i, h: i < STEPS, body, (tf.constant(0), zeros))[1]

    def with_outside(x: Any) -> Any:
        scale = tf.sigmoid(x[0])
        return counted(lambda i, h: tf.tanh(h * scale + 0.1))(x[1])

    def twice(x: Any) -> Any:
        h, rows = scanned(x)
        return h + every_second(rows)

    def longer(x: Any) -> Any:
        def body(i: Any, made: Any) -> Any:
            return i + 1, made.write(i, tf.tanh(tf.gather(x, i) + 1.0))

        rows = tf.TensorArray(tf.float32, STEPS + 2, element_shape=(2, 4))
        return tf.while_loop(lambda i, *_: i < STEPS, body, (tf.constant(0), rows))[1].stack()

    def whole(x: Any) -> Any:
        def body(i: Any, h: Any, n: Any) -> Any:
            return i + 1, tf.tanh(h * 1.5), n + tf.cast(h > 0.5, tf.int32)

        first = (tf.constant(0), x, tf.zeros((2, 4), tf.int32))
        _, h, n = tf.while_loop(lambda i, *_: i < 6, body, first)
        return h + tf.cast(n, tf.float32)

    def nested(x: Any) -> Any:
        return counted(lambda i, h: counted(lambda j, g: tf.tanh(g @ weights), 4)(h) + 0.1, 5)(x)

    def sums(x: Any) -> Any:
        first = (tf.constant(0), tf.constant(0.1))
        return tf.while_loop(
            lambda i, h: i < STEPS, lambda i, h: (i + 1, 0.5 * h + tf.reduce_mean(tf.gather(x, i))), first
        )[1]

    by_data: Callable[[Any], Any] = lambda x: tf.while_loop(   # noqa: E731
        lambda h: tf.reduce_sum(h) < 100.0, lambda h: (h * 1.5 + 1.0,), (x,)
    )[0]
    return {
        "counter": ((2, 4), counted(lambda i, h: tf.tanh(h @ weights + 0.1))),
        "three steps": ((2, 4), counted(lambda i, h: tf.tanh(h @ weights), 3)),
        "number of the step": ((2, 4), counted(lambda i, h: tf.tanh(h @ weights) * tf.cast(i, tf.float32))),
        "rows read and written": ((STEPS, 2, 4), scanned),
        "backwards": ((STEPS, 2, 4), backwards),
        "every second row": ((STEPS, 2, 4), every_second),
        "a slice of one row": ((STEPS, 2, 4), sliced),
        "a value of the outside": ((2, 2, 4), with_outside),
        "two loops": ((STEPS, 2, 4), twice),
        "fewer rows than the list has": ((STEPS, 2, 4), longer),
        "whole numbers that data decides": ((2, 4), whole),
        "a loop in a loop": ((2, 4), nested),
        "one number": ((STEPS, 2, 4), sums),
        "an end that data decides": ((2, 4), by_data),
    }


def layers(tf: Any) -> dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]]:
    """Recurrent layers of Keras, in a cell of its own among others."""
    keras = tf.keras

    @keras.utils.register_keras_serializable()
    class Cell(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, units: int, **more: Any) -> None:
            super().__init__(**more)
            self.units = self.state_size = self.output_size = units

        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=(shape[-1], self.units), name="w")
            self.r = self.add_weight(shape=(self.units, self.units), name="r")

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "units": self.units}

        def call(self, x: Any, states: Any) -> Any:
            h = states[0]
            made = 0.5 * h + 0.5 * tf.nn.softsign(x @ self.w + h @ self.r) * tf.sigmoid(h)
            return made, [made]

    def network(*found: Any, shape: tuple[int, ...] = (10, 5)) -> tuple[tuple[int, ...], Any]:
        keras.utils.set_random_seed(3)
        net = keras.Sequential([keras.Input(shape, batch_size=1), *found])
        return (1, *shape), lambda x: net(x)

    make = keras.layers
    return {
        "lstm": network(make.LSTM(6, return_sequences=True)),
        "gru": network(make.GRU(6)),
        "rnn": network(make.SimpleRNN(6, return_sequences=True)),
        "a cell of its own": network(make.RNN(Cell(6), return_sequences=True)),
        "a cell backwards": network(make.RNN(Cell(6), go_backwards=True)),
        "a cell both ways": network(make.Bidirectional(make.RNN(Cell(4), return_sequences=True))),
        "masked": network(make.Masking(), make.LSTM(6)),
        "convolutions": network(make.ConvLSTM2D(2, 3, padding="same"), shape=(5, 4, 4, 1)),
    }


def main() -> None:
    import tensorflow as tf

    found: dict[str, np.ndarray] = {}
    for name, (shape, function) in {**functions(tf), **layers(tf)}.items():
        made = tf.function(function).get_concrete_function(tf.TensorSpec(shape, tf.float32, "x"))
        model = tf.lite.TFLiteConverter.from_concrete_functions([made]).convert()
        kernels = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        net = tf.lite.Interpreter(model_content=model, experimental_op_resolver_type=kernels)
        net.allocate_tensors()
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        if name == "masked":
            x[:, 3:5] = x[:, 8:] = 0
        net.set_tensor(net.get_input_details()[0]["index"], x)
        net.invoke()
        found |= {f"{name}/model": np.frombuffer(model, np.uint8), f"{name}/x": x}
        for n, one in enumerate(net.get_output_details()):
            found[f"{name}/{n}"] = net.get_tensor(one["index"])
        print(f"{name}: {len(model)} bytes")
    keep(STORE, found)


def keep(path: Path, found: Mapping[str, np.ndarray]) -> None:
    """Write what was made, and say how large it is."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **found)  # type: ignore[arg-type]
    path.write_bytes(buffer.getvalue())
    print(f"{path.name}: {len(buffer.getvalue())} bytes")


if __name__ == "__main__":
    main()
