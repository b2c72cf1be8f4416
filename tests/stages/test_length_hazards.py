"""The stage simulate says what is proved of the hazards of all lengths."""

from __future__ import annotations

import pytest

from npuflow.stages import simulate
from tests.program.test_counts import made

PROVED = "no hazards at any length; proved from the words"
REFUSED = "not proved free of hazards for all lengths, since commands of 4 cores"


@pytest.mark.parametrize(("name", "said"), [
    ("lstm, both directions", f"T = 1 to 18: {PROVED}"),
    ("rnn, given states, four cores", f"T = 1 to 19: {REFUSED}"),
])
def test_the_log_says_what_holds_of_all_lengths(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(simulate, "log", lines.append)
    graph, feeds, program = made(name)
    simulate.simulated(graph, program, [feeds], program.target.numerics)
    assert sum(line.startswith(said) for line in lines) == 1
    assert sum(line.startswith("T = 1: ") for line in lines) == 1
