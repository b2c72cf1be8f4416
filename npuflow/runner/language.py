"""What a runner's ports say of a language model: chunks of tokens, the cache, the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from npuflow.base.errors import UsageError
from npuflow.checkpoints.ports import LOGITS, POSITION, TOKENS, is_cache
from npuflow.ir.rings import Ring
from npuflow.program.container import Program
from npuflow.run.state import Pairs
from npuflow.runner.backend import Backend
from npuflow.runner.ports import Array, Port
from npuflow.runner.shaped import ShapedModel


@dataclass(frozen=True)
class TokenModel:
    """A language model with a cache, and what runs it. `chunks`: how many tokens its runs take, from the
    fewest; `context`: tokens of the longest sequence; `vocabulary`: how many it knows; `state`: what it keeps
    from run to run, and `start`, how that begins; `rings`: what caches are that keep the newest tokens alone.
    """

    backend: Backend
    chunks: tuple[int, ...]
    context: int
    vocabulary: int
    state: Pairs
    start: Mapping[str, Array]
    rings: tuple[Ring, ...] = ()

    @property
    def name(self) -> str:
        return self.backend.name

    @classmethod
    def of(cls, backend: Backend, state: Pairs, start: Mapping[str, Array]) -> Self:
        """UsageError for a model that is none."""
        inputs = {port.name: port for port in backend.inputs}
        _require_language(backend, state, inputs)
        shapes = [port.shape for one in _each(backend) for port in one.inputs if port.name == TOKENS]
        for shape in shapes:
            if len(shape) != 2 or shape[0] != 1 or shape[1] < 1:
                raise UsageError(
                    f"{backend.name} takes tokens {list(shape)}",
                    because="text is generated for one sequence, [1, chunk]",
                    hint="build it without [model] batch", code="NF-RUN-068",
                )
        chunks = tuple(sorted({shape[1] for shape in shapes}))
        held = (port.shape[2] for name, port in inputs.items() if is_cache(name))
        rings = backend.rings
        kept = {one.rows for one in rings}
        context = min([*(rows for rows in held if rows not in kept), *(one.most for one in rings)])
        vocabulary = {port.name: port for port in backend.outputs}[LOGITS].shape[-1]
        return cls(backend, chunks, context, vocabulary, state, start, rings)

    def program(self, chunk: int) -> Program | None:
        """What runs so many tokens; None of a model that is no program."""
        for one in _each(self.backend):
            if any(port.name == TOKENS and port.shape[1] == chunk for port in one.inputs):
                return getattr(one, "program", None)
        return None

    def rows(self, name: str) -> int:
        """Of a cache that is a ring; 0 of others."""
        size = self.start[name].shape[2] if is_cache(name) else 0
        return size if size < self.context else 0

    def earliest(self, count: int) -> int:
        """Where a run may begin at the earliest behind so many tokens, but for the very first: rings hold all
        that it attends to from there on."""
        return max((ring.earliest(count) for ring in self.rings), default=0)

    def chunk(self, position: int, count: int, earliest: int = 0) -> int:
        """How many tokens the next run takes, where the cache holds `position` and so many are new: as many
        as the longest chunk that they fill, or half of which they fill and that begins earlier, over tokens
        that the cache holds: one run in place of many. The shortest begins earlier, however few are new; 0
        where it cannot. `earliest`: where a run may begin, if not at 0."""
        begins = {chunk: position + min(chunk, count) - chunk for chunk in self.chunks}
        fitting = [
            chunk for chunk, begin in begins.items()
            if chunk <= count + min(count, position) and (not begin or begin >= earliest)
        ]
        return max(fitting) if fitting else self.chunks[0] if self.chunks[0] <= position + count else 0


def _each(backend: Backend) -> tuple[Backend, ...]:
    """Backends of one shape each."""
    return backend.each if isinstance(backend, ShapedModel) else (backend,)


def _require_language(backend: Backend, state: Pairs, inputs: Mapping[str, Port]) -> None:
    """UsageError where this is no language model with a cache."""
    states, outputs = {name for _, name in state}, {port.name for port in backend.outputs}
    caches = {name for name in inputs if is_cache(name)}
    missing: list[Any] = [
        *(f'the input "{name}"' for name in (TOKENS,) if name not in inputs),
        *(f'the output "{name}"' for name in (LOGITS,) if name not in outputs),
        *(f'the state "{name}"' for name in (POSITION, *sorted(caches)) if name not in states),
        *(["a cache"] if not caches else []),
    ]
    if missing:
        raise UsageError(
            f"{backend.name} is no language model that generates text", because=f"it has not {missing[0]}",
            hint="a checkpoint (a .gguf file or a folder), or a .npu that was built from one",
            code="NF-RUN-067",
        )
