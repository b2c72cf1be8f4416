"""Checkpoints of language models: GGUF files, and folders as Hugging Face writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from npuflow.frontends import FRONTENDS, Bindings, Outline, Reading, Source


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
        from npuflow.checkpoints import opened
        from npuflow.frontends.checkpoint.reading import shared

        return shared(opened(path), bindings)

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
