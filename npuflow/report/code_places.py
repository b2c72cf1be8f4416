"""Places of layers in the training code, by the names that layers and tensors have in reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any, Self

from npuflow.frontends import CodePlace

FILE = "sources.json"
ENDS = (":q", ":f", "'")                  # what npuflow puts behind names of the model


@dataclass(frozen=True)
class CodePlaces:
    """`places`: operator of the model -> its place; `layers`: a tensor -> names of the operators in the layer
    that makes it, the first one first."""

    places: Mapping[str, CodePlace] = field(default_factory=dict)
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def beside(cls, program: Path) -> Self:
        """Of the file that a build with [sources] writes beside its program; none where there is none."""
        try:
            return cls.read(program.with_name(FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    @classmethod
    def read(cls, content: str) -> Self:
        """From the text of such a file."""
        return cls({name: CodePlace(**one) for name, one in json.loads(content)["places"].items()})

    def of(self, *names: str) -> CodePlace | None:
        """The place of the first of these layers or tensors that has one."""
        for name in self._called(names) if self.places else ():
            if name in self.places:
                return self.places[name]
        return None

    def row(self, *names: str) -> dict[str, Any]:
        """{"source": the place as JSON has it}, or nothing."""
        found = self.of(*names)
        return {} if found is None else {"source": {k: v for k, v in asdict(found).items() if v}}

    def text(self, *names: str) -> str:
        """"module (file.py:12)"; nothing where no place is known."""
        found = self.of(*names)
        return "" if found is None else said(found)

    def _called(self, names: Iterable[str]) -> Iterable[str]:
        """The names, without what npuflow puts behind them, and the operators that a layer is made of."""
        for name in names:
            yield name
            plain = name.partition("@")[0]
            for end in ENDS:
                plain = plain.removesuffix(end)
            yield plain
            yield from self.layers.get(name, ())
            yield from self.layers.get(plain, ())


def said(place: CodePlace) -> str:
    """A place in a few words."""
    file = f"{PurePath(place.file).name}:{place.line}" if place.file else ""
    return f"{place.module} ({file})" if place.module and file else place.module or file
