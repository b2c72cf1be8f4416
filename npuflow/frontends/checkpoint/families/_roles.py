"""Names of a decoder's tensors by role, as most families have them, and the tensors by these roles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.wording import counted
from npuflow.checkpoints import Checkpoint, StoredTensor
from npuflow.checkpoints.tensors import ChosenRows, Turned
from npuflow.frontends.checkpoint.families._decoder import Decoder

FOLDER: Mapping[str, str] = MappingProxyType({
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attention_norm": "model.layers.{}.input_layernorm.weight",
    "query": "model.layers.{}.self_attn.q_proj.weight",
    "key": "model.layers.{}.self_attn.k_proj.weight",
    "value": "model.layers.{}.self_attn.v_proj.weight",
    "out": "model.layers.{}.self_attn.o_proj.weight",
    "feed_norm": "model.layers.{}.post_attention_layernorm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down": "model.layers.{}.mlp.down_proj.weight",
})
GGUF: Mapping[str, str] = MappingProxyType({
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "attention_norm": "blk.{}.attn_norm.weight",
    "query": "blk.{}.attn_q.weight",
    "key": "blk.{}.attn_k.weight",
    "value": "blk.{}.attn_v.weight",
    "out": "blk.{}.attn_output.weight",
    "feed_norm": "blk.{}.ffn_norm.weight",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "down": "blk.{}.ffn_down.weight",
})
HEAD_NORMS: Mapping[str, str] = MappingProxyType({
    "query_norm": "model.layers.{}.self_attn.q_norm.weight",
    "key_norm": "model.layers.{}.self_attn.k_norm.weight",
})
GGUF_HEAD_NORMS: Mapping[str, str] = MappingProxyType({
    "query_norm": "blk.{}.attn_q_norm.weight",
    "key_norm": "blk.{}.attn_k_norm.weight",
})
END_NORMS: Mapping[str, str] = MappingProxyType({
    "attention_end": "model.layers.{}.post_attention_layernorm.weight",
    "feed_norm": "model.layers.{}.pre_feedforward_layernorm.weight",
    "feed_end": "model.layers.{}.post_feedforward_layernorm.weight",
})
GGUF_END_NORMS: Mapping[str, str] = MappingProxyType({
    "attention_end": "blk.{}.post_attention_norm.weight",
    "feed_end": "blk.{}.post_ffw_norm.weight",
})
"""Norms of every head, and norms in front of the sums, of families that have them."""
FUSED = {"query": "attention", "key": "attention", "value": "attention", "gate": "gate_up", "up": "gate_up"}
"""Roles that some families store in one matrix, and the role of that."""
IDLE = re.compile(
    r"(^|\.)(rotary_emb\.inv_freq|attn\.(masked_)?bias|rope_freqs\.weight|rope_factors_\w+\.weight)$"
)
"""Tensors that files hold and the network does not multiply with."""
SHOWN = 3


@dataclass(frozen=True, eq=False)
class DecoderWeights:
    """The tensors of a checkpoint by role, each in the shape [outputs, inputs]. `used`: names that were asked
    for."""

    checkpoint: Checkpoint
    decoder: Decoder
    names: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def has(self, role: str) -> bool:
        """Whether the checkpoint has it, in its first layer or outside of layers."""
        return role in self.names and self.names[role].format(0) in self.checkpoint.tensors

    def of(self, role: str, layer: int = 0) -> StoredTensor:
        """A matrix, or the scale of a norm."""
        found = self._stored(role, layer, "weight")
        if found is None:
            wanted = self.names.get(role, self.names.get(FUSED.get(role, ""), role)).format(layer)
            raise ModelError(
                f'the checkpoint has no tensor "{wanted}"',
                because=f"its configuration states {counted(self.decoder.layers, 'layer')}",
                hint="is it whole, and of this family?", code="NF-MODEL-449",
            ).at(file=str(self.checkpoint.path))
        return found

    def bias(self, role: str, layer: int = 0) -> StoredTensor | None:
        """What is added behind a matrix or norm, where the checkpoint has it."""
        return self._stored(role, layer, "bias")

    def _stored(self, role: str, layer: int, what: str) -> StoredTensor | None:
        fused = role not in self.names and role in FUSED
        name = self.names.get(FUSED[role] if fused else role, "").format(layer)
        name = f"{name.removesuffix('weight')}{what}" if what != "weight" else name
        found = self.checkpoint.tensors.get(name)
        if found is None:
            return None
        self.used.add(name)
        if self.decoder.turned and len(found.shape) == 2 and role not in ("embedding", "positions", "head"):
            found = Turned(found)
        if fused:
            found = ChosenRows(found, f"{name}:{role}", self._part(role))
        elif self.decoder.paired and role in ("query", "key"):
            found = ChosenRows(found, name, self._halves(role))
        return found

    def _part(self, role: str) -> slice:
        """Where the rows of a role begin and end in the fused matrix."""
        d = self.decoder
        own, shared, wide = d.heads * d.head_size, d.key_heads * d.head_size, d.feed_forward
        return {
            "query": slice(0, own), "key": slice(own, own + shared),
            "value": slice(own + shared, own + 2 * shared),
            "gate": slice(0, wide), "up": slice(wide, 2 * wide),
        }[role]

    def _halves(self, role: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Rows stored as pairs of a rotation, in the order of halves: row (head, half, i) is stored at (head,
        i, half)."""
        d = self.decoder
        count = d.heads if role == "query" else d.key_heads
        rows = np.arange(count * d.head_size).reshape(count, d.head_size // 2, 2)
        return rows.swapaxes(1, 2).reshape(-1)

    def check(self) -> None:
        """Shapes of all tensors, and tensors that the network does not use: all faults as one error."""
        wrong = list(self._wrong())
        if wrong:
            more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise ModelError(
                f"{counted(len(wrong), 'tensor')} of the checkpoint {'has' if len(wrong) == 1 else 'have'} "
                "another shape than its configuration says",
                because="; ".join(wrong[:SHOWN]) + more,
                hint="do the configuration and the weights belong together?", code="NF-MODEL-450",
            ).at(file=str(self.checkpoint.path))
        left = [n for n in self.checkpoint.tensors if n not in self.used and not IDLE.search(n)]
        if left:
            more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
            raise ModelError(
                f'the family "{self.checkpoint.family}" has no place for {counted(len(left), "tensor")} of '
                "the checkpoint",
                because=f"{', '.join(left[:SHOWN])}{more}",
                hint="a model that changes its family is a family of its own: export it to ONNX",
                code="NF-MODEL-451",
            ).at(file=str(self.checkpoint.path))

    def _wrong(self) -> Iterator[str]:
        for role, layer, shape in self.decoder.shapes(self.has):
            found, bias = self.of(role, layer), self.bias(role, layer)
            yield from self._unlike(found, role, shape)
            if bias is not None:
                yield from self._unlike(bias, role, shape[:1])

    def _unlike(self, found: StoredTensor, role: str, shape: tuple[int, ...]) -> Iterator[str]:
        """Of a tensor that lies in another one, that as a whole."""
        if isinstance(found, ChosenRows):
            found = found.of
            shape = (self._whole(role, shape[0]), *shape[1:])
        if found.shape != shape:
            yield f"{found.name} is {list(found.shape)}, and {list(shape)} is stated"

    def _whole(self, role: str, rows: int) -> int:
        """How many rows the stored matrix has."""
        d = self.decoder
        if role in self.names:
            return rows
        return (d.heads + 2 * d.key_heads) * d.head_size if FUSED[role] == "attention" else 2 * d.feed_forward
