"""What the proof from the words takes, beside the hazards of the full expansion: an LSTM by its most steps.

    python -m benchmarks.rounds_proof

prints a table: commands of all rounds and as stored; seconds of order and hazards of the expansion of the
most steps; seconds of the proof for all numbers of steps, and what it found.
"""

from __future__ import annotations

from time import perf_counter

from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.sim.hazards import hazards_of
from npuflow.sim.rounds import proof_of_rounds
from tests.networks.looped import free_length, program_of
from tests.program.test_repeats import TARGET
from tests.rules.test_recurrent import layer

STEPS = (64, 128, 256, 512)
HEAD = ("directions", "most steps", "commands", "stored", "hazards of one, s", "proof of all, s", "kinds",
        "cases", "proved")


def program(steps: int, directions: int) -> Program:
    attributes = 'direction="bidirectional"' if directions == 2 else ""
    graph, _, _ = free_length(
        lambda n: layer("LSTM", attributes=attributes, directions=directions, steps=n, batch=1), steps, TARGET
    )
    return program_of(graph, TARGET)


def main() -> None:
    print(f"| {' | '.join(HEAD)} |\n|{' ---: |' * len(HEAD)}")
    for directions in (1, 2):
        for steps in STEPS:
            made = program(steps, directions)
            began = perf_counter()
            proof = proof_of_rounds(made)
            proved = perf_counter()
            found = hazards_of(made, order_of(made))
            ended = perf_counter()
            assert not found
            row = (directions, steps, f"{len(made.commands[0]):,}", f"{len(made.stored[0]):,}",
                   f"{ended - proved:.2f}", f"{proved - began:.2f}", proof.numbers, proof.cases, proof.proved)
            print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
