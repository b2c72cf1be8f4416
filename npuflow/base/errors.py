"""Errors as data: where, what, because, what to try; only the command line turns them into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True)
class Where:
    """A place in the user's world; every floor that an error passes on its way out adds what it knows."""

    file: str | None = None
    line: int | None = None
    key: str | None = None
    stage: str | None = None
    item: str | None = None
    node: str | None = None
    value: str | None = None

    def filled(self, other: Where) -> Where:
        """This place, with its unknown parts taken from `other`."""
        gaps = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) is None}
        # A line means nothing without its own file: never mix one place's line with another's file.
        if self.file is not None and other.file != self.file:
            gaps.pop("line", None)
            if self.line is None:
                gaps.pop("key", None)
        return replace(self, **gaps)

    def as_dict(self) -> dict[str, str | int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}


class NpuflowError(Exception):
    """Anything npuflow can explain. `exit_code` is 2 when the user's input is at
    fault, 1 when a build failed."""

    exit_code = 1

    def __init__(
        self, message: str, *, where: Where | None = None, because: str = "", hint: str = "", code: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where or Where()
        self.because = because
        self.hint = hint
        self.code = code

    def at(self, where: Where | None = None, /, **place: str | int | None) -> NpuflowError:
        """The same error with missing places filled in; it is changed, not copied, so
        that `raise` keeps its trace."""
        self.where = self.where.filled(where or Where(**place))  # type: ignore[arg-type]
        return self

    def with_(self, *, because: str, hint: str) -> Self:
        """A copy of the same kind with another reason and another suggestion."""
        copy = type(self).__new__(type(self))
        copy.args = self.args
        copy.__dict__.update(self.__dict__, because=because, hint=hint)
        return copy

    def faults(self) -> Sequence[NpuflowError]:
        """The single errors to show: one, except for a collection."""
        return (self,)

    def as_dict(self) -> dict[str, object]:
        """For the JSON event stream: only what is known."""
        known = {"code": self.code, "because": self.because, "hint": self.hint}
        place = self.where.as_dict()
        return {
            "message": self.message,
            **{k: v for k, v in known.items() if v},
            **({"where": place} if place else {}),
        }

    def __str__(self) -> str:
        parts = [self.message]
        place = " ".join(f"{name}={value}" for name, value in self.where.as_dict().items())
        parts += [f"[{place}]"] if place else []
        parts += [f"because {self.because}"] if self.because else []
        parts += [f"try {self.hint}"] if self.hint else []
        return "; ".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions travel from worker processes: rebuild by state, not by positional arguments.
        return (_restore, (type(self), self.args, self.__dict__))


def _restore(kind: type[NpuflowError], args: tuple[object, ...], state: dict[str, object]) -> NpuflowError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class InputError(NpuflowError):
    """The user's input is wrong: a recipe, a model, data, a target or an argument."""

    exit_code = 2


class RecipeError(InputError):
    """Every fault of a recipe at once."""

    def __init__(self, faults: Sequence[NpuflowError] | str, **more: object) -> None:
        if isinstance(faults, str):
            super().__init__(faults, **more)  # type: ignore[arg-type]
            self._faults: tuple[NpuflowError, ...] = ()
            return
        self._faults = tuple(faults)
        first = self._faults[0]
        text = first.message if len(self._faults) == 1 else f"{len(self._faults)} faults in the recipe"
        super().__init__(text, where=first.where, because=first.because, hint=first.hint, code=first.code)

    def faults(self) -> Sequence[NpuflowError]:
        return self._faults or (self,)

    def at(self, where: Where | None = None, /, **place: str | int | None) -> NpuflowError:
        for fault in self._faults:
            fault.at(where, **place)
        return super().at(where, **place)

    def __str__(self) -> str:
        return "\n".join(str(f) for f in self._faults) if self._faults else super().__str__()


class UsageError(InputError):
    """A command was called with arguments that cannot work together or name nothing."""


class ModelError(InputError):
    """The source model is malformed, unreadable, or uses something that cannot be built."""


class DataError(InputError):
    """Samples or labels are missing, unreadable or do not fit the model."""


class AbsentError(DataError):
    """There is nothing at a path that a recipe gives for its data."""


class TargetError(InputError):
    """The network does not fit the target: an inequality with demand, bound, gap and suggestions."""


class FitError(TargetError):
    """No plan of the network, of a layer or of a pinned group fits the memory of the target."""


class StoreError(NpuflowError):
    """The cache cannot be read or written."""


class BuildError(NpuflowError):
    """A step failed."""


class Interrupted(BuildError):
    """The user stopped the build; what was finished is kept."""


class InternalError(NpuflowError):
    """An invariant of npuflow itself is broken: a bug to report, with what reproduces it."""


def nearest(name: str, allowed: Sequence[str]) -> str | None:
    """The allowed name that `name` was probably meant to be."""
    import difflib  # slow to import, and only needed once something is wrong

    lowered = {a.lower(): a for a in allowed}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def meant(name: str, allowed: Sequence[str]) -> str:
    """A hint for an unknown name where the reason lists what is allowed: the nearest one, if one is near."""
    close = nearest(name, allowed)
    return f'"{close}"' if close is not None else ""


def suggestion(name: str, allowed: Sequence[str], *, most: int = 12) -> str:
    """A hint for an unknown name: the nearest one, else what is allowed."""
    if close := meant(name, allowed):
        return close
    names = sorted(allowed)
    return ("one of " + ", ".join(names[:most]) + (", ..." if len(names) > most else "")) if names else ""
