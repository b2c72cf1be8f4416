"""The lock as text: what is written is TOML, and reads back as it was, by the short way and by the long."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from npuflow.flow import lock
from npuflow.flow.lock import Lock, LockedStep, parse, text

ODD = [
    "a",
    "b-c",
    "a.b",
    'q"q',
    "x = 1",
    "[t]",
    "é",
    "\x7f",
    "\x85",
    "\u2028",
    "#",
    " ",
    "",
    "\x1f\U00010000",
]
NAMES = st.one_of(st.sampled_from(ODD), st.text(max_size=6))
VALUES = st.one_of(st.text(max_size=8), st.booleans(), st.integers(-(2**60), 2**60), st.floats())
STEPS = st.builds(
    LockedStep,
    st.text(max_size=5),
    st.text(max_size=5),
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.none()
    | st.dictionaries(
        NAMES, st.tuples(st.sampled_from(["x3:0", "x3:1"]), st.sampled_from(["x3:2"])), max_size=3
    ),
)


@given(st.dictionaries(NAMES, STEPS, max_size=3), st.dictionaries(NAMES, st.text(max_size=4), max_size=3))
def test_what_is_written_reads_back(steps: dict[str, LockedStep], code: dict[str, str]) -> None:
    whole = text(Lock(steps, code))
    again = parse(whole, "x.lock")
    assert repr(again.steps) == repr(dict(sorted((n, _sorted(s)) for n, s in steps.items())))
    assert again.code == code
    quick = lock._quick(whole)
    assert quick is None or repr(quick) == repr(tomllib.loads(whole))


def _sorted(step: LockedStep) -> LockedStep:
    return LockedStep(step.key, step.output, dict(sorted(step.fields.items())), step.items)


def test_the_short_way_is_taken() -> None:
    fields: dict[str, Any] = {"config.work.x": 1, "code": "x3:1", "inputs.a": "x3:2"}
    whole = text(Lock({"one": LockedStep("k", "o", fields, {"i.1": ("a", "b")})}, {"m:f": "x3:9"}))
    assert lock._quick(whole) == tomllib.loads(whole) != {}


def test_a_name_that_is_no_text_does_not_spoil_the_lock() -> None:
    """A file's name may hold bytes that are no characters."""
    whole = text(Lock({"one": LockedStep("k", "o", {}, {"a\udc80": ("x", "y")})}))
    whole.encode()
    assert parse(whole, "x.lock").steps["one"].items == {"a\\udc80": ("x", "y")}


def test_an_edited_lock_is_any_toml() -> None:
    whole = text(Lock({"one": LockedStep("k", "o", {"a": 1})}))
    edited = whole.replace('key = "k"', "key = 'k'  # mine")
    assert lock._quick(edited) is None
    assert parse(edited, "x.lock").steps["one"].key == "k"
