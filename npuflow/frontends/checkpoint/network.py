"""A decoder as a graph: some new tokens behind those of a cache, to the logits of the last one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from npuflow.base.mapped import spilled
from npuflow.checkpoints import StoredTensor
from npuflow.checkpoints.ports import EVERY, LOGITS, NEXT, POSITION, TOKENS, cache_name
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends._nodes.microsoft import MICROSOFT
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._roles import DecoderWeights
from npuflow.frontends.checkpoint.families._rope import Rope
from npuflow.frontends.checkpoint.ring import RingAttention, ring_rows
from npuflow.frontends.checkpoint.stated import stated_type
from npuflow.ir.rings import Ring
from npuflow.ir.types import Array, TensorType

KEPT = 1 << 20                            # bytes from which a weight is kept in a file
RMS_OPSET = 23                            # the first that has RMSNormalization


@dataclass(eq=False)
class DecoderGraph:
    """The graph in the making. Rows of activations are tokens: [chunk, width]. `longest`: the longest chunk of
    all programs that share the caches; `held`: constants by name, each made once."""

    builder: NodeBuilder
    decoder: Decoder
    weights: DecoderWeights
    chunk: int
    context: int
    longest: int
    held: dict[str, str] = field(default_factory=dict)

    # --- parts
    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.builder.call(kind, inputs, [name], name, **attributes)
        return name

    def constant(self, name: str, array: Array) -> str:
        """Once for each name."""
        if name not in self.held:
            self.held[name] = self.builder.constant(self.builder.free(name), spilled(array, KEPT))
        return self.held[name]

    def number(self, value: float) -> str:
        return self.constant(f"real:{value:.9g}", np.asarray(value, np.float32))

    def reshaped(self, x: str, shape: Sequence[int], name: str) -> str:
        sizes = self.constant(f"shape:{'x'.join(map(str, shape))}", np.asarray(shape, np.int64))
        return self.op("Reshape", [x, sizes], name)

    def stored(self, tensor: StoredTensor, shift: float = 0.0) -> str:
        """A tensor of the checkpoint, under its own name."""
        if tensor.name not in self.held:
            floats = tensor.floats()
            self.constant(tensor.name, floats + np.float32(shift) if shift else floats)
        return self.held[tensor.name]

    def matrix(self, tensor: StoredTensor, name: str = "") -> str:
        """A tensor of the checkpoint that is multiplied with, under its own name or this one: its codes are
        stated where it has any."""
        name = name or tensor.name
        if name in self.held:
            return self.held[name]
        grouped = tensor.grouped()
        floats = tensor.floats() if grouped is None else grouped.floats()
        own = self.constant(name, floats)
        quant = stated_type(grouped, floats) if grouped is not None else None
        if quant is not None:
            self.builder.state(own, quant)
        return own

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

    def places(self) -> str:
        """The positions of the new tokens, [chunk]."""
        if self.chunk == 1:
            return POSITION
        if "places" not in self.builder.values:
            steps = self.constant("steps", np.arange(self.chunk, dtype=np.int32))
            self.op("Add", [POSITION, steps], "places")
        return "places"

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
        if rope is not None and not within(d.head_size, len(rope.frequencies)):
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

    def angles(self, rope: Rope) -> list[str]:
        """Cosines and sines [context, half]; layers of one kind share them."""
        kind, tables = self.decoder.ropes.index(rope), rope.tables(self.context)
        names = ("cosines", "sines")
        return [self.constant(f"rope.{kind}:{n}", table) for n, table in zip(names, tables, strict=True)]

    def turned(self, x: str, rope: Rope) -> str:
        """[1, chunk, heads * size], rotated in simpler operators: halves times cosines and sines."""
        size, half = self.decoder.head_size, len(rope.frequencies)
        count = self.builder.type(x).shape[2] // size
        kind, y, around = self.decoder.ropes.index(rope), f"{x}:turned", []
        for table in self.angles(rope):
            rows = f"{table}:rows"
            if rows not in self.builder.values:
                self.op("Gather", [table, self.places()], f"{rows}.flat", axis=0)
                self.reshaped(f"{rows}.flat", (self.chunk, 1, half), rows)
            around.append(rows)
        wide = self.reshaped(x, (self.chunk, count, size), f"{x}:wide.{kind}")
        one, other = self.cut(wide, 0, half), self.cut(wide, half, 2 * half)
        cos, sin = around
        parts = {
            what: [self.op("Mul", list(pair), f"{y}:{what}{i}") for i, pair in enumerate(pairs)]
            for what, pairs in {"a": ((one, cos), (other, sin)), "b": ((other, cos), (one, sin))}.items()
        }
        pieces = [self.op("Sub", parts["a"], f"{y}:first"), self.op("Add", parts["b"], f"{y}:second")]
        pieces += [self.cut(wide, 2 * half, size)] if size > 2 * half else []
        whole = self.op("Concat", pieces, f"{y}:wide", axis=2)
        return self.reshaped(whole, (1, self.chunk, count * size), y)

    def cut(self, x: str, start: int, end: int) -> str:
        """A part of the last of three dimensions."""
        bounds = [self.constant(f"number:{n}", np.asarray([n], np.int64)) for n in (start, end, 2)]
        return self.op("Slice", [x, *bounds], f"{x}:{start}")

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

