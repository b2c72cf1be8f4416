"""Numbers with their nouns, and errors of other packages in one line."""

from __future__ import annotations

LINE = 300                                # characters of it, at most


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 layer", "2 layers"; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def first_line(fault: BaseException) -> str:
    """What an error of another package says, without the trace that may follow; its class where that is
    nothing."""
    said = str(fault).strip()
    return said.splitlines()[0][:LINE] if said else type(fault).__name__
