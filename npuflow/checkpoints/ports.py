"""Names what the network of a checkpoint takes, gives and keeps: front ends make ports of these names."""

from __future__ import annotations

TOKENS, POSITION, CACHE, LOGITS = "tokens", "position", "cache", "logits"
EVERY = "logits:all"                      # of every token of a run, not of the last alone
NEXT = ":next"                            # behind the name of a state: what the next run begins with
CHUNK, CONTEXT = "chunk", "context"       # dimensions: new tokens of a run, and tokens that the cache holds


def cache_name(layer: int, what: str) -> str:
    """Of the keys or values of a layer."""
    return f"{CACHE}.{layer}.{what}"


def is_cache(name: str) -> bool:
    """Whether a port holds keys or values."""
    return name.startswith(f"{CACHE}.")
