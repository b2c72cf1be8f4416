"""Networks as JSON: `{"inputs": {NAME: SIZES}, "layers": [{"op", "in", "out", ...}], "outputs": [NAME]}`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Builder, Reading, Source, finished
from npuflow.ir.op import OPS
from npuflow.ir.types import TensorType


@FRONTENDS.entry
class Acme:
    """`.acme` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".acme",)

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path,)

    def gather(self, path: Path) -> Source:
        return Source(path.read_bytes())

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        try:
            found = json.loads(source if isinstance(source, bytes) else source.data)
            return self._built(found, bindings)
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise ModelError(
                "the ACME network is damaged", because=f"{type(fault).__name__}: {fault}",
                hint="is the file whole?", code="ACME-MODEL-001",
            ) from fault

    def _built(self, found: dict[str, Any], bindings: Bindings) -> Reading:
        builder = Builder()
        inputs = [builder.input(name, TensorType(tuple(shape))) for name, shape in found["inputs"].items()]
        for layer in found["layers"]:
            fields = {key: value for key, value in layer.items() if key not in ("op", "in", "out")}
            builder.add(OPS[layer["op"]](**fields), layer["in"], [layer["out"]])
        return finished(builder, inputs, bindings.outputs or found["outputs"])
