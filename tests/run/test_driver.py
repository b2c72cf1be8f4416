"""The driver of all runners: what is wanted is kept, and nothing lives longer than its last reader."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.run.driver import RunPart, driven


def test_values_are_there_until_their_last_reader_and_no_longer() -> None:
    seen: list[set[str]] = []

    def part(reads: tuple[str, ...], *makes: str) -> RunPart[int]:
        def run(values: Mapping[str, int]) -> Mapping[str, int]:
            seen.append(set(values))
            return {name: sum(values[v] for v in reads) + 1 for name in makes}

        return RunPart(reads, run)

    parts = [part(("x",), "a", "unread"), part(("x", "a"), "b"), part(("b",), "y")]
    kept = driven(parts, {"x": 1, "z": 5}, {"y", "unread", "z"}.__contains__)
    assert seen == [{"x", "z"}, {"x", "a"}, {"b"}]
    assert kept == {"z": 5, "unread": 2, "y": 5} and list(kept) == ["z", "unread", "y"]


def test_without_parts_what_is_wanted_of_the_inputs_is_given_back() -> None:
    assert driven([], {"x": 1, "y": 2}, {"y"}.__contains__) == {"y": 2}
