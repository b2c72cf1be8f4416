"""TensorFlow and Keras models: SavedModels, .keras and .h5 files, frozen graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Bindings, Reading, Source

SAVED = "saved_model.pb"


@FRONTENDS.entry
class Tensorflow:
    """The folder of a SavedModel, or the `saved_model.pb` in it; other `.pb` as frozen graphs; `.keras` and
    `.h5` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".pb", ".keras", ".h5", ".hdf5")
    main: ClassVar[str] = SAVED

    def files(self, path: Path) -> tuple[Path, ...]:
        """Of a SavedModel the graph, the variables and the assets; not the fingerprint, which differs each
        time that the same model is saved."""
        if path.name != SAVED:
            return (path,)
        more = [path.parent / "variables", path.parent / "assets"]
        found = [file for folder in more if folder.is_dir() for file in sorted(folder.iterdir())]
        return (path, *(file for file in found if file.is_file()))

    def gather(self, path: Path) -> Source:
        return Source(content=path)

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends.tensorflow.load import converted

        assert isinstance(source, Source) and isinstance(source.content, Path)
        data, notes = isolated(converted, source.content, dict(bindings.inputs), tuple(bindings.outputs))
        found: Reading = FRONTENDS["tflite"]().read(data, bindings)
        return replace(found, notes=(*notes, *found.notes))
