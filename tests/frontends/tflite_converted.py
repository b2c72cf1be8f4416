"""Converts a function of each TFLite builtin operator and stores model, inputs and LiteRT's outputs.

    python -m tests.frontends.tflite_converted [NAME...]

It needs TensorFlow and ai-edge-litert, and writes tflite_converted.npz beside this file. Each case is
converted to floats, to int8 with int8 inputs and outputs, and to int16 activations with int8 weights; those
that the converter refuses, or in which it leaves the operator in floats, are not cases. Outputs are those of
LiteRT's reference kernels, or of its default ones where the reference lacks the operator.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
STORE = Path(__file__).with_name("tflite_converted.npz")
# LiteRT 2.3's reference kernels of these do not give what its default ones and TensorFlow give.
DEFAULT = ("SUM", "LOCAL_RESPONSE_NORMALIZATION")


def converted(case: Any, kind: str) -> bytes:
    """The .tflite file of a case."""
    import tensorflow as tf

    specs = [tf.TensorSpec(one.shape, one.dtype, f"x{n}") for n, one in enumerate(case.inputs)]
    function = tf.function(case.function, input_signature=specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    if kind != "float":
        rng = np.random.default_rng(1)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([one.draw(rng) for one in case.inputs] for _ in range(20))
        sets = tf.lite.OpsSet
        wide = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if kind == "int8" else wide]
        converter.inference_input_type = converter.inference_output_type = getattr(tf, kind)
    return converter.convert()


def holds(data: bytes, kind: str, dtype: str) -> bool:
    """Whether the model has the operator, on codes of a type where one is asked for."""
    from npuflow.frontends.tflite.schema import parsed

    network = parsed(data)
    for graph in network.bodies or (network,):
        for one in graph.operators:
            types = {graph.tensors[t].dtype for t in (*one.inputs, *one.outputs) if t >= 0}
            if one.name == kind and (dtype == "float" or dtype in types):
                return True
    return False


def answers(data: bytes, feeds: list[np.ndarray], kind: str) -> list[np.ndarray]:
    """Outputs of LiteRT's kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = [] if kind in DEFAULT else [OpResolverType.BUILTIN_REF]
    for kernels in (*plain, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
        try:
            net = Interpreter(model_content=data, experimental_op_resolver_type=kernels)
            net.allocate_tensors()
        except (RuntimeError, ValueError):
            continue
        for detail, value in zip(inputs_of(net), feeds, strict=True):
            net.set_tensor(detail["index"], value)
        net.invoke()
        return [net.get_tensor(detail["index"]).copy() for detail in net.get_output_details()]
    raise RuntimeError("no kernels for the model")


def inputs_of(net: Any) -> list[Any]:
    return list(net.get_input_details())


def feeds_of(data: bytes, case: Any) -> list[np.ndarray]:
    """Inputs in the file's own order and types; codes are any of their type."""
    from ai_edge_litert.interpreter import Interpreter

    net, rng = Interpreter(model_content=data), np.random.default_rng(2)
    drawn = {f"x{n}": one.draw(rng) for n, one in enumerate(case.inputs)}
    feeds = []
    for detail in net.get_input_details():
        key = next(k for k in drawn if detail["name"].split(":")[0].endswith(k))
        value, (scale, zero) = drawn[key], detail["quantization"]
        if value.dtype != detail["dtype"]:
            info = np.iinfo(detail["dtype"])
            value = np.clip(np.rint(value / scale) + zero, info.min, info.max).astype(detail["dtype"])
        feeds.append(value)
    return feeds


def packed(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Arrays as compressed bytes: one entry of the store for each case."""
    held = io.BytesIO()
    np.savez(held, **arrays)
    return np.frombuffer(zlib.compress(held.getvalue(), 9), np.uint8)


def unpacked(entry: np.ndarray) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(zlib.decompress(entry.tobytes()))) as held:
        return dict(held)


def stored() -> dict[str, dict[str, np.ndarray]]:
    """The cases of the store by name: model (bytes), x0, x1, ..., y0, y1, ..."""
    with np.load(STORE) as held:
        return {name: unpacked(held[name]) for name in held.files}


def main(names: list[str]) -> None:
    from tests.frontends.tflite_converted_layout import CASES

    entries: dict[str, np.ndarray] = {}
    if names and STORE.exists():
        with np.load(STORE) as held:
            entries = dict(held)
    for name in [one for one in entries if one.split()[1] in names or one.partition(" ")[2] in names]:
        del entries[name]
    for case in CASES:
        if names and case.name not in names and case.kind not in names:
            continue
        for kind in ("float", *case.integers):
            try:
                data = converted(case, kind)
                if not holds(data, case.kind, kind):
                    print(f"{kind} {case.name}: converted without the operator", flush=True)
                    continue
                feeds = feeds_of(data, case)
                outs = answers(data, feeds, case.kind)
            except Exception as fault:
                print(f"{kind} {case.name}: {str(fault).splitlines()[0][:150]}", flush=True)
                continue
            arrays = {"model": np.frombuffer(data, np.uint8)}
            arrays |= {f"x{n}": value for n, value in enumerate(feeds)}
            arrays |= {f"y{n}": value for n, value in enumerate(outs)}
            entries[f"{kind} {case.name}"] = packed(arrays)
    np.savez(STORE, **entries)
    print(f"{len(entries)} cases, {STORE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
