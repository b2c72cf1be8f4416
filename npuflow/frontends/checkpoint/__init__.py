"""Checkpoints of language models: GGUF files, and folders as Hugging Face writes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from npuflow.frontends import FRONTENDS, Bindings, Outline, Reading, Source

Items = tuple[tuple[str, Any], ...]


@FRONTENDS.entry
class CheckpointFile:
    """`.gguf` files; the folder of a config.json, or that file."""

    suffixes: ClassVar[tuple[str, ...]] = (".gguf", ".json")
    main: ClassVar[str] = "config.json"

    def files(self, path: Path) -> tuple[Path, ...]:
        from npuflow.checkpoints import files

        return files(path)

    def has_states(self, path: Path) -> bool:
        """Every decoder keeps keys and values."""
        return True

    def shared(self, path: Path, bindings: Bindings) -> Mapping[str, int]:
        stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in self.files(path))
        sizes = (bindings.dims, bindings.inputs, bindings.largest)
        dims, inputs, largest = (tuple(sorted(one.items())) for one in sizes)
        return _shared(path, stamps, dims, inputs, largest)

    def gather(self, path: Path) -> Source:
        from npuflow.checkpoints import opened

        return Source(content=opened(path))

    def outline(self, source: Source, sizes: Mapping[str, int]) -> Outline:
        from npuflow.frontends.checkpoint.outline import outline

        return outline(source.content, sizes)

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.checkpoints import Checkpoint
        from npuflow.frontends.checkpoint.reading import reading

        assert isinstance(source, Source) and isinstance(source.content, Checkpoint)
        return reading(source.content, bindings)


@lru_cache(maxsize=4)
def _shared(path: Path, stamps: object, dims: Items, inputs: Items, largest: Items) -> Mapping[str, int]:
    """Several steps of a build ask for it. `stamps`: of the checkpoint's files, so that a changed one is read
    again."""
    from npuflow.checkpoints import opened
    from npuflow.frontends.checkpoint.reading import shared

    return shared(opened(path), Bindings(dict(inputs), dict(dims), largest=dict(largest)))
