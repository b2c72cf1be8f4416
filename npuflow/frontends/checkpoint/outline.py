"""What a checkpoint is: its family, its sizes, how it is stored, what its program takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from npuflow.checkpoints import Checkpoint
from npuflow.checkpoints.ports import CHUNK, CONTEXT, LOGITS, TOKENS
from npuflow.frontends import Outline
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.reading import SizedCheckpoint, measured
from npuflow.frontends.checkpoint.ring import ring_rows
from npuflow.ir.types import TensorType


def outline(checkpoint: Checkpoint, sizes: Mapping[str, int]) -> Outline:
    """From the headers of its files alone; faults are those of reading it."""
    found = measured(checkpoint, sizes)
    inputs = {TOKENS: TensorType((1, found.chunk), "int64")}
    outputs = {LOGITS: TensorType((1, found.weights.decoder.tokens))}
    return Outline(inputs, outputs, found.sizes, facts(checkpoint, found))


def facts(checkpoint: Checkpoint, sized: SizedCheckpoint) -> dict[str, str | int]:
    d = sized.weights.decoder
    form = "GGUF" if checkpoint.form == "gguf" else "Hugging Face folder"
    stored = ", ".join(f"{kind} {count}" for kind, count in checkpoint.kinds.items())
    numbers = sum(prod(tensor.shape) for tensor in checkpoint.tensors.values())
    found: dict[str, str | int] = {"family": f"{checkpoint.family} ({form})"}
    if name := str(checkpoint.metadata.get("general.name", "")):
        found["name"] = name
    found |= {
        "layers": d.layers,
        "width": f"{d.width:,}, feed-forward {d.feed_forward:,}",
        "heads": f"{d.heads} of {d.head_size}, over {d.key_heads} of keys",
        "tokens": f"{d.tokens:,}{', the embedding is the output layer too' if d.tied else ''}",
        "context": f"{d.longest:,}{_windows(d)}",
        "tensors": f"{stored}; {numbers:,} numbers in {checkpoint.nbytes:,} bytes",
        "cache": f"{2 * d.layers * d.key_heads * d.head_size:,} numbers a token{_rings(sized)}",
        "tokenizer": tokenizer(checkpoint),
        "program": f"{TOKENS} [1, {CHUNK}] -> {LOGITS} [1, {d.tokens}]; state: the position, and a cache of "
        f"{CONTEXT} tokens",
    }
    return found


def _windows(decoder: Decoder) -> str:
    own = [window for window in decoder.windows if window]
    return f", windows of {own[0]:,} in {len(own)} of {decoder.layers} layers" if own else ""


def _rings(sized: SizedCheckpoint) -> str:
    """Layers that keep some tokens alone, at these sizes."""
    windows = sized.weights.decoder.windows
    rows = [n for window in windows if (n := ring_rows(window, sized.longest, sized.context))]
    return f", in {len(rows)} of {len(windows)} layers for the newest {rows[0]:,} alone" if rows else ""


def tokenizer(checkpoint: Checkpoint) -> str:
    """Which one the checkpoint has, by name."""
    if checkpoint.form == "folder":
        return "tokenizer.json" if (checkpoint.path / "tokenizer.json").is_file() else "none"
    kind, before = (str(checkpoint.metadata.get(f"tokenizer.ggml.{key}", "")) for key in ("model", "pre"))
    return f"{kind}{f', split as {before}' if before else ''}" if kind else "none"
