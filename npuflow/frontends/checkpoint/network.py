"""A decoder as a graph: some new tokens behind those of a cache, to the logits of the last one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from npuflow.checkpoints.ports import EVERY, LOGITS, NEXT, POSITION, TOKENS, cache_name
from npuflow.frontends._nodes.microsoft import MICROSOFT
from npuflow.frontends.checkpoint.parts import DecoderParts
from npuflow.frontends.checkpoint.ring import RingAttention, ring_rows
from npuflow.ir.rings import Ring
from npuflow.ir.types import TensorType

RMS_OPSET = 23                            # the first that has RMSNormalization


class DecoderGraph(DecoderParts):
    """The graph in the making, layer by layer."""

    def linear(self, x: str, role: str, layer: int, name: str) -> str:
        bias = self.weights.bias(role, layer)
        rows = [x, self.matrix(self.weights.of(role, layer)), *([self.stored(bias)] if bias else [])]
        return self.op("Gemm", rows, name, transB=1)

    def normed(self, x: str, role: str, layer: int, name: str) -> str:
        """A norm over the last dimension."""
        d, scale = self.decoder, self.stored(self.weights.of(role, layer), self.decoder.shift)
        if d.norm == "layer":
            bias = self.weights.bias(role, layer)
            rows = [x, scale, *([self.stored(bias)] if bias else [])]
            return self.op("LayerNormalization", rows, name, axis=-1, epsilon=d.epsilon)
        node = onnx.helper.make_node(
            "RMSNormalization", [x, scale], [name], name, axis=-1, epsilon=d.epsilon
        )
        self.builder.node(node, RMS_OPSET)
        return name

    # --- the network
    def embedded(self) -> str:
        """[chunk, width]: rows of the embedding, with those of the positions where they are learned."""
        d = self.decoder
        table = self.stored(self.weights.of("embedding"))
        x = self.op("Gather", [table, TOKENS], "embedding:rows", axis=0)
        x = self.reshaped(x, (self.chunk, d.width), "embedding")
        if d.embedding_scale != 1.0:
            x = self.op("Mul", [x, self.number(d.embedding_scale)], "embedding:scaled")
        if not self.weights.has("positions"):
            return x
        table = self.stored(self.weights.of("positions"))
        rows = self.op("Gather", [table, self.places()], "positions", axis=0)
        return self.op("Add", [x, rows], "embedded")

    def layer(self, x: str, layer: int, last: str) -> str:
        """`last`: the position of the last token."""
        d, name = self.decoder, f"layers.{layer}"
        y = self.attention(self.normed(x, "attention_norm", layer, f"{name}.attention_norm"), layer, last)
        if self.weights.has("attention_end"):
            y = self.normed(y, "attention_end", layer, f"{name}.attention_end")
        x = self.op("Add", [x, y], f"{name}.attended")
        y = self.normed(x, "feed_norm", layer, f"{name}.feed_norm")
        if d.gated:
            gate = self.activated(self.linear(y, "gate", layer, f"{name}.gate"), f"{name}.active")
            y = self.op("Mul", [gate, self.linear(y, "up", layer, f"{name}.up")], f"{name}.gated")
        else:
            y = self.activated(self.linear(y, "up", layer, f"{name}.up"), f"{name}.active")
        y = self.linear(y, "down", layer, f"{name}.down")
        if self.weights.has("feed_end"):
            y = self.normed(y, "feed_end", layer, f"{name}.feed_end")
        return self.op("Add", [x, y], f"{name}.fed")

    def activated(self, x: str, name: str) -> str:
        kind = self.decoder.activation
        if kind == "silu":
            return self.op("Mul", [x, self.op("Sigmoid", [x], f"{name}:sigmoid")], name)
        if kind == "relu":
            return self.op("Relu", [x], name)
        return self.op("Gelu", [x], name, approximate="tanh" if kind == "gelu_tanh" else "none")

    def attention(self, x: str, layer: int, last: str) -> str:
        """Keys and values are put into the cache, queries attend to all that is in it, or to a window."""
        d, name = self.decoder, f"layers.{layer}"
        counts = {"query": d.heads, "key": d.key_heads, "value": d.key_heads}
        heads = [self.heads(x, role, count, layer) for role, count in counts.items()]
        if rows := self.ring(layer):
            y = RingAttention(self, layer, rows).attended(heads)
            return self.joined(y, layer)
        past = [cache_name(layer, what) for what in ("key", "value")]
        attributes: dict[str, Any] = {
            "num_heads": d.heads, "kv_num_heads": d.key_heads, "scale": d.scale or 1 / math.sqrt(d.head_size),
        }
        rope, window = d.ropes[layer], d.windows[layer]
        # beside rings all layers look up the same rows of angles, under one name whatever the chunk
        if rope is not None and (self.rings or not within(d.head_size, len(rope.frequencies))):
            heads[:2] = [self.turned(x, rope) for x in heads[:2]]
            rope = None
        if d.cap:
            attributes["softcap"] = d.cap
        if 0 < window < self.context:
            attributes["local_window_size"] = window
        inputs = [*heads, *past, last, self.constant("cache:length", np.asarray(self.context, np.int32))]
        if rope is not None:
            attributes["do_rotary"] = 1
            inputs += self.angles(rope)
        y = f"{name}.heads"
        outputs = [y, *(f"{one}{NEXT}" for one in past)]
        node = onnx.helper.make_node(
            "GroupQueryAttention", inputs, outputs, f"{name}.attention", domain=MICROSOFT, **attributes
        )
        cache = TensorType((1, d.key_heads, self.context, d.head_size))
        types = [TensorType((1, self.chunk, d.heads * d.head_size)), cache, cache]
        self.builder.host(node, 1, types, "attention has no operator file", (f"{name}.attention",))
        return self.joined(y, layer)

    def joined(self, y: str, layer: int) -> str:
        d, name = self.decoder, f"layers.{layer}"
        y = self.reshaped(y, (self.chunk, d.heads * d.head_size), f"{name}.joined")
        return self.linear(y, "out", layer, f"{name}.out")

    def ring(self, layer: int) -> int:
        """Rows of a layer's ring; 0 where its cache is whole."""
        return ring_rows(self.decoder.windows[layer], self.longest, self.context)

    @property
    def rings(self) -> tuple[Ring, ...]:
        """What the caches of layers with windows are, each kind once."""
        layers = (layer for layer in range(self.decoder.layers) if self.ring(layer))
        kinds = ((self.ring(layer), self.decoder.windows[layer]) for layer in layers)
        return tuple(Ring(POSITION, *kind, self.context) for kind in dict.fromkeys(kinds))

    def heads(self, x: str, role: str, count: int, layer: int) -> str:
        """[1, chunk, heads * size], with a norm of every head where the family has one."""
        d, name = self.decoder, f"layers.{layer}.{role}"
        y = self.linear(x, role, layer, name)
        if role != "value" and self.weights.has(f"{role}_norm"):
            y = self.reshaped(y, (1, self.chunk, count, d.head_size), f"{name}:heads")
            y = self.normed(y, f"{role}_norm", layer, f"{name}_norm")
        return self.reshaped(y, (1, self.chunk, count * d.head_size), f"{name}:rows")

    def logits(self, x: str, name: str) -> str:
        d, role = self.decoder, "embedding" if self.decoder.tied else "head"
        matrix = self.matrix(self.weights.of(role), self.weights.names["head"])
        bias = self.weights.bias("head")
        x = self.normed(x, "norm", 0, f"{name}:norm")
        product = f"{name}:product" if d.final_cap else name
        y = self.op("Gemm", [x, matrix, *([self.stored(bias)] if bias else [])], product, transB=1)
        if d.final_cap:
            y = self.op("Mul", [y, self.number(1 / d.final_cap)], f"{name}:low")
            y = self.op("Mul", [self.op("Tanh", [y], f"{name}:tanh"), self.number(d.final_cap)], name)
        return y

    def written(self) -> None:
        """All nodes: logits of the last token, and of every one where there are several."""
        new = self.constant("chunk", np.asarray([self.chunk], np.int32))
        self.op("Add", [POSITION, new], f"{POSITION}{NEXT}")
        last = POSITION
        if self.chunk > 1:
            more = self.constant("chunk:rest", np.asarray([self.chunk - 1], np.int32))
            last = self.op("Add", [POSITION, more], "last")
        x = self.embedded()
        for layer in range(self.decoder.layers):
            x = self.layer(x, layer, last)
        if self.chunk == 1:
            self.logits(x, LOGITS)
            return
        self.logits(x, EVERY)
        places = (self.chunk - 1, self.chunk)
        ends = [self.constant(f"row:{end}", np.asarray([end], np.int64)) for end in places]
        axis = self.constant("row:axis", np.asarray([0], np.int64))
        self.logits(self.op("Slice", [x, *ends, axis], "last:row"), LOGITS)


def within(size: int, half: int) -> bool:
    """Whether onnxruntime's attention rotates such heads itself."""
    return size % 16 == 0 and half % 8 == 0

