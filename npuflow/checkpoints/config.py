"""Numbers that a checkpoint states of its network, in Hugging Face's words, each checked as it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from npuflow.base.errors import ModelError

MOST = 1 << 31
MISSING: Any = object()


@dataclass(frozen=True)
class CheckpointConfig:
    """`values` by Hugging Face's names (`num_hidden_layers`); `called`: what the file itself calls those that
    it names otherwise; `file`: where they stand."""

    values: Mapping[str, Any]
    file: str
    called: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def whole(self, key: str, default: Any = MISSING, least: int = 1, most: int = MOST) -> int:
        """A whole number within bounds."""
        found = self._found(key, default)
        if type(found) is float and found.is_integer():
            found = int(found)
        if type(found) is not int or not least <= found <= most:
            self.wrong(key, found, f"a whole number from {least} to {most} is needed")
        return found

    def real(self, key: str, default: Any = MISSING) -> float:
        found = self._found(key, default)
        if type(found) not in (int, float) or not math.isfinite(found):
            self.wrong(key, found, "a number is needed")
        return float(found)

    def text(self, key: str, default: Any = MISSING) -> str:
        found = self._found(key, default)
        if not isinstance(found, str):
            self.wrong(key, found, "a text is needed")
        return found

    def truth(self, key: str, default: bool) -> bool:
        found = self._found(key, default)
        if type(found) is not bool:
            self.wrong(key, found, "true or false is needed")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where there is none."""
        found = self._found(key, ())
        if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
            self.wrong(key, found, "a list of texts is needed")
        return tuple(found)

    def reals(self, key: str) -> tuple[float, ...]:
        """A list of numbers; empty where there is none."""
        found = self._found(key, ())
        if not isinstance(found, list | tuple) or not all(type(one) in (int, float) for one in found):
            self.wrong(key, found, "a list of numbers is needed")
        return tuple(map(float, found))

    def table(self, key: str) -> CheckpointConfig:
        """A table within; empty where there is none."""
        found = self._found(key, {})
        if not isinstance(found, Mapping):
            self.wrong(key, found, "a table is needed")
        return CheckpointConfig(found, self.file)

    def _found(self, key: str, default: Any) -> Any:
        found = self.values.get(key)
        if found is None:
            found = default
        if found is MISSING:
            raise ModelError(
                f'the checkpoint does not state "{self.called.get(key, key)}"',
                because=f"its family needs it; looked in {self.file}",
                hint="is it a language model's checkpoint, and whole?", code="NF-MODEL-443",
            ).at(file=self.file)
        return found

    def wrong(self, key: str, found: Any, because: str) -> NoReturn:
        """The error of a value that cannot be."""
        raise ModelError(
            f'the checkpoint says {self.called.get(key, key)} = {str(found)[:60]}', because=because,
            hint=f"correct it in {self.file}, or download the checkpoint again", code="NF-MODEL-444",
        ).at(file=self.file)
