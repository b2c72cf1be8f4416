"""Keras applications with random weights as SavedModel, .keras file and frozen graph, against TensorFlow.

python benchmarks/keras_applications.py [NAME...]      # prints its study
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

SIZES = {
    "MobileNet": 128,
    "MobileNetV2": 128,
    "MobileNetV3Small": 128,
    "EfficientNetB0": 128,
    "EfficientNetV2B0": 128,
    "ResNet50": 96,
    "ResNet50V2": 96,
    "DenseNet121": 96,
    "InceptionV3": 139,
    "Xception": 128,
    "VGG16": 64,
    "ConvNeXtTiny": 96,
}


def model_of(name: str) -> Any:
    """The application with random weights, whose norms are not the identity."""
    tf.keras.utils.set_random_seed(0)
    size = SIZES[name]
    model = getattr(tf.keras.applications, name)(input_shape=(size, size, 3), weights=None, classes=100)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "moving_mean" in weight.path or "beta" in weight.path or "bias" in weight.path:
            weight.assign(rng.normal(0, 0.1, weight.shape))
        elif "moving_variance" in weight.path or (
            weight.path.endswith("gamma") and "layer_scale" not in weight.path
        ):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif "layer_scale" in weight.path:
            weight.assign(rng.uniform(0.1, 0.5, weight.shape))
    return model


def saved(model: Any, folder: Path) -> dict[str, Path]:
    """The model in three forms."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model.save(folder / "model.keras")
    model.export(str(folder / "saved"), verbose=False)
    shape = (1, *model.input_shape[1:])
    function = tf.function(lambda image: model(image, training=False))
    frozen = convert_variables_to_constants_v2(
        function.get_concrete_function(tf.TensorSpec(shape, tf.float32, "image"))
    )
    (folder / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    return {
        "SavedModel": folder / "saved" / "saved_model.pb",
        "Keras": folder / "model.keras",
        "frozen": folder / "frozen.pb",
    }


def main(names: list[str]) -> None:
    reader = FRONTENDS["tensorflow"]()
    print("# Keras applications against TensorFlow\n")
    print(
        "Largest difference of the class scores over the largest score. Random weights, one random image.\n"
    )
    print("| application | input | nodes | host | SavedModel | Keras | frozen | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names or SIZES:
        model = model_of(name)
        shape = (1, *model.input_shape[1:])
        image = np.random.default_rng(1).uniform(0, 255, shape).astype(np.float32)
        wanted = model(image, training=False).numpy()
        errors, begun = [], time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            files = saved(model, Path(folder))
            del model
            gc.collect()
            for path in files.values():
                graph = verify(reader.read(reader.gather(path), Bindings()).graph, "reading")
                (found,) = run(export_model(graph), {graph.inputs[0]: image})
                errors.append(float(np.abs(found - wanted).max() / np.abs(wanted).max()))
        host = sorted({node.op.onnx_type()[1] for node in graph.nodes if node.op.hosted})
        spread = " ".join(f"| {error:.1e}" for error in errors)
        taken = time.perf_counter() - begun
        print(
            f"| {name} | {shape[1]} | {len(graph.nodes)} | {', '.join(host) or '-'} {spread} | {taken:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
