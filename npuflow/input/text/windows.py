"""Running text in windows of a stated number of tokens, with the token that follows each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npuflow.base.errors import DataError

UNSCORED = -1
"""In place of the token that follows, where none is known or its probability is not asked for."""
REST = "rest"


@dataclass(frozen=True)
class TokenWindow:
    """Tokens that are fed to the network from an empty cache. `texts`: the names of those that they are of.
    """

    name: str
    tokens: tuple[int, ...]
    texts: tuple[str, ...]

    def following(self) -> list[int]:
        """The token behind each; none is known behind the last."""
        return [*self.tokens[1:], UNSCORED]


def windows(texts: Mapping[str, Sequence[int]], size: int, before: Sequence[int]) -> list[TokenWindow]:
    """Windows of so many tokens, each beginning with `before`. Every text is cut by itself, so that a change
    of one leaves the windows of others; what is left behind their last windows is joined, in their order, and
    cut too. What fills no window is left out. DataError where there is none.
    """
    step = size - len(before)
    if step < 1:
        raise DataError(
            f"a window of {size} tokens holds no text", because=f"each text begins with {len(before)}",
            hint=f"window = {len(before) + 1} or more", code="NF-DATA-254",
        )
    found: list[TokenWindow] = []
    rest: list[tuple[int, str]] = []
    for name, ids in texts.items():
        whole = len(ids) - len(ids) % step
        found += (_window(f"{name}#{at // step:05d}", before, ids[at : at + step], (name,))
                  for at in range(0, whole, step))
        rest += ((token, name) for token in ids[whole:])
    found += _rests(rest, step, before)
    if not found:
        total = sum(map(len, texts.values()))
        raise DataError(
            f"the texts hold {total:,} tokens", because=f"a window takes {step:,}",
            hint=f"window = {max(total, 2)}, or more text", code="NF-DATA-255",
        )
    return found


def _rests(rest: Sequence[tuple[int, str]], step: int, before: Sequence[int]) -> Iterator[TokenWindow]:
    for i, at in enumerate(range(0, len(rest) - step + 1, step)):
        part = rest[at : at + step]
        texts = tuple(dict.fromkeys(name for _, name in part))
        yield _window(f"{REST}#{i:05d}", before, [token for token, _ in part], texts)


def _window(name: str, before: Sequence[int], ids: Sequence[int], texts: tuple[str, ...]) -> TokenWindow:
    return TokenWindow(name, (*before, *ids), texts)


def whole_chunks(tokens: int, chunk: int) -> int:
    """So many tokens, or the fewer that are whole chunks; one chunk at least."""
    return max(tokens - tokens % chunk, chunk)


def in_chunks(values: Sequence[int], chunk: int) -> list[list[int]]:
    """What runs of so many tokens take, one run after another."""
    return [list(values[at : at + chunk]) for at in range(0, len(values), chunk)]
