"""What lies at a path that names no file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from npuflow.base.paths import absent, kind_of, not_a_file


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "s"))
        found = {name: kind_of(tmp_path / name) for name in ("file", "none", "link", "pipe", "s", ".")}
    assert found == {
        "file": "",
        "none": "",
        "link": "a link to gone, which is not there",
        "pipe": "a pipe",
        "s": "a socket",
        ".": "a folder",
    }
    assert kind_of(Path("/dev/null")) == "a device"


def test_errors_say_which(tmp_path: Path) -> None:
    assert not_a_file(Path("/dev/null"), "x") == ('"x" is no file', "/dev/null is a device")
    assert not_a_file(tmp_path / "a", "a") == ('no file "a"', f"looked at {tmp_path / 'a'}")
    assert absent(tmp_path / "a").because == "" and absent(tmp_path).because == f"{tmp_path} is a folder"
