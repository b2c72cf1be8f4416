"""The verbs that explain and look after: why, diff, cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from commandline import Npuflow


def test_why_names_the_field_and_the_chain(npuflow: Npuflow) -> None:
    assert "never built" in npuflow("why", "words", "words.toml").out
    npuflow("build", "words.toml")
    assert npuflow("why", "page", "words.toml").out.startswith("page is up to date\n")
    out = npuflow("why", "page", "words.toml", "--set", "count.least=2").out
    assert out.startswith("page may run\n")
    assert "waits for total" in out and "waits for tally" in out
    assert "config.count.least: 1 -> 2" in out
    out = npuflow("why", "tally", "words.toml", "--set", "count.least=2").out
    assert out.startswith("tally would run (2 of its items)\n") and "config.count.least: 1 -> 2" in out


def test_why_of_a_build_into_another_folder(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml", "--out", "elsewhere")
    asked = ("why", "page", "words.toml", "--set", "page.title=Hi")
    found = npuflow(*asked).out
    assert "no build to compare with: there is no out/words/words.lock; --out names another folder" in found
    assert "--out" not in npuflow(*asked, "--out", "elsewhere").out


def test_why_after_the_build_that_ran_it(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml")
    npuflow("build", "words.toml", "--set", "count.least=2")
    out = npuflow("why", "page", "words.toml", "--set", "count.least=2").out
    assert "page is up to date" in out
    assert "inputs.total: x3:" in out and "config.count.least: 1 -> 2" in out


def test_why_of_an_item(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    (project / "texts/one.txt").write_text("z\n")
    assert npuflow("why", "words/one.txt", "words.toml").out.startswith("words/one.txt would run\n")
    assert npuflow("why", "words/two.txt", "words.toml").out.startswith("words/two.txt is up to date\n")
    assert npuflow("why", "words/six.txt", "words.toml").code == 2
    assert npuflow("why", "wrods", "words.toml").code == 2


def test_diff_of_two_locks(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    shutil.copytree(project / "out", project / "before")
    assert npuflow("diff", "before/words", "words.toml").out == "no differences\n"
    npuflow("build", "words.toml", "--set", "page.title=Hi")
    out = npuflow("diff", "before/words", "out/words/words.lock").out
    assert out.startswith("page   x3:") and 'config.page.title: "Words" -> "Hi"' in out
    assert "total" not in out
    for bad in ("gone.lock", "texts", "words.toml.bak"):
        assert npuflow("diff", bad, "words.toml").code == 2
    (project / "x.lock").write_text("not a lock")
    assert npuflow("diff", "x.lock", "words.toml").code == 2


def test_the_lock_does_not_depend_on_the_way(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    lock = (project / "out/words/words.lock").read_text()
    shutil.rmtree(project / "out")
    npuflow("build", "words.toml", "--cache", "elsewhere", "--jobs", "1")
    assert (project / "out/words/words.lock").read_text() == lock


def test_cache_stats(npuflow: Npuflow, project: Path) -> None:
    assert npuflow("cache", "stats").code != 0  # there is none yet, and asking makes none
    npuflow("build", "words.toml", "--cache", "c")
    out = npuflow("cache", "stats", "--cache", "c").out
    assert out.startswith(f"{project}/c\n  6 objects, ") and "6 records" in out and "Tally" in out
    assert json.loads(npuflow("cache", "stats", "--cache", "c", "--json").out)["objects"] == 6


def test_cache_push(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml", "--cache", "c")
    refused = npuflow("cache", "push", "--cache", "c")
    assert (
        refused.code == 2 and "no remote cache is configured" in refused.err and "--remote URL" in refused.err
    )
    words = ("cache", "push", "--cache", "c", "--remote", f"file://{project}/share")
    assert npuflow(*words, "--dry-run").out.startswith("would send: 6 records, 6 objects, ")
    assert npuflow(*words).out.startswith("sent: 6 records, 6 objects, ")
    assert npuflow(*words).out == "sent: 0 records, 0 objects, 0 B; there already: 6 records\n"
    assert (
        json.loads(npuflow(*words, "--recipe", "words.toml", "--last-build", "--json").out)["records_there"]
        == 6
    )
    assert npuflow(*words, "--last-build").code == 2
    out = npuflow("build", "words.toml", "--cache", "d", "--remote", f"file://{project}/share").out
    assert "(0 ran, 6 hit" in out


def test_a_build_uploads_what_it_found_when_it_is_asked_to(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml", "--cache", "c")
    words = ("build", "words.toml", "--cache", "c", "--remote", f"file://{project}/share")
    assert npuflow(*words).code == 0 and not (project / "share").exists()
    assert npuflow(*words, "--set", "build.remote_push=used").code == 0
    assert len(list((project / "share").rglob("*.json"))) == 6
    lost = npuflow(*words[:-1], "file:///no/such/share", "--set", "build.remote_push=used")
    assert lost.code == 0 and "cannot be reached" in lost.err


def test_cache_verify_finds_damage_and_the_next_build_repairs_it(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml", "--cache", "c")
    assert "nothing is damaged" in npuflow("cache", "verify", "--cache", "c").out
    page = next(Path("c").rglob("page.txt"))
    page.write_bytes(page.read_bytes()[::-1])
    ran = npuflow("cache", "verify", "--cache", "c")
    assert ran.code == 1 and "damaged:" in ran.out
    assert npuflow("build", "words.toml", "--cache", "c", "--json").lines[-1]["ran"] == 1


def test_cache_verify_rerun(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml")
    ran = npuflow("cache", "verify", "--recipe", "words.toml", "--rerun", "total")
    assert ran.code == 0 and "total: the same products again" in ran.out
    assert npuflow("cache", "verify", "--rerun", "total").code == 2


def test_cache_gc_keeps_what_the_output_needs(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml", "--cache", "c")
    npuflow("build", "words.toml", "--cache", "c", "--set", "page.title=Old")
    npuflow("build", "words.toml", "--cache", "c")
    ran = npuflow("cache", "gc", "--cache", "c")
    assert "removed: 0 records, 0 objects" in ran.out  # younger than the grace period
    ran = npuflow("cache", "gc", "--cache", "c", "--grace", "0", "--dry-run")
    assert "would go: 1 records, 1 objects" in ran.out
    ran = npuflow("cache", "gc", "--cache", "c", "--grace", "0")
    assert ran.code == 0 and "removed: 1 records, 1 objects" in ran.out
    assert npuflow("build", "words.toml", "--cache", "c", "--jobs", "1", "--json").lines[-1]["ran"] == 0
