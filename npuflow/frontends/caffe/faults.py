"""What is wrong with a Caffe model's files, as errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from npuflow.base.errors import ModelError
from npuflow.base.wording import counted

SHOWN = 6


def damaged(because: str) -> ModelError:
    return ModelError(
        "the Caffe model is damaged",
        because=because,
        hint="is the file whole?",
        code="NF-MODEL-100",
    )


def not_deployed(because: str) -> ModelError:
    """A prototxt for training: its data come from layers that a network in use does not have."""
    return ModelError(
        "the Caffe model does not state its inputs",
        because=because,
        hint='name the file for use (deploy.prototxt); it has lines like input: "data" and '
        "input_shape { dim: 1 dim: 3 dim: 224 dim: 224 }, or a layer of the type Input",
        code="NF-MODEL-399",
    )


def refused_layers(reasons: Counter[str], more: str) -> ModelError:
    """Layers that have no converter, or an option that it does not have: all of them. `more`: what is wrong
    beside them."""
    listed = [f"{name} ({count} times)" if count > 1 else name for name, count in reasons.items()]
    return ModelError(
        f"{counted(sum(reasons.values()), 'layer')} of the Caffe model cannot be converted",
        because="; ".join([*listed, *([more] if more else [])]),
        hint="end in front of them with [model] outputs, or export it to ONNX",
        code="NF-MODEL-101",
    )


def without_weights(
    layers: Sequence[str], weighted: Sequence[str] | None, path: Path | None
) -> tuple[str, str, str]:
    """Message, reason and remedy where layers have no numbers; `weighted`: the layers that the .caffemodel
    has numbers for, None where there is no such file."""
    wanted = path.with_suffix(".caffemodel").name if path else "the .caffemodel"
    if weighted is None:
        others = sorted(p.name for p in path.parent.iterdir() if ".caffemodel" in p.name) if path else []
        because = f'no file "{wanted}" lies beside it' if path else "no .caffemodel was given"
        hint = f'the weights belong into "{wanted}", in the same folder' if path else "give both files"
        if others:
            because += f", but {_listed(others)}"
            usable = [name for name in others if name.endswith(".caffemodel")]
            hint = (
                f'name both files alike: ln -s {usable[0]} {wanted}' if usable
                else "of HDF5, write a .caffemodel: net.save(FILE) of Caffe's Python interface"
            )
        return "the Caffe model has no weights", because, hint
    hint = "does it belong to this .prototxt? Layers are found by their names"
    if not weighted:
        return "the Caffe model has no weights", f"{wanted} holds none", hint
    return f"{wanted} lacks weights", f"of {_listed(layers)}; it has those of {_listed(weighted)}", hint


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
