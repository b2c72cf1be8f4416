"""A command line that cannot be parsed is an error like any other: a code, the
place, what to try, exit code 2."""

from __future__ import annotations

import json

import pytest

from tests.cli.commandline import Npuflow


@pytest.mark.parametrize(
    ("args", "code", "said", "hint"),
    [
        (
            ("build", "--jsno", "x.toml"),
            "NF-USAGE-064",
            'npuflow build has no option "--jsno"',
            "--json, or npuflow build",
        ),
        (("build", "-Z"), "NF-USAGE-064", 'has no option "-Z"', "npuflow build --help"),
        (("--foo",), "NF-USAGE-064", 'npuflow has no option "--foo"', "npuflow --help"),
        (("serve",), "NF-USAGE-065", "npuflow serve: [NAME=]PROGRAM... is missing", "npuflow serve --help"),
        (("pack",), "NF-USAGE-065", "npuflow pack: PROGRAM... is missing", "npuflow pack --help"),
        (("build",), "NF-USAGE-065", "npuflow build: RECIPE... is missing", "npuflow build --help"),
        (
            ("cache", "push", "--nothing"),
            "NF-USAGE-064",
            "npuflow cache push has no option",
            "npuflow cache push --help",
        ),
        (
            ("build", "x.toml", "--until"),
            "NF-USAGE-066",
            "cannot read an option: option --until requires",
            "build --help",
        ),
        (("build", "--json=5", "x.toml"), "NF-USAGE-066", "--json", "npuflow build --help"),
        (
            ("build", "x.toml", "--jobs", "many"),
            "NF-USAGE-067",
            "npuflow build: --jobs has a wrong value",
            "build --help",
        ),
        (("biuld", "x.toml"), "NF-USAGE-068", 'npuflow has no verb "biuld"', '"build"'),
        (("export", "onnx"), "NF-USAGE-068", 'export has no verb "onnx"', "npuflow export --help says what"),
        (("cache", "psh"), "NF-USAGE-068", 'npuflow cache has no verb "psh"', '"push"'),
        (("targets", "a", "b"), "NF-USAGE-069", "the command line cannot be read", "npuflow targets --help"),
    ],
)
def test_faults_have_a_code_and_the_usual_form(
    npuflow: Npuflow, args: tuple[str, ...], code: str, said: str, hint: str
) -> None:
    ran = npuflow(*args)
    assert ran.code == 2 and ran.out == ""
    first, *rest = ran.err.splitlines()
    assert first.startswith(f"error: {code}  ") and said in first
    assert rest[-1].startswith("  try      ") and hint in rest[-1]
    assert "Usage:" not in ran.err and "Traceback" not in ran.err


def test_the_event_stream_has_it_too(npuflow: Npuflow) -> None:
    ran = npuflow("build", "--foo", "--json")
    event = json.loads(ran.out)
    assert event["event"] == "error" and event["code"] == "NF-USAGE-064" and event["exit"] == 2


def test_help_and_version_are_no_errors(npuflow: Npuflow) -> None:
    for args in (("--version",), ("--help",), ("build", "--help"), ("cache", "gc", "-h")):
        ran = npuflow(*args)
        assert ran.code == 0 and ran.out and not ran.err
    ran = npuflow("cache")
    assert ran.code == 2 and "Usage: npuflow cache" in ran.out + ran.err and "NF-" not in ran.out + ran.err


def test_verbs_keep_their_exit_codes(npuflow: Npuflow) -> None:
    assert npuflow("explain", "NF-USAGE-064").code == 0
    assert npuflow("explain", "NF-NOPE-001").code == 2
