"""Ends a text in front of strings that stop it, wherever the borders of its pieces lie."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Pieces of a text in, what may be sent of it out. The first character that completes one of the strings
    ends the text, in front of that string. What may be the beginning of one is kept until more is known."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(strings)
        self.found = False
        self._kept = ""

    def more(self, piece: str) -> str:
        """What a further piece lets go. Behind the end nothing."""
        if self.found or not self.strings:
            return "" if self.found else piece
        text, self._kept = self._kept + piece, ""
        ends = [(at + len(one), at) for one in self.strings if (at := text.find(one)) >= 0]
        if ends:
            self.found = True
            return text[: min(ends)[1]]
        kept = max(_begun(text, one) for one in self.strings)
        text, self._kept = text[: len(text) - kept], text[len(text) - kept :]
        return text

    def rest(self) -> str:
        """What was kept back of a text that has ended."""
        text, self._kept = self._kept, ""
        return text


def _begun(text: str, string: str) -> int:
    """Characters at the end of a text that are the beginning of a string."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if string.startswith(text[-n:])), 0)
