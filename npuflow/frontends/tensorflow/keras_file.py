"""Keras files (`.keras`, `.h5`, `.hdf5`), by the Keras that wrote them: 3, or 2 as the package tf_keras."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.frontends.tensorflow.faults import EXPORT, damaged, lacks_network, line
from npuflow.frontends.tensorflow.model import TensorflowModel

REMEDY = "pip install tf_keras, which is Keras 2; or, where the model was made, model.export(FOLDER)"
# What a name in a description means in Keras 3 where it meant something else in Keras 2.
CHANGED = {
    "hard_sigmoid": "hard_sigmoid is clip(0.2 x + 0.5, 0, 1) in Keras 2, and relu6(x + 3) / 6 in Keras 3",
}


def keras_file(tf: Any, path: Path) -> TensorflowModel:
    """A Keras model in inference mode. Of a file that Keras 2 wrote, Keras 3 refuses many layers and computes
    some others in another way."""
    about, mine = _about(path), _version(tf.keras)
    keras = tf.keras if not about.old or mine.startswith("2.") else _tf_keras()
    notes = []
    if keras is None:
        _refuse_changed(path, about, mine)
        notes.append(
            f"Keras {about.version} wrote {path.name} and Keras {mine} reads it: the package tf_keras, which "
            "is Keras 2, is not installed"
        )
    if about.old and has_code(about.config):
        raise ModelError(
            f'"{path.name}" cannot be loaded by TensorFlow',
            because="a Lambda layer holds code of Python, which is not run", hint=EXPORT, code="NF-MODEL-169",
        ).at(file=str(path))
    try:
        model = (keras or tf.keras).models.load_model(str(path), compile=False)
    except Exception as fault:  # Keras raises ValueError, OSError, TypeError, KeyError, zip and HDF5 errors
        if keras is None and not lacks_network(fault):
            raise ModelError(
                f'"{path.name}" is of Keras {about.version}, and Keras {mine} does not read it',
                because=line(fault), hint=REMEDY, code="NF-MODEL-396",
            ).at(file=str(path)) from fault
        raise damaged(path, fault) from fault
    if not getattr(model, "inputs", None):
        raise ModelError(
            f'the Keras model "{path.name}" does not state its inputs',
            because="it is a subclassed model, or a Sequential one that was never called",
            hint="model.export(FOLDER) writes a SavedModel, which states them",
            code="NF-MODEL-166",
        )
    names = unique([str(one.name).partition(":")[0] for one in model.inputs])
    specs = {
        name: tf.TensorSpec(tuple(one.shape), one.dtype)
        for name, one in zip(names, model.inputs, strict=True)
    }
    ends = unique([_layer(one) for one in getattr(model, "outputs", None) or ()])
    layers = model._flatten_layers() if hasattr(model, "_flatten_layers") else model.layers

    plain = model.inputs[0] if len(model.inputs) == 1 else list(model.inputs)
    # one tensor, a list or a dictionary; the second name is that of Keras 2
    form = getattr(model, "_inputs_struct", getattr(model, "_nested_inputs", plain))

    def call(*tensors: Any) -> dict[str, Any]:
        given = tf.nest.flatten(model(tf.nest.pack_sequence_as(form, list(tensors)), training=False))
        names = ends if len(ends) == len(given) else unique(["output"] * len(given))
        return dict(zip(names, given, strict=True))

    return TensorflowModel(specs, call, frozenset(str(layer.name) for layer in layers), tuple(notes))


@dataclass(frozen=True)
class KerasFile:
    """What a file says of itself: the Keras that wrote it ("" where it does not say), and the network's
    description."""

    version: str = ""
    config: str = ""

    @property
    def old(self) -> bool:
        return self.version.startswith(("1.", "2."))


def _about(path: Path) -> KerasFile:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                stated = json.loads(archive.read("metadata.json"))
                return KerasFile(str(stated.get("keras_version", "")), archive.read("config.json").decode())
        import h5py

        with h5py.File(path, "r") as file:
            return KerasFile(*(_text(file.attrs.get(name, "")) for name in ("keras_version", "model_config")))
    except Exception:  # the loader says what is wrong with the file
        return KerasFile()


def has_code(config: str) -> bool:
    """Whether a layer's function is code in the file: Keras 2 runs it as it loads the file."""

    def walk(part: Any) -> bool:
        if isinstance(part, dict):
            return part.get("function_type") == "lambda" or any(map(walk, part.values()))
        return isinstance(part, list) and any(map(walk, part))

    try:
        return walk(json.loads(config))
    except ValueError:
        return False


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _version(keras: Any) -> str:
    return str(getattr(keras, "__version__", ""))


def _tf_keras() -> Any:
    """Keras 2, None where it is not installed."""
    try:
        import tf_keras
    except ImportError:
        return None
    return tf_keras


def _refuse_changed(path: Path, about: KerasFile, mine: str) -> None:
    """What Keras 3, of the version `mine`, reads without a word and computes in another way."""
    found = [name for name in CHANGED if f'"{name}"' in about.config]
    if found:
        raise ModelError(
            f'"{path.name}" is of Keras {about.version}, and Keras {mine} computes it in another way',
            because=CHANGED[found[0]], hint=REMEDY, code="NF-MODEL-395",
        ).at(file=str(path))


def _layer(output: Any) -> str:
    """The name of the layer that gives an output."""
    history = getattr(output, "_keras_history", None)
    maker = getattr(history, "operation", None) or getattr(history, "layer", None)  # of Keras 3, of Keras 2
    return str(getattr(maker, "name", "output"))


def unique(names: Sequence[str]) -> list[str]:
    """The names in order; one that comes again gets a number."""
    found: list[str] = []
    for name in names:
        wanted, count = name, 0
        while wanted in found:
            count += 1
            wanted = f"{name}_{count}"
        found.append(wanted)
    return found
