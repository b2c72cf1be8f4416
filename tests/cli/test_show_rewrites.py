"""`show parse`: every rewrite with its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuflow.cli import main
from tests.checks.test_rewrite_check import made


def test_show_parse_lists_every_rewrite_with_its_nodes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path)
    capfd.readouterr()
    where = [str(tmp_path / "net.toml"), "--cache", str(tmp_path / "cache")]
    assert main(["show", "parse", *where, "--log"]) == 0
    log = capfd.readouterr().out
    assert "fuse_clip: 1\n  conv a, relu c -> conv a\n" in log
    assert "drop_noop: 1\n  Identity d -> nothing\n" in log
    assert main(["show", "parse", str(tmp_path / "net.toml"), "--cache", str(tmp_path / "cache")]) == 0
    out = capfd.readouterr().out
    assert "step      parse" in out and "3 rewrites: drop_noop 1, fold_scale 1, fuse_clip 1\n" in out
    assert (
        "  1  drop_noop   Identity d -> nothing\n" in out
        and "  3  fuse_clip   conv a, relu c -> conv a\n" in out
    )
