"""What a decoder is: the numbers by which its family's checkpoints differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from npuflow.frontends.checkpoint.families._rope import Rope

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A stack of equal layers: norm, attention, sum; norm, feed-forward, sum.

    `key_heads`: heads of keys and values, which queries share. `ropes`, `windows`: of every layer; window 0:
    a token attends to all before it. `norm`: root mean square, or mean and variance. `shift`: is added to
    the scales of norms. `gated`: the feed-forward multiplies by a gate. `cap`: of the scores, and `final_cap`
    of the logits, by tanh; 0: none. `turned`: matrices are stored [inputs, outputs]. `paired`: rows of
    queries and keys are stored as pairs of a rotation.
    """

    layers: int
    width: int
    heads: int
    key_heads: int
    head_size: int
    feed_forward: int
    tokens: int
    longest: int                          # tokens that it was trained for
    epsilon: float
    ropes: tuple[Rope | None, ...]
    windows: tuple[int, ...]
    activation: Activation = "silu"
    norm: Literal["rms", "layer"] = "rms"
    shift: float = 0.0
    gated: bool = True
    scale: float = 0.0                    # of the scores; 0: by the size of a head
    cap: float = 0.0
    final_cap: float = 0.0
    embedding_scale: float = 1.0
    tied: bool = False
    turned: bool = False
    paired: bool = False

    def shapes(self, has: Callable[[str], bool]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Role, layer and shape of every matrix and norm that the checkpoint has to hold. `has`: whether it
        holds a tensor of a role that only some families have."""
        yield "embedding", 0, (self.tokens, self.width)
        yield "norm", 0, (self.width,)
        if not self.tied:
            yield "head", 0, (self.tokens, self.width)
        if has("positions"):
            yield "positions", 0, (self.longest, self.width)
        own, shared = self.heads * self.head_size, self.key_heads * self.head_size
        rows = {
            "attention_norm": (self.width,), "query": (own, self.width), "key": (shared, self.width),
            "value": (shared, self.width), "out": (self.width, own), "feed_norm": (self.width,),
            "up": (self.feed_forward, self.width), "down": (self.width, self.feed_forward),
        }
        more = {
            "query_norm": (self.head_size,), "key_norm": (self.head_size,),
            "attention_end": (self.width,), "feed_end": (self.width,),
        }
        rows |= {"gate": (self.feed_forward, self.width)} if self.gated else {}
        rows |= {role: shape for role, shape in more.items() if has(role)}
        for layer in range(self.layers):
            for role, shape in rows.items():
                yield role, layer, shape
